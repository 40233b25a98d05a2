package auditor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/write"
)

// Pauses between attempts; the log keeps what arrives meanwhile.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 5 * time.Second
)

// retrier repeats operations, and reports those that fail. Several goroutines may use it at the same
// time: one makes records, one stores a batch, one stores checkpoints again.
type retrier struct {
	env    daemon.Env
	issues healthIssues
}

// retry calls f until it succeeds, ctx ends, or it fails in a way that a retry does not mend.
func (r *retrier) retry(ctx context.Context, what string, f func() error) error {
	var logged daemon.LoggedProblem
	for pauses := retry.New(retryMin, retryMax); ; {
		err := r.attempt(what, f)
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			r.issues.set(r.env.Health, what, "")
			return nil
		case errors.As(err, &conflict):
			return fmt.Errorf("%w: %w", daemon.ErrFenced, err)
		case errors.Is(err, daemon.ErrFenced), errors.Is(err, write.ErrBatch): // a retry does not help
			return err
		case conn.IsMissing(err): // ClickHouse lost its data: the next start makes the tables
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		wait := pauses.Next()
		if logged.IsDue(err.Error(), time.Now()) {
			r.env.Log.Warn().Err(err).Str("what", what).Dur("retry_in", wait).Msg("no way on; it will be tried again")
		}
		r.issues.set(r.env.Health, what, err.Error())
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// poll calls look at each tick until ctx ends. Its error is the problem of a component in the health report, and is
// logged with what it means.
func (s shardAccess) poll(ctx context.Context, component, meaning string, every time.Duration, look func(context.Context) error) {
	var logged daemon.LoggedProblem
	for ctx.Err() == nil {
		err := look(ctx)
		if ctx.Err() != nil {
			return
		}
		problem := ""
		if err != nil {
			problem = err.Error()
			if logged.IsDue(problem, time.Now()) {
				s.env.Log.Warn().Err(err).Msg(meaning + "; it will be tried again")
			}
		}
		s.env.Health.Set(component, problem)
		_ = retry.Sleep(ctx, retry.UntilTick(every))
	}
}

// slowAttempt is after how long an attempt without an answer is reported. The database client gives up
// only after minutes.
const slowAttempt = 15 * time.Second

// once calls f once, and clears what attempt reports of it.
func (r *retrier) once(what string, f func() error) error {
	defer r.issues.set(r.env.Health, what, "")
	return r.attempt(what, f)
}

// attempt calls f once. The health report says so while it takes long (TestAnAttemptThatHangsIsReported).
func (r *retrier) attempt(what string, f func() error) error {
	begun, reported := time.Now(), make(chan struct{})
	slow := time.AfterFunc(slowAttempt, func() {
		defer close(reported)
		text := "no answer yet; the attempt began at " + begun.UTC().Format(time.RFC3339)
		r.issues.set(r.env.Health, what, text)
		r.env.Log.Warn().Str("what", what).Msg(text)
	})
	err := f()
	if !slow.Stop() {
		<-reported // the caller clears the report
	}
	return err
}

// healthIssues are the operations being retried, for the health report. There can be several at the
// same time.
type healthIssues struct {
	mu   sync.Mutex
	open map[string]string
}

// set notes the problem of an operation; an empty text clears it.
func (t *healthIssues) set(h *daemon.Health, what, problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if problem == "" {
		if _, open := t.open[what]; !open {
			return
		}
		delete(t.open, what)
	} else {
		if t.open == nil {
			t.open = map[string]string{}
		}
		t.open[what] = what + ": " + problem
	}
	texts := make([]string, 0, len(t.open))
	for _, what := range slices.Sorted(maps.Keys(t.open)) {
		texts = append(texts, t.open[what])
	}
	h.Set("store", strings.Join(texts, "; "))
}
