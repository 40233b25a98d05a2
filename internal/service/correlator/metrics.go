package correlator

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
)

const (
	undecidedEvery = 5 * time.Second // how often the oldest undecided call is looked for
	undecidedShare = 200             // and at most one part in so many of the time goes there
)

// workerMetrics is what the worker shows of itself.
type workerMetrics struct {
	*metrics.Correlator
	nextLook time.Time // when to look for the oldest undecided call again
}

func newWorkerMetrics(f Flags, env daemon.Env, js jetstream.JetStream) workerMetrics {
	c := workerMetrics{Correlator: env.Metrics.Correlator(f.Stream, ruleSeverities())}
	if c.Correlator != nil {
		c.Follow(daemon.StreamHead(js, f.Stream))
	}
	return c
}

// ruleSeverities gives every rule that a finding can name.
func ruleSeverities() map[string]events.Severity {
	list := map[string]events.Severity{}
	for _, r := range correlation.Rules() {
		list[r.Name] = r.Severity
	}
	for _, c := range catalogue.All() {
		if c.Status != catalogue.Undecidable {
			list[c.ID] = c.Severity
		}
	}
	return list
}

// countSeen tells what is in memory after n messages.
func (w *worker) countSeen(n int, now time.Time) {
	if w.metrics.Correlator == nil {
		return
	}
	s := w.core.Stats()
	w.metrics.Read(n, w.head, s.Open, s.Calls, s.Sessions)
	if now.Before(w.metrics.nextLook) {
		return
	}
	since, _ := w.core.OldestUndecided()
	w.metrics.Undecided(since)
	end := time.Now()
	w.metrics.nextLook = end.Add(max(undecidedEvery, undecidedShare*end.Sub(now)))
}

// countWritten counts the first n of the outputs that wait: they are in the log now.
func (w *worker) countWritten(n int) {
	for _, p := range w.pending[:n] {
		w.metrics.Put(p.out.State, p.out.Finding)
	}
}
