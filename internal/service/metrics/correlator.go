package metrics

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/countersign-dev/countersign/events"
)

var states = []string{string(events.CallOpen), string(events.CallCompleted), string(events.CallFailed), string(events.CallDenied),
	string(events.CallAbandoned), string(events.CallOrphaned)}

var severities = []string{string(events.SeverityInfo), string(events.SeverityLow), string(events.SeverityMedium), string(events.SeverityHigh),
	string(events.SeverityCritical)}

// Correlator is the set of a correlator's metrics on one shard.
type Correlator struct {
	messages, outputs, retracted prometheus.Counter
	forgotten                    atomic.Uint64 // counted by the correlator
	calls, findings              vector
	open, known, sessions        prometheus.Gauge
	undecided                    atomic.Pointer[time.Time]
	lag                          readerLag
}

// Correlator returns the metrics of a shard's correlator. rules has all rules, with the severities that have a
// counter from the start, so that an alert sees the first finding, too.
func (r *Registry) Correlator(shard string, rules map[string][]events.Severity) *Correlator {
	return once(r, "correlator of "+shard, func(r *Registry) *Correlator {
		c := &Correlator{
			messages: r.addCounter(descMessages, shard), outputs: r.addCounter(descOutputs, shard), retracted: r.addCounter(descRetracted, shard),
			calls: r.addVector(descCalls, shard, nil), findings: r.addFindings(shard, rules),
			open: r.addGauge(descOpen, shard), known: r.addGauge(descKnown, shard), sessions: r.addGauge(descSessions, shard),
		}
		promauto.With(r.reg).NewCounterFunc(prometheus.CounterOpts(descForgotten.options(shard)), func() float64 { return float64(c.forgotten.Load()) })
		r.addScraped(descUndecided, shard, c.undecidedAge)
		r.addScraped(descCorrLag, shard, c.lag.messagesBehind)
		r.addScraped(descCorrAge, shard, c.lag.secondsBehind)
		return c
	})
}

// addFindings makes the counters of findings by rule and severity.
func (r *Registry) addFindings(shard string, rules map[string][]events.Severity) vector {
	shown := func(rule, severity string) bool { return slices.Contains(rules[rule], events.Severity(severity)) }
	return r.addVector(descFindings, shard, shown, slices.Collect(maps.Keys(rules)), severities)
}

// Follow sets the function that reads the end of the log.
func (c *Correlator) Follow(head Head) {
	c.lag.setHead(head)
}

// Read reports that n messages were read, up to sequence seq, what is in memory now, and how many
// open calls were forgotten so far.
func (c *Correlator) Read(n int, seq uint64, open, known, sessions int, forgotten uint64) {
	c.messages.Add(float64(n))
	c.lag.done.Store(seq)
	c.open.Set(float64(open))
	c.known.Set(float64(known))
	c.sessions.Set(float64(sessions))
	c.forgotten.Store(forgotten)
}

// Undecided reports since when the oldest undecided call is known, the zero time if there is
// none.
func (c *Correlator) Undecided(since time.Time) {
	c.undecided.Store(&since)
}

// undecidedAge is the age of the oldest undecided call.
func (c *Correlator) undecidedAge() (float64, bool) {
	since := c.undecided.Load()
	if since == nil || since.IsZero() {
		return 0, since != nil
	}
	return max(0, time.Since(*since).Seconds()), true
}

// Put counts a record that is written to the log: a call record by its state, or a finding. Both
// are empty for a record that was made before a restart.
func (c *Correlator) Put(state events.CallState, f *events.Finding) {
	c.outputs.Inc()
	switch {
	case f == nil && state != "":
		c.calls.with(string(state)).Inc()
	case f == nil:
	case f.Retracts != "":
		c.retracted.Inc()
	default:
		c.findings.with(f.Rule, string(f.Severity)).Inc()
	}
}
