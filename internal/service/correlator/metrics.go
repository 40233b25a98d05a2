package correlator

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
)

const (
	undecidedEvery = 5 * time.Second // how often the oldest undecided call is searched
	undecidedShare = 200             // at most one part in so many of the time is spent on that
)

// workerMetrics are the worker's metrics.
type workerMetrics struct {
	*metrics.Correlator
	nextLook time.Time // when to search the oldest undecided call next
}

func newWorkerMetrics(f Flags, env daemon.Env, js jetstream.JetStream) workerMetrics {
	c := workerMetrics{Correlator: env.Metrics.Correlator(f.Stream, alertedRules())}
	c.Follow(daemon.StreamHead(js, f.Stream))
	return c
}

// alertedRules lists every rule that a finding can name, with the severities of which an alert has to see the first
// finding: the usual one, and those of the alerts, if a case can be graded so. Cases of checks are graded lower only.
func alertedRules() map[string][]events.Severity {
	list := map[string][]events.Severity{}
	for _, r := range correlation.Rules() {
		list[r.Name] = []events.Severity{r.Severity, events.SeverityHigh, events.SeverityCritical}
	}
	for _, c := range checks.All() {
		if c.Status == catalogue.Undecidable {
			continue
		}
		list[c.ID] = []events.Severity{c.Severity}
		if c.Severity == events.SeverityCritical {
			list[c.ID] = append(list[c.ID], events.SeverityHigh)
		}
	}
	return list
}

// countSeen reports the state's size after n more messages.
func (c *workerMetrics) countSeen(core *correlation.Correlator, head uint64, n int, now time.Time) {
	s := core.Stats()
	c.Read(n, head, s.Open, s.Calls, s.Sessions, s.ForgottenOpen)
	if now.Before(c.nextLook) {
		return
	}
	since, _ := core.OldestUndecided()
	c.Undecided(since)
	end := time.Now()
	c.nextLook = end.Add(max(undecidedEvery, undecidedShare*end.Sub(now)))
}

// countWritten counts outputs that are in the log now.
func (c *workerMetrics) countWritten(outputs []pendingOutput) {
	for _, p := range outputs {
		c.Put(p.out.State, p.out.Finding)
	}
}
