package tally

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

var tallyStart = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const tallyTenant = "tenant-part-" // as long as the part of a key that a tenant has

func counted(key string, window time.Duration, amount, limit int64) []policy.Count {
	return []policy.Count{{Key: tallyTenant + key, Window: window, Amount: amount, Max: limit}}
}

func storedDecision(id string, at time.Time, counts ...policy.Count) events.Decision {
	return events.Decision{DecisionID: id, Verdict: events.Allow, DecidedAt: events.At(at), Counts: policy.RecordCounts(counts)}
}

func (l *Tally) expect(t testing.TB, key string, window time.Duration, now time.Time, want string) {
	t.Helper()
	total, known := l.Total(tallyTenant+key, window, now)
	if got := fmt.Sprint(total, known); got != want {
		t.Errorf("%s: %s, want %s", key, got, want)
	}
}

func TestTally(t *testing.T) {
	l := New(policy.MaxWindow)
	minute := time.Minute
	l.expect(t, "a", minute, tallyStart, "0 true")
	if !l.Reserve("d1", counted("a", minute, 3, 5), tallyStart) || l.Reserve("d2", counted("a", minute, 3, 5), tallyStart) {
		t.Error("a limit of 5 holds 3, and not 6")
	}
	l.expect(t, "a", minute, tallyStart, "3 true")
	if !l.Reserve("d3", counted("a", minute, 2, 5), tallyStart) || !l.Reserve("d4", counted("a", minute, 9, policy.Unbounded), tallyStart) {
		t.Error("room was refused")
	}
	l.expect(t, "a", minute, tallyStart, "14 true")
	l.Release("d4")
	l.Release("d4")
	l.Release("nobody")
	l.expect(t, "a", minute, tallyStart, "5 true")
	// An own decision comes back from the log once; another admitter's counts.
	now := tallyStart.Add(time.Second)
	l.AddRecorded(storedDecision("d1", tallyStart, counted("a", minute, 3, 0)...), tallyStart, now)
	l.expect(t, "a", minute, now, "5 true")
	l.AddRecorded(storedDecision("x1", tallyStart, counted("a", minute, 4, 0)...), tallyStart, now)
	l.expect(t, "a", minute, now, "9 true")
	l.Release("d1")
	l.expect(t, "a", minute, now, "9 true")
	// All of it is gone after the window, and not before.
	l.expect(t, "a", minute, tallyStart.Add(minute), "9 true")
	l.expect(t, "a", minute, tallyStart.Add(minute+2*time.Second), "0 true")
	// All counters of a call or none.
	two := append(counted("b", minute, 1, 5), counted("c", minute, 9, 5)...)
	if l.Reserve("d5", two, now) {
		t.Error("taken")
	}
	l.expect(t, "b", minute, now, "0 true")
}

// TestTallyCountsWhatWasNotReserved: the total of a trial was not known when the decision was made, so that the
// call did not reserve its count.
func TestTallyCountsWhatWasNotReserved(t *testing.T) {
	l, now := New(policy.MaxWindow), tallyStart.Add(time.Second)
	reserved, trial := counted("a", time.Minute, 3, 5), counted("b", time.Minute, 7, policy.Unbounded)
	l.Reserve("d", reserved, tallyStart)
	l.AddRecorded(storedDecision("d", tallyStart, append(reserved, trial...)...), tallyStart, now)
	l.expect(t, "a", time.Minute, now, "3 true")
	l.expect(t, "b", time.Minute, now, "7 true")
}

func TestTallyMindsClocks(t *testing.T) {
	minute := time.Minute
	for name, c := range map[string]struct {
		decided, stored time.Duration
		gone            time.Duration // from when on it counts no longer
	}{
		"equal":             {0, 0, minute},
		"decider is behind": {-30 * time.Second, 0, minute},
		"broker is behind":  {0, -30 * time.Second, minute},
		"decider is ahead":  {time.Hour, 0, minute},
	} {
		l := New(policy.MaxWindow)
		l.AddRecorded(storedDecision("x", tallyStart.Add(c.decided), counted("a", minute, 1, 0)...), tallyStart.Add(c.stored), tallyStart)
		if total, _ := l.Total(tallyTenant+"a", minute, tallyStart.Add(c.gone-time.Second)); total != 1 {
			t.Errorf("%s: gone too early", name)
		}
		if total, _ := l.Total(tallyTenant+"a", minute, tallyStart.Add(c.gone+2*time.Second)); total != 0 {
			t.Errorf("%s: gone too late", name)
		}
	}
	l := New(policy.MaxWindow)
	for i, d := range []events.Decision{
		{Counts: []events.Count{{Key: tallyTenant + "a", WindowMS: -1, Amount: 1}}}, {Counts: []events.Count{{Key: tallyTenant + "a", WindowMS: 60_000, Amount: -5}}},
		{Counts: []events.Count{{Key: tallyTenant + "a", WindowMS: 1 << 60, Amount: 1}}}, {Counts: []events.Count{{WindowMS: 60_000, Amount: 1}}},
	} {
		d.DecisionID, d.DecidedAt = fmt.Sprint(i), events.At(tallyStart)
		l.AddRecorded(d, tallyStart, tallyStart)
	}
	l.expect(t, "a", minute, tallyStart, "0 true")
}

// A tenant that has too many counters is told that its new ones are not known;
// others are not.
func TestTallyIsBounded(t *testing.T) {
	l := New(policy.MaxWindow)
	for i := range maxTenantCounters {
		if !l.Reserve(fmt.Sprint(i), counted(fmt.Sprint(i), time.Minute, 1, policy.Unbounded), tallyStart) {
			t.Fatal(i)
		}
		l.AddRecorded(storedDecision(fmt.Sprint(i), tallyStart), tallyStart, tallyStart)
	}
	l.expect(t, "0", time.Minute, tallyStart, "1 true")
	l.expect(t, "new", time.Minute, tallyStart, "0 false")
	if l.Reserve("one more", counted("new", time.Minute, 1, policy.Unbounded), tallyStart) || !l.Reserve("known", counted("0", time.Minute, 1, policy.Unbounded), tallyStart) {
		t.Error("the bound does not hold, or holds for counters that are there")
	}
	if _, known := l.Total("another-one-new", time.Minute, tallyStart); !known {
		t.Error("another tenant suffers")
	}
	// What was left out while it was full is not taken for zero afterwards.
	l.AddRecorded(storedDecision("x", tallyStart, counted("left out", time.Minute, 7, 0)...), tallyStart, tallyStart)
	before := New(policy.MaxWindow)
	before.Reserve("inherited", counted("inherited", 2*time.Minute, 7, policy.Unbounded), tallyStart)
	l.InheritPending(before)
	later := tallyStart.Add(time.Minute + 30*time.Second)
	l.Reserve("sweep", counted("s", time.Minute, 1, policy.Unbounded), later)
	if len(l.tenants[tallyTenant].byKey) > 2 {
		t.Errorf("%d counters were kept", len(l.tenants[tallyTenant].byKey))
	}
	l.expect(t, "left out", time.Minute, later, "0 false")
	l.expect(t, "inherited", 2*time.Minute, tallyStart.Add(4*time.Minute-time.Second), "0 false")
	l.expect(t, "left out", time.Minute, tallyStart.Add(4*time.Minute), "0 true")
	for i := range maxPendingDecisions {
		l.pending[fmt.Sprint("u", i)] = pendingDecision{at: later}
	}
	l.expect(t, "s", time.Minute, later, "0 false")
	l.AddRecorded(storedDecision("y", later, counted("s", time.Minute, 1, 0)...), later, later.Add(pendingFor+time.Second))
	if len(l.pending) > 0 {
		t.Errorf("%d own decisions are still waited for", len(l.pending))
	}
}

func TestTallyInherits(t *testing.T) {
	old, l := New(policy.MaxWindow), New(policy.MaxWindow)
	old.Reserve("d1", counted("a", time.Minute, 3, 9), tallyStart)
	old.Reserve("d2", counted("a", time.Minute, 4, 9), tallyStart)
	old.AddRecorded(storedDecision("d2", tallyStart), tallyStart, tallyStart)
	l.AddRecorded(storedDecision("d2", tallyStart, counted("a", time.Minute, 4, 0)...), tallyStart, tallyStart)
	l.InheritPending(old)
	l.expect(t, "a", time.Minute, tallyStart, "7 true")
	if old.Reserve("d3", counted("a", time.Minute, 1, 9), tallyStart) {
		t.Error("reserved in a tally that nothing inherits from any more")
	}
	l.AddRecorded(storedDecision("d1", tallyStart, counted("a", time.Minute, 3, 0)...), tallyStart, tallyStart)
	l.expect(t, "a", time.Minute, tallyStart, "7 true")
}

func TestTallyNeverExceedsUnderConcurrency(t *testing.T) {
	l := New(policy.MaxWindow)
	var took sync.Map
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if l.Reserve(fmt.Sprint(i), counted("a", time.Minute, 2, 21), tallyStart) {
				took.Store(i, true)
			}
		})
	}
	wg.Wait()
	n := 0
	took.Range(func(any, any) bool { n++; return true })
	if n != 10 {
		t.Errorf("%d calls of 2 were allowed with a limit of 21", n)
	}
}

// Against a model that remembers everything: an addition counts for its whole
// window, and never for more than a sixtieth longer.
func TestTallyIsAWindow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 7 * time.Hour}).Draw(rt, "window")
		type addition struct {
			at     time.Time
			amount int64
		}
		var all []addition
		l, now := New(policy.MaxWindow), tallyStart
		for i := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(window)/3).Draw(rt, "wait")))
			amount := rapid.Int64Range(0, 100).Draw(rt, "amount")
			l.Reserve(fmt.Sprint(i), counted("a", window, amount, policy.Unbounded), now)
			all = append(all, addition{now, amount})
			var least, most int64
			for _, a := range all {
				if now.Sub(a.at) <= window {
					least += a.amount
				}
				if now.Sub(a.at) <= window+window/policy.WindowSlots+time.Nanosecond {
					most += a.amount
				}
			}
			if total, known := l.Total(tallyTenant+"a", window, now); !known || total < least || total > most {
				rt.Fatalf("%d, and it must be between %d and %d", total, least, most)
			}
		}
	})
}
