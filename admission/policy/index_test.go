package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events"
)

// The index finds everything that a walk through all finds, for policies and for
// rules alike.
func TestIndexLeavesNothingOut(t *testing.T) {
	names := rapid.SampledFrom([]string{"read", "Read", "read_file", "reading", "write", "db.query", "db.drop", "ſet", "été", ""})
	pattern := rapid.SampledFrom([]string{"read", "READ", "rea*", "read?file", "Re*", "d?.*", "db.*", "*", "*e", "write", "été", "é*"})
	actions := rapid.SampledFrom([]string{"", "send", "s*", "read"})
	operand := func(rt *rapid.T, name string, values *rapid.Generator[string]) string {
		list := rapid.SliceOfNDistinct(values, 0, 3, rapid.ID).Draw(rt, name)
		list = slices.DeleteFunc(list, func(v string) bool { return v == "" })
		if len(list) == 0 {
			return ""
		}
		return fmt.Sprintf("%s: ['%s']", name, strings.Join(list, "', '"))
	}
	match := func(rt *rapid.T, operands ...string) string {
		operands = slices.DeleteFunc(operands, func(o string) bool { return o == "" })
		if len(operands) == 0 {
			return ""
		}
		return "match: {" + strings.Join(operands, ", ") + "}"
	}
	verdict := rapid.SampledFrom([]string{"allow", "ask", "deny"})
	whens := rapid.SampledFrom([]string{"true", `tool == "read"`, `"Read" == tool && args.nope == 1`, `args.nope == 1 && tool == "read"`, `tool in ["read", "write"] || action == "send"`,
		`tool in ["db.*", "reading"]`, `(action == "send" && tool != "x") && args.nope == 1`, `event_type == "send"`, `tool == ""`, `!(tool == "read")`})
	rapid.Check(t, func(rt *rapid.T) {
		var docs []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "policies") {
			var rules []string
			for j := range rapid.IntRange(1, 4).Draw(rt, "rules") {
				m := match(rt, operand(rt, "tools", pattern), operand(rt, "actions", actions), operand(rt, "eventTypes", actions))
				if m != "" {
					m += ", "
				}
				when := whens.Draw(rt, "when")
				rules = append(rules, fmt.Sprintf("{name: r%d, %swhen: %q, verdict: %s, reason: r%d}", j, m, when, verdict.Draw(rt, "verdict"), j))
			}
			lines := []string{"rules: [" + strings.Join(rules, ", ") + "]"}
			if m := match(rt, operand(rt, "tenants", rapid.SampledFrom([]string{"acme", "a*", "evil"})), operand(rt, "tools", pattern), operand(rt, "actions", actions)); m != "" {
				lines = append(lines, m)
			}
			docs = append(docs, written(fmt.Sprintf("p%d", i), lines...))
		}
		set := compileDocs(t, docs...)
		walk := *set
		walk.index, walk.policies = index{}, nil
		for i, p := range set.policies {
			walk.index.add(i, indexEntry{})
			all := *p
			if all.ruleIndex != nil {
				all.ruleIndex = nil
			}
			walk.policies = append(walk.policies, &all)
		}
		in := call(names.Draw(rt, "tool"))
		in.Action, in.EventType = rapid.SampledFrom([]string{"", "send", "read"}).Draw(rt, "action"), rapid.SampledFrom([]string{"", "send"}).Draw(rt, "event")
		if got, want := codes(set.Evaluate(in)), codes(walk.Evaluate(in)); got != want {
			rt.Fatalf("%s, without the index %s", got, want)
		}
	})
}

func TestIndexIsBounded(t *testing.T) {
	var list []string
	for i := range MaxOperand {
		list = append(list, fmt.Sprintf("v%d", i))
	}
	x := &index{}
	x.add(0, indexEntry{tenants: list, names: list, actions: list, events: list})
	keys := 0
	for _, s := range x.buckets {
		keys += len(s.items)
	}
	if keys > maxKeys {
		t.Errorf("%d keys for one policy", keys)
	}
	if got := x.find(nil, indexQuery{indexKey: indexKey{"v1", "v2", "v3", "v4"}}); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// BenchmarkRules compares sets of different sizes: rules in policies of their
// own, and rules in few policies that have a match of their own or begin with
// tool == …
func BenchmarkRules(b *testing.B) {
	const when = `has(args.to) && args.to.endsWith("@example.com")`
	for _, n := range []int{10, 100, 1000} {
		var exact, globs, actions []string
		var inFew, byCondition [4][]string
		for i := range n {
			exact = append(exact, doc(fmt.Sprintf("p%d", i), fmt.Sprintf("{tools: [tool_%d]}", i), "allow ok: "+when))
			globs = append(globs, doc(fmt.Sprintf("p%d", i), fmt.Sprintf("{tools: ['tool_%d_*']}", i), "allow ok: "+when))
			actions = append(actions, doc(fmt.Sprintf("p%d", i), fmt.Sprintf("{actions: [action_%d]}", i), "allow ok: "+when))
			inFew[i%4] = append(inFew[i%4], fmt.Sprintf("{name: r%d, match: {tools: [tool_%d]}, when: '%s', verdict: allow, reason: ok}", i, i, when))
			byCondition[i%4] = append(byCondition[i%4], fmt.Sprintf("{name: r%d, when: 'tool == \"tool_%d\" && %s', verdict: allow, reason: ok}", i, i, when))
		}
		var few, conditions []string
		for i, rules := range inFew {
			conditions = append(conditions, written(fmt.Sprintf("few%d", i), "match: {tenants: [acme]}", "rules: ["+strings.Join(byCondition[i], ", ")+"]"))
			few = append(few, written(fmt.Sprintf("few%d", i), "match: {tenants: [acme]}", "rules: ["+strings.Join(rules, ", ")+"]"))
		}
		for _, c := range []struct {
			name string
			docs []string
			tool string
		}{
			{"policies", exact, fmt.Sprintf("tool_%d", n-1)}, {"patterns", globs, fmt.Sprintf("tool_%d_x", n-1)},
			{"actions", actions, "any"}, {"rules-in-4-policies", few, fmt.Sprintf("tool_%d", n-1)},
			{"conditions-in-4-policies", conditions, fmt.Sprintf("tool_%d", n-1)},
		} {
			set := compileDocs(b, c.docs...)
			in := call(c.tool)
			in.Action = fmt.Sprintf("action_%d", n-1)
			in.Args = map[string]any{"to": "a@example.com"}
			b.Run(fmt.Sprintf("%s-%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if set.Evaluate(in).Verdict != events.Allow {
						b.Fatal("not allowed")
					}
				}
			})
		}
	}
}
