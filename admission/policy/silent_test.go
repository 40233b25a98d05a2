package policy

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// Silence is that the tenant has policies and no rule spoke, and nothing else.
func TestSilent(t *testing.T) {
	set := compileDocs(t, doc("a", "{tenants: [acme], tools: [read]}", "deny no_policy_match: args.x == 1", "allow ok: args.x == 2"))
	with := func(x any) Input {
		in := call("read")
		in.Args = map[string]any{"x": x}
		return in
	}
	stranger, deceptive := call("read"), call("re\u200bad")
	stranger.Tenant = "evil"
	for name, c := range map[string]struct {
		in   Input
		want bool
	}{
		"no rule matched":        {with("3"), true},
		"another tool":           {call("write"), true},
		"a rule of that name":    {with(int64(1)), false},
		"a rule allowed":         {with(int64(2)), false},
		"a condition failed":     {call("read"), false},
		"no policy":              {stranger, false},
		"a deceptive name":       {deceptive, false},
		"a name in another case": {call("READ"), false},
	} {
		if v := set.Evaluate(c.in); v.NoRuleMatched() != c.want || c.want && v.Verdict != events.Deny {
			t.Errorf("%s: %v (%v)", name, v.NoRuleMatched(), v.Reasons)
		}
	}
	if (Result{}).NoRuleMatched() {
		t.Error("the zero verdict is silence")
	}
}
