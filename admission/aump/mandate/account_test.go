package mandate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events"
)

const start = int64(1_795_000_000) // Unix seconds

// ticket is an admission under a budget of 1000; no call, no id.
func ticket(decision, call string, amount int64) Ticket {
	t := Ticket{Decision: decision, After: 10, Now: start, Expires: start + 60, Session: "s1"}
	t.Amount, t.Budget, t.ToolCallID = amount, 1000, call
	if call != "" {
		t.Key, t.Call = fmt.Sprintf("p-%s-%d", call, amount), "c-"+call
	}
	return t
}

func must(t testing.TB, a Account, tickets ...Ticket) Account {
	t.Helper()
	for _, x := range tickets {
		var err error
		if a, err = a.Reserve(x); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// text is an account in short: settled and reserved money, and its entries.
func text(a Account) string {
	s := a.Spend("")
	out := fmt.Sprintf("%d+%d", s.Settled, s.Reserved)
	for _, e := range a.Entries {
		out += fmt.Sprintf(" %s:%s:%d", e.State, strings.Join(e.Decisions, ","), e.Amount)
	}
	return out
}

func end(effect Effect, call, decision string, seq uint64) Ending {
	return Ending{Effect: effect, Call: "c-" + call, Decision: decision, DecisionSeq: seq - 1, Seq: seq, Occurrence: 1, Now: start + 30}
}

func TestReserve(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tickets []Ticket
		want    string
		err     error
	}{
		{"within", []Ticket{ticket("d1", "1", 400), ticket("d2", "2", 600)}, "0+1000 reserved:d1:400 reserved:d2:600", nil},
		{"one too much", []Ticket{ticket("d1", "1", 400), ticket("d2", "2", 601)}, "0+400 reserved:d1:400", ErrOverBudget},
		{"the same proposal again", []Ticket{ticket("d1", "1", 600), ticket("d2", "1", 600)}, "0+600 reserved:d1,d2:600", nil},
		{"another amount under the same call is another proposal", []Ticket{ticket("d1", "1", 500), ticket("d2", "1", 400)}, "0+900 reserved:d1:500 reserved:d2:400", nil},
		{"without a call it counts for good", []Ticket{ticket("d1", "", 300), ticket("d2", "", 300)}, "600+0", nil},
		{"and each time", []Ticket{ticket("d1", "", 600), ticket("d2", "", 600)}, "600+0", ErrOverBudget},
		{"no wrapping around", []Ticket{ticket("d1", "1", 1), ticket("d2", "2", 1<<62)}, "0+1 reserved:d1:1", ErrOverBudget},
	} {
		var a Account
		var err error
		for _, x := range tc.tickets {
			var next Account
			if next, err = a.Reserve(x); err == nil {
				a = next
			}
		}
		if text(a) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %s %v, want %s %v", tc.name, text(a), err, tc.want, tc.err)
		}
	}
}

func TestLedgerIsBounded(t *testing.T) {
	var a Account
	for i := range MaxOpen {
		x := ticket(fmt.Sprint("d", i), fmt.Sprint(i), 1)
		x.Budget = 1 << 40
		a = must(t, a, x)
	}
	x := ticket("d", "more", 1)
	x.Budget = 1 << 40
	if _, err := a.Reserve(x); !errors.Is(err, ErrLedgerFull) || !a.Spend(x.Key).Full {
		t.Error(err, a.Spend(x.Key).Full)
	}
	again := ticket("d'", "7", 1)
	again.Budget = 1 << 40
	if must(t, a, again); a.Spend(again.Key).Full {
		t.Error("asking again is refused")
	}
	for i := range MaxOpen {
		a, _ = a.End(end(Settle, fmt.Sprint(i), fmt.Sprint("d", i), uint64(100+i)))
	}
	if a = a.Tidied(start + 31); len(a.Entries) != maxClosed || a.Spend("").Settled != MaxOpen {
		t.Errorf("%d entries, %+v", len(a.Entries), a.Spend(""))
	}
	if a = a.Tidied(start + 61 + Retention); len(a.Entries) != 0 || a.Settled != MaxOpen {
		t.Errorf("%d entries, %+v", len(a.Entries), a.Spend(""))
	}
}

func TestEndings(t *testing.T) {
	one, retried := must(t, Account{}, ticket("d1", "1", 600)), must(t, Account{}, ticket("d1", "1", 600), ticket("d2", "1", 600))
	for _, tc := range []struct {
		name string
		a    Account
		ends []Ending
		want string
	}{
		{"completed", one, []Ending{end(Settle, "1", "d1", 20)}, "600+0 settled:d1:600"},
		{"failed", one, []Ending{end(Release, "1", "d1", 20)}, "0+0 released:d1:600"},
		{"another call", one, []Ending{end(Release, "2", "d1", 20)}, "0+600 reserved:d1:600"},
		{"twice", one, []Ending{end(Settle, "1", "d1", 20), end(Settle, "1", "d1", 20)}, "600+0 settled:d1:600"},
		{"given up, its receipt is valid", one, []Ending{end(Lapse, "1", "d1", 20)}, "0+600 lapsed:d1:600"},
		{"given up, its receipt has expired", one, []Ending{{Lapse, "c-1", "d1", 19, 20, 1, start + 61}}, "0+0 released:d1:600"},
		{"given up, and completed after all", one, []Ending{{Lapse, "c-1", "d1", 19, 20, 1, start + 61}, end(Settle, "1", "d1", 30)}, "600+0 settled:d1:600"},
		{"read again from the start", one, []Ending{end(Release, "1", "d1", 20), end(Settle, "1", "d1", 30), end(Release, "1", "d1", 20)}, "600+0 settled:d1:600"},
		{"denied, and run nonetheless", one, []Ending{end(Release, "1", "d1", 20), end(Settle, "1", "d1", 30)}, "600+0 settled:d1:600"},
		{"the retry's call ends", retried, []Ending{end(Settle, "1", "d2", 20)}, "600+0 settled:d1,d2:600"},
		{"the retry is another occurrence", retried, []Ending{end(Settle, "1", "d1", 20)}, "600+600 settled:d1:600 reserved:d2:600"},
		{"a later verdict of another kind on the same call", one, []Ending{end(Release, "1", "d9", 20)}, "0+0 released:d1,d9:600"},
		{"and that call is completed after all", one, []Ending{end(Release, "1", "d9", 20), end(Settle, "1", "d9", 30)}, "600+0 settled:d1,d9:600"},
		{"a later call under the same id, of no money", one, []Ending{end(Settle, "1", "d1", 20), end(Release, "1", "d9", 30)}, "600+0 settled:d1:600"},
		{"another action under the same id", must(t, Account{}, ticket("d1", "1", 400), ticket("d2", "1", 500)), []Ending{end(Release, "1", "d2", 30)}, "0+400 reserved:d1:400 released:d2:500"},
		{"an earlier occurrence, by the log", one, []Ending{{Release, "c-1", "d9", 10, 20, 1, start}}, "0+600 reserved:d1:600"},
		{"an earlier occurrence, by the id", one, []Ending{end(Release, "1", "d0", 20)}, "0+600 reserved:d1:600"},
		{"no verdict at all", one, []Ending{end(Release, "1", "", 20)}, "0+600 reserved:d1:600"},
		{"ran once more", one, []Ending{end(Settle, "1", "d1", 20), {Again, "c-1", "", 0, 30, 2, start}}, "1200+0 settled:d1:600"},
		{"ran once more, read twice", one, []Ending{end(Settle, "1", "d1", 20), {Again, "c-1", "", 0, 30, 2, start}, {Again, "c-1", "", 0, 30, 2, start}}, "1200+0 settled:d1:600"},
		{"what ran beside nothing", one, []Ending{{Again, "c-7", "", 0, 30, 1, start}}, "0+600 reserved:d1:600"},
		{"open", one, []Ending{end(NoEffect, "1", "d1", 20)}, "0+600 reserved:d1:600"},
	} {
		a, before := tc.a, text(tc.a)
		for _, e := range tc.ends {
			a, _ = a.End(e)
		}
		if text(a) != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, text(a), tc.want)
		}
		if text(tc.a) != before {
			t.Errorf("%s: the account that was there has changed", tc.name)
		}
	}
}

// A new admission under an id whose call has ended is new money: otherwise one
// id would buy any number of times.
func TestSameIDAfterTheEnd(t *testing.T) {
	a := must(t, Account{}, ticket("d1", "1", 600))
	a, _ = a.End(end(Settle, "1", "d1", 20))
	if _, err := a.Reserve(ticket("d2", "1", 600)); !errors.Is(err, ErrOverBudget) {
		t.Errorf("%v, %s", err, text(a))
	}
	b := must(t, Account{}, ticket("d1", "1", 400))
	b, _ = b.End(end(Settle, "1", "d1", 20))
	if b = must(t, b, ticket("d2", "1", 400)); text(b) != "400+400 settled:d1:400 reserved:d2:400" {
		t.Error(text(b))
	}
}

func TestGiveBack(t *testing.T) {
	one := ticket("d1", "1", 600)
	if a := must(t, Account{}, one).GiveBack(one); text(a) != "0+0" {
		t.Error(text(a))
	}
	if a := must(t, Account{}, one, ticket("d2", "1", 600)).GiveBack(ticket("d2", "1", 600)); text(a) != "0+600 reserved:d1:600" {
		t.Error(text(a))
	}
	bare := ticket("d1", "", 600)
	if a := must(t, Account{}, bare).GiveBack(bare); text(a) != "0+0" {
		t.Error(text(a))
	}
	settled, _ := must(t, Account{}, one).End(end(Settle, "1", "d1", 20))
	if a := settled.GiveBack(one); text(a) != "600+0 settled:d1:600" {
		t.Error(text(a))
	}
	again := must(t, Account{}, one, ticket("d2", "1", 600))
	if a := again.Drop(must(t, Account{}, one).Entries[0]); text(a) != text(again) {
		t.Error("what was asked again is dropped by its first attempt:", text(a))
	}
	if a := again.Drop(again.Entries[0]); text(a) != "0+0" {
		t.Error(text(a))
	}
}

func TestEffects(t *testing.T) {
	invoked := []events.TimelineEntry{{Step: "requested"}, {Step: "invoked"}}
	for _, tc := range []struct {
		c    events.Call
		want Effect
	}{
		{events.Call{State: events.CallOpen}, NoEffect},
		{events.Call{State: events.CallCompleted, ExecutionSeq: 9}, Settle},
		{events.Call{State: events.CallFailed, Outcome: "failed", ExecutionSeq: 9}, Release},
		{events.Call{State: events.CallFailed, Outcome: "error", ExecutionSeq: 9}, Release},
		{events.Call{State: events.CallFailed, Outcome: "cancelled"}, Release},
		{events.Call{State: events.CallFailed, Outcome: "timeout", ExecutionSeq: 9}, Settle},
		{events.Call{State: events.CallFailed, Outcome: "timed_out"}, Release},
		{events.Call{State: events.CallDenied}, Release},
		{events.Call{State: events.CallDenied, ExecutionSeq: 9}, Settle},
		{events.Call{State: events.CallAbandoned}, Lapse},
		{events.Call{State: events.CallAbandoned, Timeline: invoked}, Settle},
		{events.Call{State: events.CallOrphaned, ExecutionSeq: 9}, Again},
		{events.Call{State: events.CallOrphaned}, NoEffect},
		{events.Call{State: "new"}, NoEffect},
	} {
		if got := EndingOf(tc.c, "c", 1, start).Effect; got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.c, got, tc.want)
		}
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
	if CallKey(key, "acme", "rt1", long, "c1") != CallKey(key, "acme", "rt1", token(long), "c1") {
		t.Error("a long session is another one when it was read off a subject")
	}
}

// TestNeverUnderCounted: whatever is admitted, retried and reported, in whatever
// order, the sum of what ran is never above what the ledger says.
func TestNeverUnderCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const calls = 4
		var a Account
		type call struct {
			decisions []string
			amount    int64
		}
		open := map[int]*call{}
		var spent, seq int64 = 0, 100
		now, n := start, 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, calls-1).Draw(t, "call")
			seq, now = seq+1, now+int64(rapid.IntRange(0, 50).Draw(t, "pass"))
			switch step := rapid.SampledFrom([]string{"ask", "ask", "complete", "fail", "abandon", "tidy"}).Draw(t, "step"); step {
			case "ask":
				n++
				x := ticket(fmt.Sprintf("d%04d", n), fmt.Sprint(i), 100*int64(i+1))
				x.Now, x.Expires, x.After = now, now+60, uint64(seq)
				next, err := a.Reserve(x)
				if err != nil {
					continue
				}
				a = next
				if open[i] == nil {
					open[i] = &call{amount: x.Amount}
				}
				open[i].decisions = append(open[i].decisions, x.Decision)
			case "tidy":
				a = a.Tidied(now)
			default:
				c := open[i]
				if c == nil {
					continue
				}
				delete(open, i)
				if step == "complete" {
					spent += c.amount
				}
				effect := map[string]Effect{"complete": Settle, "fail": Release, "abandon": Lapse}[step]
				a, _ = a.End(Ending{effect, fmt.Sprintf("c-%d", i), c.decisions[len(c.decisions)-1], uint64(seq), uint64(seq) + 1, 1, now})
			}
			s := a.Spend("")
			reserved := spent
			for _, c := range open {
				reserved += c.amount
			}
			if s.Settled+s.Reserved < reserved || s.Settled+s.Reserved > 1000 {
				t.Fatalf("%s after %d spent and %d open", text(a), spent, reserved-spent)
			}
		}
	})
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
		store, _ := (*Store)(nil).With(map[string][]byte{"acme.aump_mnd_1": b, "acme.keys": b, "acme.aump_mnd_1.revoked." + strings.Repeat("0", 3): b})
		if m := store.Mandate("acme", "aump_mnd_1", ""); m == nil || m.Problems == nil && m.ID != "aump_mnd_1" {
			t.Error("a stored document is gone, or has another id")
		}
	})
}
