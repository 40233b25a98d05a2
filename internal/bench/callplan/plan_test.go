package callplan

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// TestScheduleIsOpen: a call is due at a time that depends on its number alone, and the last one
// of a minute is due within it.
func TestScheduleIsOpen(t *testing.T) {
	s := Schedule{noon, 300}
	for i, want := range map[int]time.Duration{0: 0, 3: 10 * time.Millisecond, 300: time.Second, 17_999: time.Minute - time.Second/300} {
		if got := s.Due(i).Sub(noon); (got - want).Abs() > time.Microsecond {
			t.Errorf("call %d is due after %s, not %s", i, got, want)
		}
	}
	if n := s.Count(time.Minute); n != 18_000 {
		t.Errorf("%d calls a minute at 300 a second", n)
	}
	if half := (Schedule{noon, 0.5}); half.Count(time.Minute) != 30 || half.Due(1).Sub(noon) != 2*time.Second {
		t.Error("a rate below one a second")
	}
}

// TestShares: of a hundred calls 5 are denied, 1 is approved and 1 drifts, wherever they begin.
func TestShares(t *testing.T) {
	for _, from := range []int{0, 1, 57, 1_000_003} {
		count := map[Kind]int{}
		for i := range kindCycle {
			count[KindOf(from+i)]++
		}
		if count[Denied] != 5 || count[Approved] != 1 || count[Drifted] != 1 || count[Allowed] != 93 {
			t.Errorf("from %d on: %v", from, count)
		}
	}
}

// TestSessions: every session has callsSession calls, and at no time are more open than said.
func TestSessions(t *testing.T) {
	const open = 7
	calls, last := map[int]int{}, map[int]int{}
	for i := range 10 * open * callsSession {
		s := sessionOf(i, open)
		calls[s]++
		last[s] = i
	}
	for s, n := range calls {
		if n != callsSession {
			t.Errorf("session %d has %d calls", s, n)
		}
		if next := s + open; last[next] > 0 && last[s] > last[next] {
			t.Errorf("session %d is still open when %d ends", s, next)
		}
	}
	if len(calls) != 10*open {
		t.Errorf("%d sessions", len(calls))
	}
}

// TestVariants: a plain request has some 480 B, a governed one 1.8 KB.
func TestVariants(t *testing.T) {
	for variant, want := range map[Variant]int{Plain: 480, Governed: 1800} {
		x := Texts{Variant: variant, Run: 1, Open: 5}
		if n := len(x.Request(0, noon)); n < want*8/10 || n > want*12/10 {
			t.Errorf("%s: %d B", variant, n)
		}
	}
}

// TestRunsShareNoName: two runs on one log have no event, call, session or resource under approval
// in common, which would be findings.
func TestRunsShareNoName(t *testing.T) {
	first, second := Texts{Variant: Plain, Run: 1, Open: 5}, Texts{Variant: Plain, Run: 2, Open: 5}
	for i := range kindCycle {
		if first.eventID(i, "a") == second.eventID(i, "a") || first.callID(i) == second.callID(i) || first.Session(i) == second.Session(i) ||
			KindOf(i) == Approved && first.describedAction(i) == second.describedAction(i) {
			t.Errorf("call %d is the same in two runs", i)
		}
	}
}

// TestDrift: what ran differs from what was asked for in the calls that drift, and in no other.
func TestDrift(t *testing.T) {
	x := Texts{Variant: Plain, Run: 1, Open: 5}
	for i := range kindCycle {
		same := strings.Contains(string(x.Post(i, noon, Ruling{})), x.arguments(i))
		if same == (KindOf(i) == Drifted) {
			t.Errorf("call %d of kind %d: the same arguments: %v", i, KindOf(i), same)
		}
	}
}
