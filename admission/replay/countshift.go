package replay

import (
	"maps"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// CountShift is by how much the counters of a candidate's limits differ from the recorded totals, because
// the candidate would have allowed other calls before. The zero CountShift is that of a candidate that comes
// into force. One goroutine uses it.
type CountShift struct {
	counters map[string]*counterShift
	left     int // counters after the last sweep
}

// counterShift is the shift of one counter.
type counterShift struct {
	window time.Duration
	steps  []shiftStep // within the window, in the order of the log
	sum    shifted     // of the steps
}

// shiftStep is what one decision adds to a shift.
type shiftStep struct {
	slot int64 // of the counter's window
	shifted
}

// shifted is a difference that is known to lie between two numbers, both included.
type shifted struct{ low, high int64 }

// Add takes in the next decision of the log, with what the candidate makes of it. candidate may be zero
// for a decision that cannot be replayed at all.
func (f *CountShift) Add(recorded events.Decision, candidate Result, out Outcome) {
	steps := map[string]shifted{}
	windows := map[string]time.Duration{}
	counts := candidate.Decision.Counts
	if candidate.Decision.DecisionID == "" {
		counts = recorded.Counts
	}
	for _, c := range counts {
		steps[c.Key], windows[c.Key] = countedBy(recorded, out, c.Amount), windowOf(c)
	}
	if recorded.Verdict == events.Allow {
		for _, c := range recorded.Counts {
			if c.Total >= 0 { // otherwise nothing was counted
				s := steps[c.Key]
				steps[c.Key], windows[c.Key] = shifted{s.low - c.Amount, s.high - c.Amount}, windowOf(c)
			}
		}
	}
	for key, s := range steps {
		if s != (shifted{}) {
			f.add(key, windows[key], recorded.DecidedAt.Time, s)
		}
	}
}

func windowOf(c events.Count) time.Duration { return time.Duration(c.WindowMS) * time.Millisecond }

// countedBy is what a decision adds to a counter of the candidate.
func countedBy(recorded events.Decision, out Outcome, amount int64) shifted {
	switch {
	case out.Verdict == events.Allow:
		return shifted{amount, amount}
	case out.Verdict == events.Deny, out.Verdict == recorded.Verdict: // an ask that was approved has another record
		return shifted{}
	}
	return shifted{0, amount} // a person may approve it, or its outcome is not known
}

func (f *CountShift) add(key string, window time.Duration, now time.Time, s shifted) {
	c := f.counters[key]
	if c == nil {
		f.sweep(now)
		c = &counterShift{window: window}
		f.counters[key] = c
	}
	c.forget(now)
	c.steps = append(c.steps, shiftStep{policy.WindowSlot(window, now), s})
	c.sum.low, c.sum.high = c.sum.low+s.low, c.sum.high+s.high
}

// sweepFrom is the number of counters from which on a CountShift looks for those without steps.
const sweepFrom = 1024

// sweep makes room for a counter: once the counters have doubled, it drops those whose steps no longer count.
// A limit by session has one for each session.
func (f *CountShift) sweep(now time.Time) {
	if f.counters == nil {
		f.counters = map[string]*counterShift{}
	}
	if len(f.counters) < max(sweepFrom, 2*f.left) {
		return
	}
	maps.DeleteFunc(f.counters, func(_ string, c *counterShift) bool {
		c.forget(now)
		return len(c.steps) == 0
	})
	f.left = len(f.counters)
}

// forget drops the steps that do not count any more.
func (c *counterShift) forget(now time.Time) {
	first := policy.WindowSlot(c.window, now) - policy.WindowSlots
	for len(c.steps) > 0 && c.steps[0].slot < first {
		c.sum.low, c.sum.high = c.sum.low-c.steps[0].low, c.sum.high-c.steps[0].high
		c.steps = c.steps[1:]
	}
}

// of is the shift of a counter at a time. A nil CountShift has none.
func (f *CountShift) of(key string, now time.Time) shifted {
	if f == nil || f.counters[key] == nil {
		return shifted{}
	}
	f.counters[key].forget(now)
	return f.counters[key].sum
}
