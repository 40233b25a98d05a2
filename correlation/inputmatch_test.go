package correlation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func parsed(t testing.TB, text string) any {
	t.Helper()
	v, err := strictjson.Parse([]byte(text), strictjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// said gives differences as "kind pointer".
func placesOf(list []events.Difference) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, d.Kind+" "+d.Pointer)
	}
	return out
}

func TestDifferences(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tc := range []struct {
		name, a, b string
		want       []string
		more       int
	}{
		{"nothing", `{"a":1,"b":[1,{"c":null}]}`, `{"b":[1,{"c":null}],"a":1}`, nil, 0},
		{"a value", `{"a":1,"b":2}`, `{"a":1,"b":3}`, []string{"changed /b"}, 0},
		{"added and removed", `{"a":1}`, `{"b":1}`, []string{"removed /a", "added /b"}, 0},
		{"another type", `{"a":"1"}`, `{"a":1}`, []string{"changed /a"}, 0},
		{"null is a value", `{"a":null}`, `{}`, []string{"removed /a"}, 0},
		{"an object instead of a list", `{"a":{}}`, `{"a":[]}`, []string{"changed /a"}, 0},
		{"within a list", `{"a":[1,2,{"b":true}]}`, `{"a":[1,9,{"b":false},4]}`, []string{"changed /a/1", "changed /a/2/b", "added /a/3"}, 0},
		{"a shorter list", `{"a":[1,2]}`, `{"a":[1]}`, []string{"removed /a/1"}, 0},
		{"names that need an escape", `{"a/b":1,"m~n":1,"":1}`, `{"a/b":2,"m~n":2,"":2}`, []string{"changed /", "changed /a~1b", "changed /m~0n"}, 0},
		{"a whole subtree", `{}`, `{"a":{"b":{"c":1}}}`, []string{"added /a"}, 0},
		{"a name that is too long", `{"` + long + `":1,"z":1}`, `{"` + long + `":2,"z":2}`, []string{"changed ", "changed /z"}, 0},
		{"two names that are too long", `{"k":{"` + long + `":1,"` + long + `y":1}}`, `{"k":{"` + long + `":2,"` + long + `y":2}}`, []string{"changed /k"}, 0},
		{"a name that is too long and no difference", `{"` + long + `":1}`, `{"` + long + `":1}`, nil, 0},
		{"too many", `{}`, many(40), nil, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, more := listDifferences(parsed(t, tc.a), parsed(t, tc.b))
			if more != tc.more {
				t.Errorf("%d more, want %d", more, tc.more)
			}
			if tc.name == "too many" {
				if len(got) != maxDifferences {
					t.Errorf("%d differences", len(got))
				}
				return
			}
			if diff := cmp.Diff(append([]string{}, tc.want...), placesOf(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%02d":1`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// FuzzDifferences: arguments differ where the list says, and nowhere else; no
// value is in the list; the order of the arguments only changes what was added
// into what was removed.
func FuzzDifferences(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"secret"}]}`), []byte(`{"a":[1,{"b":"other"}],"c":1}`))
	f.Add([]byte(`{"a/b":{"~":1}}`), []byte(`{"a/b":[]}`))
	f.Add([]byte(many(50)), []byte(`{}`))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := strictjson.CanonicalBytes(x)
		b, err2 := strictjson.CanonicalBytes(y)
		if err != nil || err2 != nil {
			t.Skip()
		}
		list, more := listDifferences(parsed(t, string(a)), parsed(t, string(b)))
		if same := string(a) == string(b); same != (len(list)+more == 0) {
			t.Fatalf("%s and %s: %v and %d more", a, b, list, more)
		}
		back, backMore := listDifferences(parsed(t, string(b)), parsed(t, string(a)))
		turned := map[string]string{events.DifferenceAdded: events.DifferenceRemoved, events.DifferenceRemoved: events.DifferenceAdded, events.DifferenceChanged: events.DifferenceChanged}
		if len(list) != len(back) || more != backMore || len(list) > maxDifferences {
			t.Fatalf("%v and %d more; turned round %v and %d more", list, more, back, backMore)
		}
		for i, d := range list {
			if len(d.Pointer) > maxPointer || back[i].Pointer != d.Pointer || back[i].Kind != turned[d.Kind] {
				t.Fatalf("%v turned round is %v", d, back[i])
			}
		}
	})
}

// TestMatch: what a record says of admitted and executed arguments, and why it
// says no more.
func TestMatch(t *testing.T) {
	ran := func(v any) tree { return set(post(2), "metadata.tool_input_executed", v) }
	redact := func(e tree, path string) tree {
		return set(e, "metadata.redaction", tree{"applied": true, "fields": []any{path}})
	}
	for _, tc := range []struct {
		name          string
		play          func(l *ledger)
		match, reason string
		places        []string
		more          int
	}{
		{"the same", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(post(2))
		}, matchEqual, "", nil, 0},
		{"another amount", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(ran(tree{"invoice": "A-17", "amount": 999}))
		}, matchDrift, "", []string{"changed /amount"}, 0},
		{"announced only, and something more", func(l *ledger) {
			l.event(pre(1))
			l.event(ran(tree{"invoice": "A-17", "amount": 120, "to": tree{"iban": "secret"}}))
		}, matchDrift, "", []string{"added /to"}, 0},
		{"very many", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			args := tree{"amount": 120, "invoice": "A-17"}
			for i := range 40 {
				args[fmt.Sprint("k", i)] = i
			}
			l.event(ran(args))
		}, matchDrift, "", nil, 8},
		{"another tool", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(set(post(2), "tool_name", "other"))
		}, matchDrift, "", nil, 0},
		{"redacted where it may differ", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(redact(ran(tree{"invoice": "***", "amount": 120}), "/tool_input_executed/invoice"))
		}, matchInconclusive, events.MatchRedacted, nil, 0},
		{"redacted there, and different elsewhere", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(redact(ran(tree{"invoice": "***", "amount": 121}), "/tool_input_executed/invoice"))
		}, matchDrift, "", []string{"changed /amount"}, 0},
		{"redacted, and too large to be kept", func(l *ledger) {
			l.opts.MaxArgsBytes = 10
			l.event(pre(1))
			l.event(redact(ran(tree{"invoice": "***", "amount": 121}), "/tool_input_executed/invoice"))
		}, matchInconclusive, events.MatchNotKept, nil, 0},
		{"different, and not kept", func(l *ledger) {
			l.opts.MaxArgsBytes = 10
			l.admit(pre(1), "d1", events.Allow)
			l.event(ran(tree{"amount": 1}))
		}, matchDrift, events.MatchNotKept, nil, 0},
		{"different, and only the digest of what was admitted", func(l *ledger) {
			l.decide(pre(1), "d1", events.Allow)
			l.event(ran(tree{"amount": 1}))
		}, matchDrift, events.MatchDigestOnly, nil, 0},
		{"announced with other arguments than were admitted", func(l *ledger) {
			l.decide(pre(1), "d1", events.Allow)
			l.event(set(pre(1), "tool_input.amount", 5))
			l.event(ran(tree{"amount": 1}))
		}, matchDrift, events.MatchDigestOnly, nil, 0},
		{"no key for the digest", func(l *ledger) {
			l.opts.TenantKey = nil
			l.decide(pre(1), "d1", events.Allow)
			l.event(post(2))
		}, matchInconclusive, events.MatchDigestForm, nil, 0},
		{"nobody says what ran", func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(set(post(2), "metadata.tool_input_executed", nil))
		}, matchInconclusive, events.MatchNotReported, nil, 0},
		{"nobody said what was admitted", func(l *ledger) {
			l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.ArgsDigest = "" })
			l.event(post(2))
		}, matchInconclusive, events.MatchNotReported, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			l.opts.RequireVerdict = false
			tc.play(l)
			r := l.run()
			calls := r.last()
			c := calls[len(calls)-1]
			if c.Match != tc.match || c.MatchReason != tc.reason || c.MoreDifferences != tc.more {
				t.Errorf("match %q because %q, %d more; want %q, %q, %d", c.Match, c.MatchReason, c.MoreDifferences, tc.match, tc.reason, tc.more)
			}
			if tc.more == 0 {
				if diff := cmp.Diff(append([]string{}, tc.places...), placesOf(c.Differences)); diff != "" {
					t.Error(diff)
				}
			}
			body, err := json.Marshal(c)
			if err != nil || strings.Contains(string(body), "secret") || strings.Contains(string(body), "999") {
				t.Errorf("a value is in %s", body)
			}
			if s := r.core.Stats(); s.ArgsBytes < 0 || (len(c.Differences) == 0 && s.ArgsBytes != 0) {
				t.Errorf("%d bytes of arguments are counted", s.ArgsBytes)
			}
		})
	}
}

// TestDifferencesAreBounded: what calls are remembered to differ in is counted
// with the arguments, and given back when they are forgotten.
func TestDifferencesAreBounded(t *testing.T) {
	l := newLedger(t)
	l.opts.MaxArgsBytes, l.opts.MaxClosedPerSession = 20_000, 8
	for i := range 200 {
		id := fmt.Sprint("c", i)
		before := set(pre(10+2*i), "metadata.tool_call_id", id)
		args := tree{}
		for k := range 40 {
			args[fmt.Sprint("a name of some length ", k)] = k
		}
		l.admit(before, "d"+id, events.Allow)
		l.event(set(set(post(11+2*i), "metadata.tool_call_id", id), "metadata.tool_input_executed", args))
	}
	core := New(l.opts)
	for _, m := range l.msgs {
		core.Apply(m)
		if s := core.Stats(); s.ArgsBytes > l.opts.MaxArgsBytes {
			t.Fatalf("%d bytes", s.ArgsBytes)
		}
	}
	reasons := map[string]int{}
	for _, c := range l.run().last() {
		reasons[c.MatchReason]++
	}
	if reasons[""] < 8 {
		t.Errorf("differences are known of %v", reasons)
	}
	l.idle(30 * 3600)
	if s := l.run().core.Stats(); s.ArgsBytes != 0 || s.Calls != 0 {
		t.Errorf("%d bytes, %d calls are left", s.ArgsBytes, s.Calls)
	}
}
