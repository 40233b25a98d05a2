package correlator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// Pauses before a shard is started again.
const (
	againMin = time.Second
	againMax = 30 * time.Second
)

// shardFlags returns the flags of each shard. Stream names distinguish them in the snapshot
// directory, in metrics and in the health report.
func (f Flags) shardFlags() ([]Flags, error) {
	if len(f.Shards) == 0 {
		return []Flags{f}, nil
	}
	seen := map[string]bool{}
	var list []Flags
	for _, text := range f.Shards {
		one := f
		one.Shards = nil
		stream, url, elsewhere := strings.Cut(text, "=")
		if one.Stream = stream; elsewhere {
			one.Server = url
		}
		switch {
		case stream == "" || elsewhere && url == "" || strings.ContainsAny(stream, " .*>/\\"):
			return nil, fmt.Errorf("--shard %q is not STREAM or STREAM=URL", text)
		case seen[stream]:
			return nil, fmt.Errorf("--shard %s is given twice: the streams of one process must have different names", stream)
		}
		seen[stream] = true
		list = append(list, one)
	}
	return list, nil
}

// runShards runs a correlator for every shard until ctx ends. They share only the process: a
// shard that loses its lease becomes a standby again, one that fails is restarted, one whose log
// cannot be trusted stays stopped, and the others continue. Once all are stopped it returns why.
func runShards(ctx context.Context, shards []Flags, env daemon.Env) error {
	r := readiness{remaining: len(shards), ready: env.Ready}
	var all sync.WaitGroup
	ends := make([]error, len(shards))
	for i, f := range shards {
		part := env
		part.Log = env.Log.With().Str("shard", f.Stream).Logger()
		part.Health = env.Health.Part(f.Stream)
		part.Ready = r.readyFunc(part.Health)
		all.Go(func() { ends[i] = keepRunning(ctx, f, part) })
	}
	all.Wait()
	return errors.Join(ctx.Err(), r.readyErr(), errors.Join(ends...))
}

// keepRunning restarts one shard whenever it ends. It returns the error of a shard whose log cannot be
// trusted: nothing may write to it until an operator has found out why. Else it returns when ctx ends.
func keepRunning(ctx context.Context, f Flags, env daemon.Env) error {
	for wait := againMin; ; wait = min(2*wait, againMax) {
		begun := time.Now()
		err := runShard(ctx, f, env)
		env.Health.BeginAgain()
		env.Health.SetRole(f.Stream, daemon.RoleStandby) // without a role no alert would see that no instance is active
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, daemon.ErrFenced):
			env.Log.Warn().Err(err).Msg("standing by again")
			wait = againMin
		case daemon.IsUntrusted(err):
			env.Log.Error().Err(err).Msg("failed; nothing may write to this log, and the shard stays stopped")
			env.Health.Set("shard", fmt.Sprintf("the correlator of this shard is stopped: %v", err))
			return fmt.Errorf("shard %s: %w", f.Stream, err)
		default:
			env.Log.Error().Err(err).Dur("retry_in", wait).Msg("failed")
			env.Health.Set("shard", fmt.Sprintf("the correlator of this shard failed, and is started again: %v", err))
		}
		if time.Since(begun) > againMax {
			wait = againMin
		}
		if retry.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// readiness reports ready once every shard has been ready.
type readiness struct {
	mu        sync.Mutex
	remaining int
	ready     func() error
	err       error
}

// readyFunc returns the function that one shard calls each time it becomes ready.
func (r *readiness) readyFunc(h *daemon.Health) func() error {
	var once sync.Once
	return func() error {
		h.SetReady()
		h.Set("shard", "")
		once.Do(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.remaining--; r.remaining == 0 {
				r.err = r.ready()
			}
		})
		return r.readyErr()
	}
}

func (r *readiness) readyErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
