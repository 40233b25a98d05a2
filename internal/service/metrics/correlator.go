package metrics

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/events"
)

var states = []string{string(events.CallOpen), string(events.CallCompleted), string(events.CallFailed), string(events.CallDenied),
	string(events.CallAbandoned), string(events.CallOrphaned)}

var severities = []string{string(events.SeverityInfo), string(events.SeverityLow), string(events.SeverityMedium), string(events.SeverityHigh),
	string(events.SeverityCritical)}

// Correlator is the set of a correlator's metrics on one shard.
type Correlator struct {
	messages, outputs, retracted Counter
	forgotten                    Counter // counted by the correlator
	calls, findings              *Vector
	open, known, sessions        Gauge
	undecided                    atomic.Pointer[time.Time]
	lag                          readerLag
}

// Correlator returns the metrics of a shard's correlator. rules has all rules, with the severities that have a
// counter from the start, so that an alert sees the first finding, too.
func (r *Registry) Correlator(shard string, rules map[string][]events.Severity) *Correlator {
	return once(r, "correlator of "+shard, func(r *Registry) *Correlator {
		c := &Correlator{calls: countersOf(descCalls), findings: findingsOf(rules)}
		r.addCounter(descMessages, shard, &c.messages)
		r.addCounter(descOutputs, shard, &c.outputs)
		r.addCounter(descRetracted, shard, &c.retracted)
		r.addCounter(descForgotten, shard, &c.forgotten)
		r.addVector(descCalls, shard, c.calls)
		r.addVector(descFindings, shard, c.findings)
		for d, g := range map[*familyDesc]*Gauge{&descOpen: &c.open, &descKnown: &c.known, &descSessions: &c.sessions} {
			r.addGauge(*d, shard, func() (float64, bool) { return float64(g.n.Load()), true })
		}
		r.addGauge(descUndecided, shard, c.undecidedAge)
		r.addGauge(descCorrLag, shard, c.lag.messagesBehind)
		r.addGauge(descCorrAge, shard, c.lag.secondsBehind)
		return c
	})
}

// findingsOf makes the counters of findings by rule and severity.
func findingsOf(rules map[string][]events.Severity) *Vector {
	v := newVector(slices.Sorted(maps.Keys(rules)), severities)
	v.hiddenAtZero = func(v []string) bool { return !slices.Contains(rules[v[0]], events.Severity(v[1])) }
	return v
}

// Follow sets the function that reads the end of the log.
func (c *Correlator) Follow(head Head) {
	c.lag.setHead(head)
}

// Read reports that n messages were read, up to sequence seq, what is in memory now, and how many
// open calls were forgotten so far.
func (c *Correlator) Read(n int, seq uint64, open, known, sessions int, forgotten uint64) {
	c.messages.Add(uint64(n))
	c.lag.done.Store(seq)
	c.open.Set(int64(open))
	c.known.Set(int64(known))
	c.sessions.Set(int64(sessions))
	c.forgotten.n.Store(forgotten)
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
		c.calls.With(string(state)).Inc()
	case f == nil:
	case f.Retracts != "":
		c.retracted.Inc()
	default:
		c.findings.With(f.Rule, string(f.Severity)).Inc()
	}
}
