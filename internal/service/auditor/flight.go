package auditor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// inFlightBatch is a batch that is being stored.
type inFlightBatch struct {
	done chan struct{}
	err  error         // set before done is closed
	took time.Duration // to store it; the same
}

// startStore starts storing a batch, and signs a checkpoint if one is due. No other batch may be
// in flight: of two inserts the second could succeed and the first fail.
func (a *auditor) startStore(ctx context.Context, b *batch) {
	f := &inFlightBatch{done: make(chan struct{})}
	a.inFlight = f
	go func() {
		defer close(f.done)
		begun := time.Now()
		if f.err = a.storeBatch(ctx, b); f.err != nil {
			return
		}
		f.took = time.Since(begun)
		a.metrics.Stored(b.before, b.built, begun)
		a.stored = b.tree
		f.err = a.signCheckpoint(ctx, false)
	}()
}

// isStoring reports whether a batch is still being stored.
func (a *auditor) isStoring() bool {
	if a.inFlight == nil {
		return false
	}
	select {
	case <-a.inFlight.done:
		return false
	default:
		return true
	}
}

// awaitStore waits until no batch is in flight and returns the result. After an error it is
// unknown what is stored: this auditor must not continue.
func (a *auditor) awaitStore() error {
	f := a.inFlight
	if f == nil {
		return nil
	}
	<-f.done
	if f.err == nil {
		a.inFlight, a.storeTook = nil, f.took
	}
	return f.err
}

// healthIssues are the operations being retried, for the health report. There can be two at the
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
