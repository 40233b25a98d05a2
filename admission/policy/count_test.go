package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// fixed counters give every counter the same total.
type steady int64

func (s steady) Total(string, time.Duration, time.Time) (int64, bool) { return int64(s), true }

func limited(limit string) string {
	return written("p", "rules:", "  - {name: ok, when: 'true', verdict: allow, reason: ok}",
		"  - {name: many, when: 'tool != \"free\"', limit: "+limit+", verdict: deny, reason: too_many}")
}

func TestRateLimits(t *testing.T) {
	in := call("pay")
	in.Args = tree(t, `{"amount":30,"half":0.5,"text":"5","negative":-1,"huge":9007199254740992}`)
	for name, c := range map[string]struct {
		limit  string
		before Counters
		want   string
	}{
		"room":            {"{max: 5, per: 1m}", steady(4), "allow ok"},
		"full":            {"{max: 5, per: 1m}", steady(5), "deny ok,too_many"},
		"none at all":     {"{max: 0, per: 1m}", steady(0), "deny ok,too_many"},
		"amount fits":     {"{max: 100, per: 1m, amount: 'int(args.amount)'}", steady(70), "allow ok"},
		"amount does not": {"{max: 100, per: 1m, amount: 'int(args.amount)'}", steady(71), "deny ok,too_many"},
		"amount dyn":      {"{max: 100, per: 1m, amount: 'args.amount'}", steady(71), "deny ok,too_many"},
		"amount double":   {"{max: 100, per: 1m, amount: 'args.half'}", steady(0), "deny ok,policy_error"},
		"amount text":     {"{max: 100, per: 1m, amount: 'args.text'}", steady(0), "deny ok,policy_error"},
		"amount missing":  {"{max: 100, per: 1m, amount: 'args.nope'}", steady(0), "deny ok,policy_error"},
		"amount negative": {"{max: 100, per: 1m, amount: 'args.negative'}", steady(0), "deny ok,policy_error"},
		"amount huge":     {"{max: 100, per: 1m, amount: 'args.huge'}", steady(0), "deny ok,policy_error"},
		"nobody knows":    {"{max: 5, per: 1m}", nil, "deny ok,counter_unavailable"},
		"not known":       {"{max: 5, per: 1m}", Totals{}, "deny ok,counter_unavailable"},
		"no state":        {"{max: 1, per: 1m}", NoCounts{}, "allow ok"},
		"total overflows": {"{max: 9007199254740991, per: 1m}", steady(1 << 62), "deny ok,too_many"},
	} {
		in.Counters = c.before
		t.Run(name, func(t *testing.T) { expect(t, compileDocs(t, limited(c.limit)).Evaluate(in), c.want) })
	}
	in.Counters, in.Tool = nil, "free" // the condition does not hold: nothing is asked
	if got := compileDocs(t, limited("{max: 1, per: 1m}")).Evaluate(in); got.Verdict != events.Allow || got.Counts != nil {
		t.Errorf("%+v", got)
	}
}

// Two calls share a counter if and only if the rule, the window and everything
// in by are the same; the tenant always is.
func TestCounterKeys(t *testing.T) {
	keyOf := func(doc string, change func(*Input)) string {
		in := call("pay")
		in.Session, in.Agent, in.Action, in.Counters = "s", "bot", "send", NoCounts{}
		if change != nil {
			change(&in)
		}
		counts := compileDocs(t, doc).Evaluate(in).Counts
		if len(counts) != 1 {
			t.Fatalf("%+v", counts)
		}
		return counts[0].Key
	}
	all := limited("{max: 9, per: 1m, by: [tenant, source, session, tool, agent, action]}")
	base := keyOf(all, nil)
	seen := map[string]string{base: "base"}
	for name, change := range map[string]func(*Input){
		"tenant": func(in *Input) { in.Tenant = "evil" }, "source": func(in *Input) { in.Source = "rt2" }, "session": func(in *Input) { in.Session = "s2" },
		"tool": func(in *Input) { in.Tool = "pay2" }, "agent": func(in *Input) { in.Agent = "" }, "action": func(in *Input) { in.Action = "x" },
		"moved": func(in *Input) { in.Session, in.Agent = "sb", "ot" },
	} {
		key := keyOf(all, change)
		if other, taken := seen[key]; taken {
			t.Errorf("%s has the counter of %s", name, other)
		}
		seen[key] = name
		if same := CounterTenant(key) == CounterTenant(base); same != (name != "tenant") {
			t.Errorf("%s: the tenant's part is the same: %t", name, same)
		}
	}
	if keyOf(strings.Replace(all, "source, session, tool, agent, action", "action, agent, tool, session, source", 1), nil) != base {
		t.Error("the order of by matters")
	}
	if keyOf(limited("{max: 3, per: 1m, by: [source, session, tool, agent, action]}"), nil) != base {
		t.Error("the maximum or the word tenant starts another counter")
	}
	if keyOf(strings.Replace(all, "per: 1m", "per: 2m", 1), nil) == base || keyOf(strings.Replace(all, "name: many", "name: lots", 1), nil) == base {
		t.Error("another rule or window shares the counter")
	}
	// The sum of one amount says nothing about another: euros are no cents.
	priced := func(rate int, variable, amount string) string {
		return strings.Replace(limited("{max: 9, per: 1m, amount: '"+amount+"'}"), "spec:\n", fmt.Sprintf("spec:\n  params: {rate: %d, other: 1}\n  variables:\n    - {name: units, expression: '%s'}\n    - {name: price, expression: 'variables.units * params.rate'}\n", rate, variable), 1)
	}
	amounts := map[string]string{keyOf(limited("{max: 9, per: 1m}"), nil): "none"}
	for name, doc := range map[string]string{
		"price": priced(1, "1", "variables.price"), "a param": priced(2, "1", "variables.price"), "a variable": priced(1, "2", "variables.price"), "another amount": priced(1, "1", "variables.price + 1"),
	} {
		key := keyOf(doc, nil)
		if other, taken := amounts[key]; taken {
			t.Errorf("%s has the counter of %s", name, other)
		}
		amounts[key] = name
	}
	for name, doc := range map[string]string{"a new maximum": strings.Replace(priced(1, "1", "variables.price"), "max: 9", "max: 8", 1), "a param that no amount reads": strings.Replace(priced(1, "1", "variables.price"), "other: 1", "other: 2", 1)} {
		if amounts[keyOf(doc, nil)] != "price" {
			t.Errorf("%s begins a new count", name)
		}
	}
	shared := limited("{max: 9, per: 1m}")
	if keyOf(shared, nil) != keyOf(shared, func(in *Input) { in.Session, in.Source, in.Tool = "x", "y", "z" }) {
		t.Error("what is not in by has a part in the counter")
	}
}

func TestCountsOfACall(t *testing.T) {
	in := call("pay")
	in.Counters = steady(2)
	within := compileDocs(t, limited("{max: 5, per: 1m}")).Evaluate(in).Counts
	if len(within) != 1 || within[0].Max != 5 || within[0].Total != 2 || within[0].Amount != 1 || within[0].Window != time.Minute {
		t.Errorf("%+v", within)
	}
	// What others add meanwhile cannot change a verdict that stands anyway.
	trial := strings.Replace(limited("{max: 5, per: 1m}"), "spec:\n", "spec:\n  validationActions: [audit]\n", 1)
	for name, d := range map[string][]string{"exceeded": {strings.Replace(limited("{max: 1, per: 1m}"), "verdict: deny", "verdict: allow", 1)}, "trial": {trial, doc("b", "", "allow ok: true")}} {
		if counts := compileDocs(t, d...).Evaluate(in).Counts; len(counts) != 1 || counts[0].Max != Unbounded {
			t.Errorf("%s: %+v", name, counts)
		}
	}
	in.Counters = nil
	got := compileDocs(t, doc("b", "", "allow ok: true"), trial).Evaluate(in)
	if got.Verdict != events.Allow || got.Reasons[len(got.Reasons)-1].Code != CodeCounters || got.Counts[0].Total != -1 {
		t.Errorf("%+v", got)
	}
	var rules []string
	for i := range MaxCounts + 1 {
		rules = append(rules, fmt.Sprintf("{name: r%d, when: 'true', limit: {max: 9, per: 1m}, verdict: deny, reason: r}", i))
	}
	in.Counters = NoCounts{}
	full := "rules: [" + strings.Join(rules, ", ") + "]"
	if got := compileDocs(t, written("p", full)).Evaluate(in); len(got.Counts) != MaxCounts || got.Reasons[0].Code != CodeCounters {
		t.Errorf("%d counts, %v", len(got.Counts), got.Reasons)
	}
	// Trials have counters of their own: they take none from the policies that decide.
	trials := written("a", "validationActions: [audit]\n  "+full)
	if got := compileDocs(t, trials, limited("{max: 5, per: 1m}"), doc("z", "", "allow ok: true")).Evaluate(in); got.Verdict != events.Allow || len(got.Counts) != MaxCounts+1 {
		t.Errorf("beside %d counts: %s", len(got.Counts), codes(got))
	}
}

// A decision can be made again from what it recorded.
func TestCountsCanBeReplayed(t *testing.T) {
	set := compileDocs(t, limited("{max: 5, per: 1m}"))
	for _, total := range []int64{0, 4, 5, -1} {
		in := call("pay")
		if in.Counters = steady(total); total < 0 {
			in.Counters = nil
		}
		first := set.Evaluate(in)
		record := RecordCounts(first.Counts)
		if len(record) != 1 || record[0].WindowMS != 60_000 || record[0].Total != total {
			t.Fatalf("%+v", record)
		}
		in.Counters = RecordedTotals(record)
		if again := set.Evaluate(in); codes(again) != codes(first) {
			t.Errorf("%s, then %s", codes(first), codes(again))
		}
	}
	if RecordCounts(nil) != nil {
		t.Error("a call that counts nothing has a record of it")
	}
}

func TestSetKnowsItsLimits(t *testing.T) {
	if _, found := (*Set)(nil).LongestWindow(); found {
		t.Error("the nil set")
	}
	if _, found := compileDocs(t, doc("a", "", "allow ok: true")).LongestWindow(); found {
		t.Error("a set without")
	}
	two := strings.Replace(limited("{max: 1, per: 2h}"), "name: p}", "name: q}", 1)
	if longest, found := compileDocs(t, limited("{max: 1, per: 1m}"), two).LongestWindow(); !found || longest != 2*time.Hour {
		t.Errorf("%v %t", longest, found)
	}
}
