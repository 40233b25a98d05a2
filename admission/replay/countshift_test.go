package replay

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// counted is the counters of an admitter: what each call of verdict allow added, and when.
type counted map[string][]addition

type addition struct {
	at     time.Time
	amount int64
}

func (c counted) Total(key string, window time.Duration, now time.Time) (total int64, known bool) {
	for _, a := range c[key] {
		if policy.WindowSlot(window, a.at) >= policy.WindowSlot(window, now)-policy.WindowSlots {
			total += a.amount
		}
	}
	return total, true
}

// decide makes one decision, as an admitter does, and counts it.
func (c counted) decide(t testing.TB, snap *admission.Config, name string, at time.Time) Record {
	r := record(t, "tool", tool(name), snap, func(in *admission.Inputs) { in.Now, in.Counters = at, c })
	if r.Decision.Verdict == events.Allow {
		for _, n := range r.Decision.Counts {
			c[n.Key] = append(c[n.Key], addition{at, n.Amount})
		}
	}
	return r
}

// simulated is what a candidate makes of decisions in their order.
func simulated(records []Record, old, candidate *admission.Config) (list []Outcome) {
	shift := &CountShift{}
	for _, r := range records {
		c := Decide(r.Enforced(), candidate, KnownState{Counts: shift})
		out := CandidateOutcome(r.Decision, Decide(r, old, KnownState{}), c)
		shift.Add(r.Decision, c, out)
		list = append(list, out)
	}
	return list
}

// A limit that the candidate raises or lowers lets through, in sum, what it would have let through then.
func TestChangedLimitOverADay(t *testing.T) {
	for _, c := range []struct {
		name, then, now, verdict string
		want                     map[string]int // "old new", of 100 calls within the window
	}{
		{"raised", "10", "20", "deny", map[string]int{"allow allow": 10, "deny allow": 10, "deny deny": 80}},
		{"lowered", "20", "10", "deny", map[string]int{"allow allow": 10, "allow deny": 10, "deny deny": 80}},
		{"raised, and asks", "10", "20", "ask", map[string]int{"allow allow": 10, "ask allow": 10, "ask ask": 80}},
		{"lowered, and asks", "20", "10", "ask", map[string]int{"allow allow": 10, "allow ask": 10, "ask ask": 80}},
	} {
		t.Run(c.name, func(t *testing.T) {
			asks := []string{"verdict: deny\n      reason: too_often", "verdict: " + c.verdict + "\n      reason: too_often"}
			old, candidate := snapshot(t, append(asks, "MAX", c.then)...), snapshot(t, append(asks, "MAX", c.now)...)
			var records []Record
			then := counted{}
			for n := range 100 {
				records = append(records, then.decide(t, old, "fetch", now.Add(time.Duration(n)*time.Second)))
			}
			got := map[string]int{}
			for i, out := range simulated(records, old, candidate) {
				got[fmt.Sprint(records[i].Decision.Verdict, " ", out.Verdict)]++
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// Whatever is asked when, the simulation of a candidate gives the verdicts that the candidate gives if it
// decides the same calls itself, or says that it does not know. Without people to ask it always knows.
func TestSimulationIsWhatHappens(t *testing.T) {
	compiled := map[string]*admission.Config{}
	compile := func(edits []string) *admission.Config {
		name := fmt.Sprint(edits)
		if compiled[name] == nil {
			compiled[name] = snapshot(t, edits...)
		}
		return compiled[name]
	}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(what string) []string {
			return []string{
				"MAX", fmt.Sprint(rapid.SampledFrom([]int{0, 2, 5}).Draw(rt, what+" max")),
				"verdict: deny\n      reason: too_often", "verdict: " + rapid.SampledFrom([]string{"deny", "deny", "ask"}).Draw(rt, what+" verdict") + "\n      reason: too_often",
				`tool == "fetch"`, rapid.SampledFrom([]string{`tool == "fetch"`, `tool in ["fetch", "book_flight"]`}).Draw(rt, what+" counts"),
				`["fetch", "book_flight"]`, rapid.SampledFrom([]string{`["fetch", "book_flight"]`, `["fetch"]`}).Draw(rt, what+" allows"),
			}
		}
		oldEdits, newEdits := draw("old"), draw("new")
		old, candidate := compile(oldEdits), compile(newEdits)
		then, own := counted{}, counted{}
		var records []Record
		var want []events.Verdict
		for n, at := 0, now; n < rapid.IntRange(5, 25).Draw(rt, "calls"); n++ {
			at = at.Add(time.Duration(rapid.IntRange(1, 20).Draw(rt, "minutes")) * time.Minute)
			name := rapid.SampledFrom([]string{"fetch", "fetch", "book_flight"}).Draw(rt, "tool")
			records = append(records, then.decide(t, old, name, at))
			want = append(want, own.decide(t, candidate, name, at).Decision.Verdict)
		}
		exact := oldEdits[3] == newEdits[3] && oldEdits[5] == newEdits[5] && oldEdits[3] == "verdict: deny\n      reason: too_often"
		for i, out := range simulated(records, old, candidate) {
			if len(out.Unknown) == 0 && out.Verdict != want[i] || len(out.Unknown) > 0 && exact {
				rt.Fatalf("call %d: %s %v, but the candidate gives %s\nold %q\nnew %q", i, out.Verdict, out.Unknown, want[i], oldEdits, newEdits)
			}
		}
	})
}

// Without its request a decision may have been allowed or not: what counts it is known between bounds.
func TestCountShiftOfWhatCannotBeReplayed(t *testing.T) {
	old, candidate := snapshot(t, "MAX", "10"), snapshot(t, "MAX", "1")
	then := counted{}
	first, second := then.decide(t, old, "fetch", now), then.decide(t, old, "fetch", now.Add(time.Second))
	shift := &CountShift{}
	shift.Add(first.Decision, Result{}, Outcome{Unknown: []string{"gone"}})
	if got := Decide(second, candidate, KnownState{Counts: shift}); len(got.Unknown) != 1 || got.Unknown[0] != notCertain {
		t.Errorf("after a call that cannot be replayed: %v", got.Unknown)
	}
	second.Decision.DecidedAt = events.At(now.Add(time.Hour + 2*time.Minute))
	if got := Decide(second, candidate, KnownState{Counts: shift}); len(got.Unknown) != 0 {
		t.Errorf("an hour later: %v", got.Unknown)
	}
}

// A counter whose steps no longer count takes no room: a limit by session has one for each session.
func TestForgottenCounters(t *testing.T) {
	shift := &CountShift{}
	for i := range 20 * sweepFrom {
		r := events.Decision{Verdict: events.Deny, DecidedAt: events.At(now.Add(time.Duration(i) * time.Second)), Counts: []events.Count{{Key: fmt.Sprint(i), Amount: 1, WindowMS: 60_000}}}
		shift.Add(r, Result{}, Outcome{Verdict: events.Allow})
	}
	if n := len(shift.counters); n > sweepFrom {
		t.Errorf("%d counters are kept", n)
	}
	last := now.Add(20 * sweepFrom * time.Second)
	if got := shift.of(fmt.Sprint(20*sweepFrom-30), last); got != (shifted{1, 1}) {
		t.Errorf("one within its window is %v", got)
	}
}
