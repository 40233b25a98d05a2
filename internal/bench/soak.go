package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/streams"
)

type soakCmd struct {
	Duration     time.Duration `help:"How long the load lasts, warm-up included." default:"10m"`
	WarmUp       time.Duration `help:"When memory is looked at for the first time." default:"1m"`
	Rate         int           `help:"Calls a second: an admission and the report of its execution each." default:"300"`
	SyncInterval string        `help:"Sync setting of the log: always, or a duration such as 2m." default:"always"`
	CacheDir     string        `help:"Where the engine's library is kept (default: the user's cache directory)." env:"COUNTERSIGN_CACHE" placeholder:"DIR"`
	JSON         bool          `name:"json" help:"Print JSON, one process a line."`
}

// soakResult is the memory of one process.
type soakResult struct {
	Process string  `json:"process"`
	WarmMiB float64 `json:"warm_mib"`
	EndMiB  float64 `json:"end_mib"`
	Ratio   float64 `json:"ratio"`
	Calls   int     `json:"calls"`
}

// soakSession is how many calls a session has.
const soakSession = 50

// soakStep is how often calls are made, as many at once as the rate requires.
const soakStep = 100 * time.Millisecond

func (c *soakCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.WarmUp >= c.Duration || c.Rate < 1 {
		return ui.UsageError{Err: errors.New("--warm-up must be shorter than --duration, and --rate at least 1")}
	}
	setup := pipelineSetup{SyncInterval: c.SyncInterval, Policies: 100, CacheDir: c.CacheDir}
	return setup.run(ctx, io, func(p *pipeline.Pipeline) error { return c.soak(ctx, io, p.Ready()) })
}

func (c *soakCmd) soak(ctx context.Context, io ui.Stdio, ready target.Ready) error {
	nc, err := target.FromReady(ready).Connect(ctx, target.Runtime)
	if err != nil {
		return err
	}
	defer nc.Close()
	s := &soak{nc: nc, space: subject.Space{}, tenant: ready.Tenant, publisher: ready.Roles[target.Runtime].Publisher}
	var warm map[string]float64
	begun, bar := time.Now(), ui.NewProgress(io)
	defer bar.End()
	tick := time.NewTicker(soakStep)
	defer tick.Stop()
	for due := 0.0; time.Since(begun) < c.Duration; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			due += float64(c.Rate) * soakStep.Seconds()
			n := int(due)
			due -= float64(n)
			if err := s.calls(ctx, n); err != nil {
				return err
			}
			if warm == nil && now.Sub(begun) >= c.WarmUp {
				if warm, err = residentMemory(ready); err != nil {
					return err
				}
			}
			if bar.Due(now) {
				bar.Tell(fmt.Sprintf("%s of %s, %d calls", now.Sub(begun).Round(time.Second), c.Duration, s.made))
			}
		}
	}
	end, err := residentMemory(ready)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(end)) {
		r := soakResult{Process: name, WarmMiB: warm[name], EndMiB: end[name], Ratio: end[name] / warm[name], Calls: s.made}
		if c.JSON {
			err = ui.WriteJSON(io, r)
		} else {
			_, err = fmt.Fprintf(io.Out, "%-12s %8.1f MiB after %s, %8.1f MiB after %s: %.2fx, %d calls\n", name, r.WarmMiB, c.WarmUp, r.EndMiB, c.Duration, r.Ratio, s.made)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// soak makes calls that are admitted, run and reported.
type soak struct {
	nc                *nats.Conn
	space             subject.Space
	tenant, publisher string
	made              int
}

func (s *soak) calls(ctx context.Context, n int) error {
	g, asking := errgroup.WithContext(ctx)
	g.SetLimit(16)
	reports := make([][]byte, n)
	for i := range n {
		s.made++
		pre, post := s.pair(s.made)
		reports[i] = post
		g.Go(func() error {
			reply, err := client.Request(asking, s.nc, s.space, s.tenant, client.Call{Protocol: subject.ProtoAgentHook, Body: pre})
			if err != nil {
				return err
			}
			if v := reply.Header.Get(events.HeaderVerdict); v != string(events.Allow) {
				return fmt.Errorf("%w: %s", errNotAllowed, reply.Data)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil || n == 0 {
		return err
	}
	msgs, err := client.Messages(s.space, s.tenant, s.publisher, subject.ProtoAgentHook, reports...)
	if err != nil {
		return err
	}
	return streams.PublishEvents(ctx, s.nc, msgs)
}

// pair returns the request of a call and the report of its execution.
func (s *soak) pair(n int) (pre, post []byte) {
	body := func(kind, typ, more string) []byte {
		return fmt.Appendf(nil, `{"event_id":"%s0000-0000-4000-8000-%012d","event_type":"%s","timestamp":"%s","source":"mail-agent","session_id":"soak-%d",`+
			`"tool_name":"send_email","tool_input":{"to":"dana@acme.example","subject":"Minutes of %d"}%s,"metadata":{"tool_call_id":"call-%d"}}`,
			kind, n, typ, time.Now().UTC().Format(time.RFC3339Nano), n/soakSession, n, more, n)
	}
	return body("aaaa", "PreToolUse", ""), body("bbbb", "PostToolUse", "")
}

// residentMemory is the memory of every process of a pipeline, in MiB.
func residentMemory(ready target.Ready) (map[string]float64, error) {
	out := map[string]float64{}
	for name, pid := range ready.PIDs {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return nil, fmt.Errorf("the memory of %s: %w", name, err)
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			return nil, fmt.Errorf("the memory of %s: %w", name, err)
		}
		out[name] = kb / 1024
	}
	return out, nil
}
