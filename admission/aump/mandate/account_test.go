package mandate

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

const (
	start  = int64(1_795_000_000_000) // Unix milliseconds
	second = int64(1000)
)

// ticket is an admission under a budget of 1000 with a receipt for a minute; no
// call, no id.
func ticket(decision, call string, amount int64) ReserveRequest {
	t := ReserveRequest{Decision: decision, After: 10, Now: start, Expires: start + 60*second, Session: "s1"}
	t.Amount, t.Budget, t.ToolCallID = amount, 1000, call
	if call != "" {
		t.Key, t.Call = fmt.Sprintf("p-%s-%d", call, amount), "c-"+call
	}
	return t
}

// later is the same admission at another time.
func (t ReserveRequest) later(after int64) ReserveRequest {
	t.Now, t.Expires = t.Now+after, t.Expires+after
	return t
}

func must(t testing.TB, a Account, tickets ...ReserveRequest) Account {
	t.Helper()
	for _, x := range tickets {
		var err error
		if a, _, err = a.Reserve(x); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// textAt is an account in short: settled and reserved money, and its entries. An
// attempt that is over has a full stop.
func textAt(a Account, now int64) string {
	s := a.Spend("", now)
	out := fmt.Sprintf("%d+%d", s.Settled, s.Reserved)
	for _, e := range a.Allowances {
		out += fmt.Sprintf(" %s:", e.State)
		for i, x := range e.Decisions {
			if i > 0 {
				out += ","
			}
			if out += x.Decision; x.Over {
				out += "."
			}
		}
		out += fmt.Sprintf(":%d", e.Amount)
	}
	return out
}

func text(a Account) string { return textAt(a, start) }

// end is the end of an occurrence, 30 seconds after the start; named are the
// decisions on it, the last one the verdict that counts.
func end(effect Effect, call string, occurrence int, seq uint64, named ...string) CallEnd {
	h := fnv.New64()
	_, _ = fmt.Fprint(h, call, " ", occurrence)
	e := CallEnd{Effect: effect, Call: "c-" + call, Seq: seq, Began: h.Sum64(), Now: start + 30*second, Named: named, Exact: true}
	if len(named) > 0 {
		e.Decision = named[len(named)-1]
	}
	return e
}

func TestReserve(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tickets []ReserveRequest
		want    string
		err     error
	}{
		{"within", []ReserveRequest{ticket("d1", "1", 400), ticket("d2", "2", 600)}, "0+1000 reserved:d1:400 reserved:d2:600", nil},
		{"one too much", []ReserveRequest{ticket("d1", "1", 400), ticket("d2", "2", 601)}, "0+400 reserved:d1:400", ErrOverBudget},
		{"the same proposal again", []ReserveRequest{ticket("d1", "1", 600), ticket("d2", "1", 600)}, "0+600 reserved:d1,d2:600", nil},
		{"again after its receipt has expired", []ReserveRequest{ticket("d1", "1", 600), ticket("d2", "1", 600).later(100 * second)}, "0+600 reserved:d1,d2:600", nil},
		{"again after long", []ReserveRequest{ticket("d1", "1", 400), ticket("d2", "1", 400).later(ShareWindow)}, "0+800 reserved:d1:400 reserved:d2:400", nil},
		{"another amount under the same call is another proposal", []ReserveRequest{ticket("d1", "1", 500), ticket("d2", "1", 400)}, "0+900 reserved:d1:500 reserved:d2:400", nil},
		{"without a call it counts for good", []ReserveRequest{ticket("d1", "", 300), ticket("d2", "", 300)}, "600+0", nil},
		{"and each time", []ReserveRequest{ticket("d1", "", 600), ticket("d2", "", 600)}, "600+0", ErrOverBudget},
		{"no wrapping around", []ReserveRequest{ticket("d1", "1", 1), ticket("d2", "2", 1<<62)}, "0+1 reserved:d1:1", ErrOverBudget},
	} {
		var a Account
		var err error
		for _, x := range tc.tickets {
			var next Account
			if next, _, err = a.Reserve(x); err == nil {
				a = next
			}
		}
		if text(a) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %s %v, want %s %v", tc.name, text(a), err, tc.want, tc.err)
		}
	}
}

// Receipts of one reservation say that they are one, and none of them outlives it.
func TestAllowance(t *testing.T) {
	a, first, err := Account{}.Reserve(ticket("d1", "1", 600))
	if err != nil || first.ID != "d1" || first.Until != start+ShareWindow {
		t.Errorf("%+v, %v", first, err)
	}
	_, again, err := a.Reserve(ticket("d2", "1", 600).later(ShareWindow - 30*second))
	if err != nil || again != first {
		t.Errorf("%+v, %v", again, err)
	}
	_, other, err := a.Reserve(ticket("d3", "2", 400))
	if err != nil || other.ID != "d3" {
		t.Errorf("%+v, %v", other, err)
	}
	if _, none, err := a.Reserve(ticket("d4", "", 1)); err != nil || none != (ReceiptTerms{}) {
		t.Errorf("%+v, %v", none, err)
	}
	long := ticket("d1", "1", 600)
	long.Expires = start + 2*ShareWindow
	if _, got, err := (Account{}).Reserve(long); err != nil || got.Until != long.Expires {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLedgerIsBounded(t *testing.T) {
	a := Account{V: AccountVersion}
	for i := range MaxOpen {
		a.Allowances = append(a.Allowances, must(t, Account{}, ticket(fmt.Sprint("d", i), fmt.Sprint(i), 1)).Allowances...)
	}
	x, again := ticket("d", "more", 1), ticket("d'", "7", 1)
	x.Budget, again.Budget = 1<<40, 1<<40
	if _, _, err := a.Reserve(x); !errors.Is(err, ErrLedgerFull) || !a.Spend(x.Key, start).Full {
		t.Error(err, a.Spend(x.Key, start).Full)
	}
	if a = must(t, a, again); a.Spend(again.Key, start).Full {
		t.Error("asking again is refused")
	}
	for i := range MaxDecisions - MaxOpen - 1 {
		a.Allowances[7].Decisions = append(a.Allowances[7].Decisions, AllowedDecision{Decision: fmt.Sprint("again", i)})
	}
	if _, _, err := a.Reserve(again); !errors.Is(err, ErrLedgerFull) || !a.Spend(again.Key, start).Full {
		t.Error("one call is asked for without end:", err)
	}
	for i := range MaxOpen {
		a, _ = a.ApplyEnd(end(Settle, fmt.Sprint(i), 1, uint64(100+i), fmt.Sprint("d", i)))
	}
	if a = a.Pruned(start + 31*second); len(a.Allowances) != maxClosed || a.Spend("", start).Settled != MaxOpen {
		t.Errorf("%d entries, %+v", len(a.Allowances), a.Spend("", start))
	}
	if a = a.Pruned(start + 61*second + Retention); len(a.Allowances) != 0 || a.Settled != MaxOpen {
		t.Errorf("%d entries, %+v", len(a.Allowances), a.Spend("", start))
	}
}

// A completion after a failure counts for an hour after the release, if the call is among the last maxClosed ones that ended
// under the mandate: docs/mandates.md states both bounds.
func TestLateReports(t *testing.T) {
	const minute = 60 * second
	for name, c := range map[string]struct {
		others int    // calls that fail meanwhile
		ends   uint64 // the record of the failure; those of the others begin at 101
		after  int64  // when the completion comes
		want   int64  // what is spent
	}{
		"at once":                                {0, 100, 2 * minute, 700},
		"within the hour":                        {maxClosed - 1, 100, 59 * minute, 700},
		"after the hour":                         {0, 100, 63 * minute, 0},
		"after many other calls":                 {maxClosed, 100, 20 * minute, 0},
		"after many other calls, and ended last": {maxClosed, 900, 20 * minute, 700},
	} {
		t.Run(name, func(t *testing.T) {
			a := must(t, Account{V: AccountVersion}, ticket("d", "late", 700))
			if c.ends < 101 {
				a, _ = a.ApplyEnd(end(Release, "late", 1, c.ends, "d"))
			}
			a = a.Pruned(start + 2*minute) // its receipt is over
			for i := range c.others {
				id, seq := fmt.Sprint("other", i), uint64(101+i)
				x := ticket(id, id, 1).later(2 * minute)
				x.Session = fmt.Sprint("s", i%4)
				a = must(t, a, x)
				failed := end(Release, id, 1, seq, id)
				failed.Now += 2 * minute
				a, _ = a.ApplyEnd(failed)
			}
			if c.ends > 101 {
				a = a.Pruned(start + 4*minute)
				failed := end(Release, "late", 1, c.ends, "d")
				failed.Now = start + 5*minute
				a, _ = a.ApplyEnd(failed)
			}
			a = a.Pruned(start + c.after)
			completed := end(Settle, "late", 1, 1000, "d")
			completed.Now = start + c.after
			a, _ = a.ApplyEnd(completed)
			if got := a.Spend("", start+c.after); got.Settled != c.want {
				t.Errorf("%d is spent, want %d", got.Settled, c.want)
			}
		})
	}
}

// What one session, or one publisher, leaves open keeps neither others from reserving
// nor its own calls that share a reservation.
func TestLedgerIsSharedAmongCallers(t *testing.T) {
	of := func(caller, session string, i int) ReserveRequest {
		x := ticket(fmt.Sprint("d", caller, session, i), fmt.Sprint(caller, session, i), 1)
		x.Budget, x.Publisher, x.Session = 1<<40, caller, session
		return x
	}
	fill := func(a Account, caller, session string, want int) Account {
		t.Helper()
		for i := 0; ; i++ {
			x := of(caller, session, i)
			full := a.FullFor(x.Key, caller, session, start)
			next, _, err := a.Reserve(x)
			if full != errors.Is(err, ErrLedgerFull) || err != nil && !full || i > MaxOpen {
				t.Fatalf("reservation %d of %s in %s: %v, full %t", i, caller, session, err, full)
			}
			if full {
				if i != want {
					t.Errorf("%s has %d reservations in %s, want %d", caller, i, session, want)
				}
				return a
			}
			a = next
		}
	}
	a := fill(Account{V: AccountVersion}, "c1", "s1", MaxOpenOfSession)
	a = fill(a, "c1", "s2", MaxOpenOfPublisher-MaxOpenOfSession)
	a = fill(a, "c1", "s3", 0)
	a = fill(a, "c2", "s1", MaxOpenOfSession)
	a = must(t, a, of("c1", "s1", 0), of("c3", "s1", 0))
	for i := range MaxDecisionsOfPublisher {
		a.Allowances[0].Decisions = append(a.Allowances[0].Decisions, AllowedDecision{Decision: fmt.Sprint("again", i)})
	}
	if _, _, err := a.Reserve(of("c1", "s1", 0)); !errors.Is(err, ErrLedgerFull) {
		t.Error("one publisher asks without end:", err)
	}
	must(t, a, of("c3", "s1", 1))
}

func TestEndings(t *testing.T) {
	one := must(t, Account{}, ticket("d1", "1", 600))
	retried := must(t, Account{}, ticket("d1", "1", 600), ticket("d2", "1", 600))
	twoEntries := must(t, Account{}, ticket("d1", "1", 400), ticket("d2", "1", 400).later(ShareWindow))
	twoCalls := must(t, Account{}, ticket("d1", "1", 400), ticket("d2", "2", 400))
	actions := must(t, Account{}, ticket("d1", "1", 400), ticket("d2", "1", 500))
	expired := start + 60*second + releaseGrace
	late := func(e CallEnd, now int64) CallEnd { e.Now = now; return e }
	ran := func(e CallEnd) CallEnd { e.Unadmitted = true; return e }
	drift := func(e CallEnd) CallEnd { e.Exact = false; return e }
	before := func(e CallEnd, list ...string) CallEnd { e.Before = list; return e }
	for _, tc := range []struct {
		name string
		a    Account
		ends []CallEnd
		want string
	}{
		{"completed", one, []CallEnd{end(Settle, "1", 1, 20, "d1")}, "600+0 settled:d1.:600"},
		{"failed, its receipt holds", one, []CallEnd{end(Release, "1", 1, 20, "d1")}, "0+600 lapsed:d1.:600"},
		{"failed, an executor's slow clock still takes its receipt", one, []CallEnd{late(end(Release, "1", 1, 20, "d1"), expired)}, "0+600 lapsed:d1.:600"},
		{"failed, its receipt has expired", one, []CallEnd{late(end(Release, "1", 1, 20, "d1"), expired+1)}, "0+0 released:d1.:600"},
		{"another call", one, []CallEnd{end(Release, "2", 1, 20, "d1")}, "0+600 reserved:d1:600"},
		{"twice", one, []CallEnd{end(Settle, "1", 1, 20, "d1"), end(Settle, "1", 1, 20, "d1")}, "600+0 settled:d1.:600"},
		{"put out again", one, []CallEnd{end(Settle, "1", 1, 20, "d1"), end(Settle, "1", 1, 21, "d1")}, "600+0 settled:d1.:600"},
		{"given up, and completed after all", one, []CallEnd{late(end(Release, "1", 1, 20, "d1"), expired+1), end(Settle, "1", 1, 30, "d1")}, "600+0 settled:d1.:600"},
		{"taken for spent, and failed after all", one, []CallEnd{end(Settle, "1", 1, 20, "d1"), late(end(Release, "1", 1, 30, "d1"), expired+1)}, "0+0 released:d1.:600"},
		{"read again from the start", one, []CallEnd{end(Release, "1", 1, 20, "d1"), end(Settle, "1", 1, 30, "d1"), end(Release, "1", 1, 20, "d1")}, "600+0 settled:d1.:600"},
		{"a deny of another action under the id", one, []CallEnd{late(end(Release, "1", 2, 20, "d9"), expired+1)}, "0+600 reserved:d1:600"},
		{"a deny of another action that was on the log after it", one, []CallEnd{late(before(end(Release, "1", 2, 20, "d9"), "d1"), expired+1)}, "0+600 reserved:d1:600"},
		{"a deny of the same call", one, []CallEnd{end(Release, "1", 1, 20, "d1", "d9")}, "0+600 lapsed:d1.:600"},
		{"a deny of the same call, which then ran", one, []CallEnd{end(Release, "1", 1, 20, "d1", "d9"), ran(end(Settle, "1", 1, 30, "d1", "d9"))}, "600+0 settled:d1.:600"},
		{"a call of no money under the id", one, []CallEnd{end(Settle, "1", 2, 20, "d9")}, "0+600 reserved:d1:600"},
		{"no verdict at all", one, []CallEnd{end(Release, "1", 1, 20)}, "0+600 reserved:d1:600"},
		{"the retry's call ends", retried, []CallEnd{end(Settle, "1", 1, 20, "d1", "d2")}, "600+0 settled:d1.,d2.:600"},
		{"the first of many decisions is out of the timeline's reach", retried, []CallEnd{before(end(Release, "1", 1, 20, "d2"), "d1", "d2")}, "0+600 lapsed:d1.,d2.:600"},
		{"the retry is another occurrence", retried, []CallEnd{end(Settle, "1", 1, 20, "d1")}, "600+0 settled:d1.,d2:600"},
		{"and runs, too", retried, []CallEnd{end(Settle, "1", 1, 20, "d1"), end(Settle, "1", 2, 30, "d2")}, "1200+0 settled:d1.,d2.:600"},
		{"and does not run", retried, []CallEnd{end(Settle, "1", 1, 20, "d1"), late(end(Release, "1", 2, 30, "d2"), expired+1)}, "600+0 settled:d1.,d2.:600"},
		{"the first one failed, the retry is open", retried, []CallEnd{late(end(Release, "1", 1, 20, "d1"), expired+1)}, "0+600 reserved:d1.,d2:600"},
		{"and fails", retried, []CallEnd{end(Release, "1", 1, 20, "d1"), late(end(Release, "1", 2, 30, "d2"), expired+1)}, "0+0 released:d1.,d2.:600"},
		{"one call, two reservations: which of them ran is not certain", twoEntries, []CallEnd{end(Settle, "1", 1, 20, "d1", "d2")}, "400+800 lapsed:d1.:400 lapsed:d2.:400"},
		{"one call, two reservations, reported twice", twoEntries, []CallEnd{end(Settle, "1", 1, 20, "d1"), end(Settle, "1", 1, 21, "d1", "d2")},
			"400+400 settled:d1.:400 lapsed:d2.:400"},
		{"another action under the same id", actions, []CallEnd{late(end(Release, "1", 2, 30, "d2"), expired+1)}, "0+400 reserved:d1:400 released:d2.:500"},
		{"what ran under the id may be the larger action", actions, []CallEnd{drift(end(Settle, "1", 1, 20, "d1"))}, "500+900 lapsed:d1.:400 reserved:d2:500"},
		{"and the other call is given up", actions, []CallEnd{drift(end(Settle, "1", 1, 20, "d1")), late(end(Release, "1", 2, 30, "d2"), expired+1)},
			"500+0 lapsed:d1.:400 released:d2.:500"},
		{"and runs as well", actions, []CallEnd{drift(end(Settle, "1", 1, 20, "d1")), end(Settle, "1", 2, 30, "d2")}, "1000+400 lapsed:d1.:400 settled:d2.:500"},
		{"what ran instead of a call of no money", one, []CallEnd{drift(end(Settle, "1", 2, 20, "d9"))}, "600+0 settled:d1:600"},
		{"ran once more", one, []CallEnd{end(Settle, "1", 1, 20, "d1"), end(SettleExtra, "1", 2, 30)}, "1200+0 settled:d1.:600"},
		{"ran once more, read twice", one, []CallEnd{end(Settle, "1", 1, 20, "d1"), end(SettleExtra, "1", 2, 30), end(Settle, "1", 1, 20, "d1"), end(SettleExtra, "1", 2, 30)},
			"1200+0 settled:d1.:600"},
		{"ran without a verdict", one, []CallEnd{ran(end(Settle, "1", 2, 20))}, "600+600 reserved:d1:600"},
		{"ran without a verdict, perhaps what was admitted", one, []CallEnd{drift(ran(end(Settle, "1", 2, 20)))}, "600+600 reserved:d1:600"},
		{"ran against a deny", one, []CallEnd{ran(end(Settle, "1", 2, 20, "d9"))}, "600+600 reserved:d1:600"},
		{"what ran first had been admitted", one, []CallEnd{end(SettleExtra, "1", 1, 20), end(Settle, "1", 1, 30, "d1")}, "600+0 settled:d1.:600"},
		{"an announcement afterwards is no admission", one, []CallEnd{end(SettleExtra, "1", 1, 20), ran(end(Settle, "1", 1, 30))}, "600+600 reserved:d1:600"},
		{"what ran beside nothing", one, []CallEnd{end(SettleExtra, "7", 1, 30)}, "0+600 reserved:d1:600"},
		{"open", one, []CallEnd{end(NoEffect, "1", 1, 20, "d1")}, "0+600 reserved:d1:600"},
		{"a retry under another id", one, []CallEnd{end(Settle, "2", 1, 20, "d1")}, "600+600 reserved:d1:600"},
		{"a retry under another id, twice", one, []CallEnd{end(Settle, "2", 1, 20, "d1"), end(Settle, "2", 1, 21, "d1"), end(Settle, "2", 1, 20, "d1")}, "600+600 reserved:d1:600"},
		{"a retry that fails", one, []CallEnd{late(end(Release, "2", 1, 20, "d1"), expired+1)}, "0+600 reserved:d1:600"},
		{"a retry that is taken for spent, and failed after all", one, []CallEnd{end(Settle, "2", 1, 20, "d1"), end(Release, "2", 1, 30, "d1")}, "0+600 reserved:d1:600"},
		{"a retry, and the call is given up", one, []CallEnd{end(Settle, "2", 1, 20, "d1"), late(end(Release, "1", 1, 30, "d1"), expired+1)}, "600+0 released:d1.:600"},
		{"a retry of what was given up", one, []CallEnd{late(end(Release, "1", 1, 20, "d1"), expired+1), end(Settle, "2", 1, 30, "d1")}, "600+0 lapsed:d1.:600"},
		{"a retry, and the call runs as well", one, []CallEnd{end(Settle, "2", 1, 20, "d1"), end(Settle, "1", 1, 30, "d1")}, "1200+0 settled:d1.:600"},
		{"three retries", one, []CallEnd{end(Settle, "2", 1, 20, "d1"), end(Settle, "3", 1, 21, "d1"), end(Settle, "4", 1, 22, "d1")}, "1800+600 reserved:d1:600"},
		{"a retry, then asked about and denied", one, []CallEnd{end(Settle, "2", 1, 20, "d1"), ran(end(Settle, "2", 1, 30, "d9"))}, "600+600 reserved:d1:600"},
		{"a retry, then asked about and allowed", twoCalls, []CallEnd{end(Settle, "2", 1, 20, "d1"), end(Settle, "2", 1, 30, "d2")}, "400+400 reserved:d1:400 settled:d2.:400"},
	} {
		a, before, now := tc.a, text(tc.a), start
		for _, e := range tc.ends {
			now = max(now, e.Now)
			a, _ = a.ApplyEnd(e)
		}
		if textAt(a, now) != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, textAt(a, now), tc.want)
		}
		if text(tc.a) != before {
			t.Errorf("%s: the account that was there has changed", tc.name)
		}
	}
}

// One entry does not tell more than so many runs apart, and counts all of them.
func TestRunsAreBounded(t *testing.T) {
	a := must(t, Account{}, ticket("d1", "1", 1))
	for i := range 3 * maxRuns {
		a, _ = a.ApplyEnd(end(SettleExtra, "1", i+2, uint64(20+i)))
	}
	if s := a.Spend("", start); s.Settled != 3*maxRuns || len(a.Allowances[0].Runs) != maxRuns {
		t.Errorf("%+v", s)
	}
}

// A new admission under an id whose call has ended is new money, while a receipt
// of the call holds and after: otherwise one id would buy any number of times.
func TestSameIDAfterTheEnd(t *testing.T) {
	a := must(t, Account{}, ticket("d1", "1", 600))
	for _, effect := range []Effect{Settle, Release} {
		b, _ := a.ApplyEnd(end(effect, "1", 1, 20, "d1"))
		if _, _, err := b.Reserve(ticket("d2", "1", 600)); !errors.Is(err, ErrOverBudget) {
			t.Errorf("%v, %s", err, text(b))
		}
	}
	b := must(t, Account{}, ticket("d1", "1", 400))
	b, _ = b.ApplyEnd(end(Settle, "1", 1, 20, "d1"))
	if b = must(t, b, ticket("d2", "1", 400)); text(b) != "400+400 settled:d1.:400 reserved:d2:400" {
		t.Error(text(b))
	}
	// So it is where the correlator has forgotten the first call, for its session was erased.
	first := events.Call{
		State: events.CallCompleted, Occurrence: 1, Verdict: events.Allow, DecisionID: "d1", ExecutionSeq: 19, Match: matchEqual,
		Timeline: []events.TimelineEntry{{Step: "requested", Seq: 11}, {Step: "decided", Seq: 12}},
	}
	anew := first
	anew.DecisionID, anew.ExecutionSeq = "d2", 39
	anew.Timeline = []events.TimelineEntry{{Step: "asked", Seq: 5}, {Step: "requested", Seq: 31}, {Step: "decided", Seq: 32}}
	e := must(t, Account{}, ticket("d1", "1", 600))
	e, _ = e.ApplyEnd(CallEndOf(first, "c-1", 20, start))
	e = must(t, e, ticket("d2", "1", 400))
	e, _ = e.ApplyEnd(CallEndOf(anew, "c-1", 40, start))
	if again, _ := e.ApplyEnd(CallEndOf(anew, "c-1", 41, start)); text(again) != "1000+0 settled:d1.:600 settled:d2.:400" {
		t.Errorf("%s, then %s", text(e), text(again))
	}
	c, _ := a.ApplyEnd(end(Release, "1", 1, 20, "d1"))
	if c = must(t, c, ticket("d2", "1", 600).later(91*second)); textAt(c, start+91*second) != "0+600 released:d1.:600 reserved:d2:600" {
		t.Error(text(c))
	}
}

func TestGiveBack(t *testing.T) {
	one := ticket("d1", "1", 600)
	if a := must(t, Account{}, one).UndoReserve(one); text(a) != "0+0" {
		t.Error(text(a))
	}
	both := must(t, Account{}, one, ticket("d2", "1", 600))
	for _, gone := range []string{"d1", "d2"} {
		a := both.UndoReserve(ticket(gone, "1", 600))
		if s := a.Spend("", start); s.Reserved != 600 || len(a.Allowances[0].Decisions) != 1 || a.Allowances[0].ID != "d1" {
			t.Error(gone, text(a))
		}
	}
	bare := ticket("d1", "", 600)
	if a := must(t, Account{}, bare).UndoReserve(bare); text(a) != "0+0" {
		t.Error(text(a))
	}
	settled, _ := must(t, Account{}, one).ApplyEnd(end(Settle, "1", 1, 20, "d1"))
	if a := settled.UndoReserve(one); text(a) != "600+0 settled:d1.:600" {
		t.Error(text(a))
	}
	if a := both.DropDecisions([]string{"d1", "d2"}, start); text(a) != "0+0" {
		t.Error(text(a))
	}
	if a := both.DropDecisions([]string{"d7"}, start); text(a) != text(both) {
		t.Error(text(a))
	}
	// The last decision that was awaited never came to the log: the others decide.
	over, _ := both.ApplyEnd(end(Release, "1", 1, 20, "d1"))
	if a := over.DropDecisions([]string{"d2"}, start); text(a) != "0+600 lapsed:d1.:600" {
		t.Error(text(a))
	}
}

func TestEffects(t *testing.T) {
	invoked := []events.TimelineEntry{{Step: "requested"}, {Step: "invoked"}}
	for _, tc := range []struct {
		c          events.Call
		want       Effect
		unadmitted bool
	}{
		{events.Call{State: events.CallOpen}, NoEffect, false},
		{events.Call{State: events.CallCompleted, ExecutionSeq: 9, Verdict: events.Allow}, Settle, false},
		{events.Call{State: events.CallCompleted, ExecutionSeq: 9}, Settle, true},
		{events.Call{State: events.CallFailed, Outcome: "failed", ExecutionSeq: 9, Verdict: events.Allow}, Release, false},
		{events.Call{State: events.CallFailed, Outcome: "error", ExecutionSeq: 9, Verdict: events.Allow}, Release, false},
		{events.Call{State: events.CallFailed, Outcome: "cancelled"}, Release, false},
		{events.Call{State: events.CallFailed, Outcome: "timeout", ExecutionSeq: 9, Verdict: events.Allow}, Settle, false},
		{events.Call{State: events.CallFailed, Outcome: "timed_out"}, Release, false},
		{events.Call{State: events.CallDenied, Verdict: events.Deny}, Release, false},
		{events.Call{State: events.CallDenied, ExecutionSeq: 9, Verdict: events.Deny}, Settle, true},
		{events.Call{State: events.CallAbandoned}, Release, false},
		{events.Call{State: events.CallAbandoned, Timeline: invoked}, Settle, false},
		{events.Call{State: events.CallOrphaned, ExecutionSeq: 9}, SettleExtra, true},
		{events.Call{State: events.CallOrphaned}, NoEffect, false},
		{events.Call{State: "new"}, NoEffect, false},
	} {
		if got := CallEndOf(tc.c, "c", 1, start); got.Effect != tc.want || got.Unadmitted != tc.unadmitted {
			t.Errorf("%+v: %d %t, want %d %t", tc.c, got.Effect, got.Unadmitted, tc.want, tc.unadmitted)
		}
	}
}

// A record names its call's decisions by their places; those of another action
// under the same id are not among them.
func TestNames(t *testing.T) {
	a := must(t, Account{}, ticket("d1", "1", 300), ticket("d2", "1", 300), ticket("d3", "1", 200), ticket("d4", "2", 100), ticket("d5", "1", 300))
	logged := map[string]uint64{"d1": 11, "d2": 12, "d3": 13, "d4": 14}
	c := events.Call{
		State: events.CallDenied, DecisionID: "d9", DecisionSeq: 15,
		Timeline: []events.TimelineEntry{{Step: "requested", Seq: 13}, {Step: "decided", Seq: 11}, {Step: "decided", Seq: 15}},
	}
	e := CallEndOf(c, "c-1", 16, start).WithDecisions(a, c, func(d string) uint64 { return logged[d] })
	if got := fmt.Sprint(e.Named, e.Before); got != "[d9 d1] [d1 d2 d3]" {
		t.Error(got)
	}
	b, _ := a.ApplyEnd(e)
	if text(b) != "0+600 reserved:d1.,d2.,d5:300 reserved:d3:200 reserved:d4:100" {
		t.Error(text(b))
	}
}

func TestProposalKeys(t *testing.T) {
	key := []byte("tenant key")
	p := Proposal{Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", MandateID: "aump_mnd_1", Action: []byte(`{"a":1}`)}
	seen := map[string]string{p.Key(key): "itself"}
	for name, change := range map[string]func(*Proposal){
		"tenant": func(p *Proposal) { p.Tenant = "globex" }, "source": func(p *Proposal) { p.Source = "rt2" },
		"session": func(p *Proposal) { p.Session = "s2" }, "call": func(p *Proposal) { p.ToolCallID = "c2" },
		"action": func(p *Proposal) { p.Action = []byte(`{"a":2}`) },
		"moved":  func(p *Proposal) { p.Session, p.ToolCallID = "s1c", "1" },
	} {
		q := p
		change(&q)
		if other, taken := seen[q.Key(key)]; taken {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[q.Key(key)] = name
	}
	again := p
	again.MandateHash = "sha256-another"
	if again.Key(key) != p.Key(key) || p.Key([]byte("another")) == p.Key(key) {
		t.Error("the key depends on the wrong things")
	}
	if p.ToolCallID = ""; p.Key(key) != "" {
		t.Error("a proposal without a call is like another")
	}
	long := strings.Repeat("s", 100)
	if CallKey(key, "acme", "rt1", long, "c1") != CallKey(key, "acme", "rt1", subjectToken(long), "c1") {
		t.Error("a long session is another one when it was read off a subject")
	}
}

func FuzzDecodeStored(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":"aump_mnd_1","hash":"sha256-00","mandate":"{}","author":"","put_at":"2026-11-20T09:00:00Z"}`))
	f.Add([]byte(`{"v":1,"keys":[{"kty":"OKP"}],"signatures":"required","author":"x","put_at":"2026-11-20T09:00:00Z"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := DecodeStored(b); err == nil && !ValidID(s.ID) && s.ID != "" && !strings.Contains(s.Mandate, s.ID) {
			t.Error(s.ID)
		}
		_, _, _ = DecodeKeys(b)
		store, _ := (*Store)(nil).WithChanges(map[string][]byte{"acme.aump_mnd_1": b, "acme.keys": b, "acme.aump_mnd_1.revoked." + strings.Repeat("0", 3): b})
		if m := store.Mandate("acme", "aump_mnd_1", ""); m == nil || m.Violations == nil && m.ID != "aump_mnd_1" {
			t.Error("a stored document is gone, or has another id")
		}
	})
}

// A call with several reservations keeps them until maxClosed others are closed: one too many drops one.
func TestOneTooManyDropsOne(t *testing.T) {
	const of, others = 200, maxClosed - 200 + 1
	a := Account{V: AccountVersion}
	var ids []string
	for i := range of {
		x := ticket(fmt.Sprint("d", i), "late", 1)
		x.Key = fmt.Sprint("key", i)
		a, ids = must(t, a, x), append(ids, fmt.Sprint("d", i))
	}
	a, _ = a.ApplyEnd(end(Release, "late", 1, 100, ids...))
	for i := range others {
		id := fmt.Sprint("other", i)
		x := ticket(id, id, 1)
		x.Session = "another"
		a = must(t, a, x)
		a, _ = a.ApplyEnd(end(Release, id, 1, uint64(101+i), id))
	}
	if a = a.Pruned(start + 120*second); len(a.Allowances) != maxClosed {
		t.Errorf("%d kept, want %d", len(a.Allowances), maxClosed)
	}
	if a, _ = a.ApplyEnd(end(Settle, "late", 1, 1000, ids...)); a.Spend("", start).Settled == 0 {
		t.Error("the late completion does not count")
	}
}
