package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func lintOf(docs ...string) []Finding {
	return Lint([]Document{{Name: "t", Data: []byte(strings.Join(docs, "---\n"))}})
}

func withoutEvaluatorAlone(findings []Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return f.Code == LintEvaluatorAlone })
}

func lintCodes(problems []Finding) string {
	var list []string
	for _, p := range problems {
		list = append(list, p.Code)
	}
	return strings.Join(list, " ")
}

// Every code has a case in which it is given and one, as near as possible, in
// which it is not.
func TestLint(t *testing.T) {
	narrow := func(rules ...string) string { return doc("p", "{tools: [x]}", rules...) }
	base := doc("base", "{tools: [base]}", "allow ok: true")
	denying := func(when string) string {
		return written("p", "match: {tools: [x]}", `variables: [{name: s, expression: shell.parse(tool)}, {name: t, expression: variables.s}, {name: safe, expression: 'variables.t.known && size(variables.t.writes) == 0'}]`,
			`rules: [{name: a, when: 'variables.s.commands.all(c, c.name == "ls")', verdict: allow, reason: a}, {name: b, when: "`+when+`", verdict: deny, reason: b}]`)
	}
	covered := map[string]bool{}
	for _, c := range []struct{ name, code, bad, good string }{
		{"does not compile", LintDoesNotCompile, narrow("allow a: nope == 1"), narrow("allow a: tool == 'x'")},
		{"no has", LintMissingHas, narrow("allow a: args.to == 'x'"), narrow("allow a: has(args.to) && args.to == 'x'")},
		{"has after", LintMissingHas, narrow("allow a: args.to == 'x' && has(args.cc)"), narrow("allow a: args.to == 'x' && has(args.to)")},
		{"has of the parent only", LintMissingHas, narrow("allow a: has(args.a) && args.a.b == 1"), narrow("allow a: has(args.a) && has(args.a.b) && args.a.b == 1")},
		{"has without its parent", LintMissingHas, narrow("allow a: has(args.a.b) && args.a.b == 1"), narrow("allow a: has(args.a) && has(args.a.b) && args.a.b == 1")},
		{"or", LintMissingHas, narrow("allow a: has(args.a) || args.a == 1"), narrow("allow a: !has(args.a) || args.a == 1")},
		{"not", LintMissingHas, narrow("allow a: !has(args.a) && args.a == 1"), narrow("allow a: !(!has(args.a) || args.a != 1)")},
		{"conditional", LintMissingHas, narrow("allow a: (has(args.a) ? true : args.a == 1)"), narrow("allow a: (has(args.a) ? args.a == 1 : false)")},
		{"in", LintMissingHas, narrow(`allow a: "b" in args && args["a"] == 1`), narrow(`allow a: "a" in args && args["a"] == 1`)},
		{"either", LintMissingHas, narrow("allow a: (has(args.a) || has(args.b)) && args.a == 1"), narrow("allow a: (has(args.a) && args.b == 1 || has(args.a)) && args.a == 1 && has(args.b)")},
		{"event", LintMissingHas, narrow("allow a: event.x == 1"), narrow("allow a: has(event.x) && event.x == 1")},
		{"resource", LintMissingHas, narrow("allow a: resource.x == 1"), narrow("allow a: has(resource.x) && resource.x == 1")},
		{"catalog", LintMissingHas, narrow("allow a: catalog.risk == 'low'"), narrow("allow a: catalog.known == true")},
		{"in a loop", LintMissingHas, narrow("allow a: args.list.exists(x, x == 1)"), narrow("allow a: has(args.list) && args.list.exists(x, x == 1)")},
		{"by a variable", LintMissingHas, written("p", "match: {tools: [x]}", "variables: [{name: ok, expression: 'has(args.b)'}]", ruleOf("allow", "variables.ok && args.a == 1")),
			written("p", "match: {tools: [x]}", "variables: [{name: ok, expression: 'has(args.a)'}]", ruleOf("allow", "variables.ok && args.a == 1"))},
		{"in an amount", LintMissingHas, written("p", "match: {tools: [x]}", ruleOf("deny", "has(args.a)", "limit: {max: 1, per: 1m, by: [source], amount: 'int(args.b)'}")),
			written("p", "match: {tools: [x]}", ruleOf("deny", "has(args.a)", "limit: {max: 1, per: 1m, by: [source], amount: '(has(args.b) ? int(args.b) : 0)'}"))},
		{"a claim alone", LintClaimAlone, doc("p", "{tools: ['db.*']}", "allow a: action == 'read'"), doc("p", "{tools: ['db.*']}", "allow a: action == 'read' && tool == 'db.query'")},
		{"a claim or a fact", LintClaimAlone, doc("p", "{tools: ['db.*']}", "allow a: action == 'read' || tool == 'db.query'"), doc("p", "{tools: ['db.*']}", "deny a: action == 'read' || tool == 'db.query'")},
		{"a claim about one tool", LintClaimAlone, doc("p", "{tools: [x, y]}", "allow a: !(has(risk.irreversible) && risk.irreversible == true)"), doc("p", "{tools: [x]}", "allow a: !(has(risk.irreversible) && risk.irreversible == true)")},
		{"a claim in match", LintClaimAlone, doc("p", "{tools: ['db.*'], actions: [read]}", "allow a: true"), doc("p", "{tools: ['db.*'], actions: [read]}", "allow a: has(args.q) && args.q == 'x'")},
		{"a claim by a variable", LintClaimAlone, written("p", "match: {tools: ['db.*']}", "variables: [{name: reads, expression: 'action == \"read\"'}]", ruleOf("allow", "variables.reads")),
			written("p", "match: {tools: ['db.*']}", "variables: [{name: reads, expression: 'catalog.known == true && action == \"read\"'}]", ruleOf("allow", "variables.reads"))},
		{"a member of the event", LintClaimAlone, doc("p", "{tools: ['db.*']}", "allow a: has(event.action) && event.action == 'read'"), doc("p", "{tools: ['db.*']}", "allow a: has(event.tool_name) && event.tool_name == 'db.query'")},
		{"commands that may be unknown", LintMissingKnown, narrow("allow a: shell.parse(tool).commands.all(c, c.known && c.name == 'ls')"), narrow("allow a: shell.parse(tool).known && shell.parse(tool).commands.all(c, c.name == 'ls')")},
		{"statements, in a variable", LintMissingKnown, written("p", "match: {tools: [x]}", "variables: [{name: q, expression: 'sql.statements(tool)'}, {name: reads, expression: 'variables.q.statements.all(s, s.reads)'}]", ruleOf("allow", "variables.reads")),
			written("p", "match: {tools: [x]}", "variables: [{name: q, expression: 'sql.statements(tool)'}, {name: reads, expression: 'variables.q.known && variables.q.statements.all(s, s.reads)'}]", ruleOf("allow", "variables.reads"))},
		{"a patch", LintMissingKnown, narrow("allow a: diff.files(tool).files.all(f, f.action == 'add')", "ask b: size(tool) > 3"), narrow("allow a: diff.files(tool).files.all(f, f.action == 'add')", "ask b: !diff.files(tool).known")},
		{"known of another text", LintMissingKnown, narrow("allow a: shell.parse(tool).known && shell.parse(source).commands.all(c, c.name == 'ls')"), narrow("allow a: shell.parse(source).known && shell.parse(source).commands.all(c, c.name == 'ls')")},
		{"a deny of another text", LintMissingKnown, narrow("allow a: shell.parse(tool).commands.all(c, c.name == 'ls')", "deny b: !shell.parse(source).known"), narrow("allow a: shell.parse(tool).commands.all(c, c.name == 'ls')", "deny b: !shell.parse( tool ).known")},
		{"a deny of what is known", LintMissingKnown, denying("variables.safe"), denying("!variables.safe")},
		{"each text of a list", LintMissingKnown, narrow("allow a: has(args.l) && args.l.all(t, shell.parse(t).commands.all(c, c.name == 'ls'))", "deny b: has(args.l) && args.l.exists(t, shell.parse(t).known)"),
			narrow("allow a: has(args.l) && args.l.all(t, shell.parse(t).commands.all(c, c.name == 'ls'))", "deny b: has(args.l) && args.l.exists(t, !shell.parse(t).known)")},
		{"an allow of what is not known", LintMissingKnown, narrow("allow a: !shell.parse(tool).known && shell.parse(tool).commands.all(c, c.name == 'ls')"), narrow("allow a: (shell.parse(tool).known ? shell.parse(tool).commands.all(c, c.name == 'ls') : false)")},
		{"a deny without known", LintMissingKnown, narrow("allow a: size(shell.parse(tool).writes) == 0"), narrow("deny a: shell.parse(tool).commands.exists(c, c.name == 'rm')")},
		{"a subcommand that may be unknown", LintMissingKnown, narrow("allow a: cli.view(['git', tool]).command == 'status'"), narrow("allow a: cli.view(['git', tool]).known && cli.view(['git', tool]).command == 'status'")},
		{"a subcommand of a known script", LintMissingKnown, narrow("allow a: shell.parse(tool).known && shell.parse(tool).commands.all(c, cli.view(c.words).command == 'status')"),
			narrow("allow a: shell.parse(tool).known && shell.parse(tool).commands.all(c, cli.view(c.words).known && cli.view(c.words).command == 'status')")},
		{"a URL", LintMissingKnown, narrow("allow a: url.parse(tool).host == 'a.example'"), narrow("allow a: url.parse(tool).host == 'a.example'", "deny b: !url.parse(tool).known")},
		{"known or else", LintMissingKnown, narrow("allow a: shell.parse(tool).known || shell.parse(tool).commands.all(c, c.name == 'ls')"), narrow("allow a: tool == 'x' || shell.parse(tool).known && shell.parse(tool).commands.all(c, c.name == 'ls')")},
		{"known in one of two", LintMissingKnown, narrow("allow a: (shell.parse(tool).known || size(shell.parse(tool).writes) == 0) && shell.parse(tool).commands.all(c, c.name == 'ls')"),
			narrow("allow a: (shell.parse(tool).known || tool == '') && shell.parse(tool).commands.all(c, c.name == 'ls')")},
		{"known of each of a list", LintMissingKnown, narrow("allow a: has(args.l) && !args.l.map(t, url.parse(t)).exists(u, u.host != 'a.example')"), narrow("allow a: has(args.l) && !args.l.map(t, url.parse(t)).exists(u, !u.known || u.host != 'a.example')")},
		{"known or else, in variables", LintMissingKnown, written("p", "match: {tools: [x]}", "variables: [{name: s, expression: 'shell.parse(tool)'}, {name: asks, expression: 'variables.s.known'}]", ruleOf("allow", "variables.asks || size(variables.s.writes) == 0")),
			written("p", "match: {tools: [x]}", "variables: [{name: s, expression: 'shell.parse(tool)'}, {name: asks, expression: 'variables.s.known'}]", ruleOf("allow", "variables.asks && tool == 'x' || variables.asks && size(variables.s.writes) == 0"))},
		{"one text of a list", LintMissingKnown, narrow("allow a: has(args.l) && args.l.exists(t, shell.parse(t).commands.all(c, c.name == 'ls'))"),
			narrow("allow a: has(args.l) && args.l.exists(t, shell.parse(t).known && shell.parse(t).commands.all(c, c.name == 'ls'))")},
		{"concatenation in a loop", LintUnboundedGrowth, narrow("allow a: has(args.l) && has(args.s) && args.l.map(x, args.s + args.s).size() > 0"), narrow("allow a: has(args.l) && args.l.map(x, x + '.').size() > 0")},
		{"copies in a loop", LintUnboundedGrowth, narrow("allow a: has(args.l) && has(args.s) && args.l.exists(x, x in [args.s])"), narrow("allow a: has(args.l) && has(args.s) && args.l.exists(x, x == args.s)")},
		{"a variable in a loop", LintUnboundedGrowth, written("p", "match: {tools: [x]}", "variables: [{name: s, expression: 'has(args.s) ? args.s : 0'}]", ruleOf("allow", "has(args.l) && args.l.exists(x, variables.s + 'a' == x)")),
			written("p", "match: {tools: [x]}", "variables: [{name: s, expression: 'has(args.s) ? args.s : 0'}]", ruleOf("allow", "has(args.l) && args.l.exists(x, variables.s == x)"))},
		{"replace by the request", LintUnboundedGrowth, narrow("allow a: has(args.s) && has(args.t) && args.s.replace('a', args.t) == 'x'"), narrow("allow a: has(args.s) && args.s.replace('a', 'b') == 'x'")},
		{"join by the request", LintUnboundedGrowth, narrow("allow a: has(args.l) && has(args.s) && args.l.join(args.s) == 'x'"), narrow("allow a: has(args.l) && args.l.join(',') == 'x'")},
		{"format by the request", LintUnboundedGrowth, narrow("allow a: has(args.s) && args.s.format([1]) == 'x'"), narrow("allow a: has(args.s) && '%s'.format([args.s]) == 'x'")},
		{"a protocol", LintDeadPattern, doc("p", "{protocols: [AgentHook], tools: [x]}", "deny a: true"), doc("p", "{protocols: ['agent*'], tools: [x]}", "deny a: true")},
		{"a regular expression", LintDeadPattern, doc("p", "{tools: ['^send_.*$']}", "deny a: true"), doc("p", "{tools: ['send_*']}", "deny a: true")},
		{"a regular expression of a rule", LintDeadPattern, written("p", "match: {tools: ['*']}", ruleOf("deny", "has(args.a)", "match: {tools: ['send_(a|b)']}")), written("p", "match: {tools: ['*']}", ruleOf("deny", "has(args.a)", "match: {tools: ['send_?']}"))},
		{"a URL for a host", LintDeadPattern, narrow(`deny a: host.matches(tool, ["a.example", "https://evil.example"])`), narrow(`deny a: host.matches(tool, ["a.example", "*.evil.example", "10.0.0.1"])`)},
		{"a port, in a variable", LintDeadPattern, written("p", "match: {tools: [x]}", "params: {hosts: ['a.example:443']}", "variables: [{name: evil, expression: 'host.matches(tool, params.hosts)'}]", ruleOf("deny", "variables.evil")),
			written("p", "match: {tools: [x]}", "params: {hosts: ['a.example']}", "variables: [{name: evil, expression: 'host.matches(tool, params.hosts)'}]", ruleOf("deny", "variables.evil"))},
		{"stars", LintDeadPattern, narrow(`deny a: [tool].exists(t, host.matches(t, ["*.evil.*"]))`), narrow(`deny a: [tool].exists(t, host.matches(t, ["*.evil"]))`)},
		{"an allow with a limit", LintDeadRule, written("p", "match: {tools: [x]}", ruleOf("allow", "true", "limit: {max: 1, per: 1m, by: [source]}")), written("p", "match: {tools: [x]}", ruleOf("ask", "true", "limit: {max: 1, per: 1m, by: [source]}"))},
		{"a fallback", LintFallbackFloor, written("p", "fallback: true", ruleOf("ask", "true")), written("p", "match: {tenants: [acme]}", "fallback: true", ruleOf("ask", "true"))},
		{"false", LintDeadRule, narrow("deny a: false"), narrow("deny a: has(args.a)")},
		{"constant", LintDeadRule, narrow("deny a: 1 > 2"), narrow("deny a: 1 < 2")},
		{"false in part", LintDeadRule, narrow("deny a: tool == 'x' && false"), narrow("deny a: tool == 'x' || false")},
		{"params", LintDeadRule, written("p", "match: {tools: [x]}", "params: {on: false}", ruleOf("deny", "params.on")), written("p", "match: {tools: [x]}", "params: {on: true}", ruleOf("deny", "params.on"))},
		{"tool", LintDeadRule, narrow(`deny a: tool == "y"`), narrow(`deny a: tool == "x"`)},
		{"tools", LintDeadRule, narrow(`deny a: tool in ["y", "z"]`), narrow(`deny a: tool in ["y", "x"]`)},
		{"operands", LintDeadRule, written("p", "match: {tools: ['a*']}", ruleOf("deny", "true", "match: {tools: [b]}")), written("p", "match: {tools: ['a*']}", ruleOf("deny", "true", "match: {tools: [ab]}"))},
		{"actions", LintDeadRule, written("p", "match: {actions: [send]}", ruleOf("deny", "true", "match: {actions: [read]}")), written("p", "match: {actions: [send]}", ruleOf("deny", "true", "match: {actions: ['s*']}"))},
		{"stricter", LintShadowedRule, narrow("allow a: has(args.a)", "deny b: has(args.a)"), narrow("allow a: has(args.a)", "deny b: has(args.b)")},
		{"always stricter", LintShadowedRule, narrow("deny a: true", "ask b: has(args.b)"), narrow("ask a: true", "deny b: has(args.b)")},
		{"of another policy", LintShadowedRule, narrow("ask a: has(args.a)") + "---\n" + doc("q", "{tools: [x]}", "deny a: has(args.a)"), narrow("ask a: has(args.a)") + "---\n" + doc("q", "{tools: [y]}", "deny a: has(args.a)")},
		{"stricter with a limit", LintShadowedRule, written("p", "match: {tools: [x]}", "rules: [{name: a, when: 'has(args.a)', verdict: allow, reason: a}, {name: b, when: 'has(args.a)', verdict: deny, reason: b}]"),
			written("p", "match: {tools: [x]}", "rules: [{name: a, when: 'has(args.a)', verdict: allow, reason: a}, {name: b, when: 'has(args.a)', limit: {max: 1, per: 1m, by: [source]}, verdict: deny, reason: b}]")},
		{"stricter for others", LintShadowedRule, written("p", "match: {tools: [x, y]}", "rules: [{name: a, when: 'has(args.a)', match: {tools: [x]}, verdict: allow, reason: a}, {name: b, when: 'has(args.a)', verdict: deny, reason: b}]"),
			written("p", "match: {tools: [x, y]}", "rules: [{name: a, when: 'has(args.a)', match: {tools: [x]}, verdict: allow, reason: a}, {name: b, when: 'has(args.a)', match: {tools: [y]}, verdict: deny, reason: b}]")},
		{"twice", LintDuplicateRule, narrow("deny a: has(args.a)", "deny b:  has(args.a)"), narrow("deny a: has(args.a)", "deny b: !has(args.a)")},
		{"catch-all", LintCatchAllAllow, doc("p", "", "allow a: true"), doc("p", "{tools: ['x*']}", "allow a: true")},
		{"catch-all by pattern", LintCatchAllAllow, doc("p", "{tools: ['*']}", "allow a: 1 == 1"), doc("p", "{tools: [x]}", "allow a: 1 == 1")},
		{"catch-all of tenants", LintCatchAllAllow, doc("p", "{tenants: [acme]}", "allow a: true"), doc("p", "{tenants: [acme]}", "deny a: true")},
		{"catch-all of a protocol", LintCatchAllAllow, doc("p", "{protocols: [agenthook, aana]}", "allow a: true"), doc("p", "{protocols: [aana, aump]}", "allow a: true")},
		{"catch-all by the built-in policy", LintCatchAllAllow, narrow("allow a: true") + "---\nbuiltin: evaluators-only\n", narrow("deny a: has(args.a)", "ask b: has(args.b)") + "---\nbuiltin: evaluators-only\n"},
		{"unused param", LintUnusedParam, written("p", "match: {tools: [x]}", "params: {a: 1}", allowed), written("p", "match: {tools: [x]}", "params: {a: 1}", ruleOf("allow", "params.a < now.getHours()"))},
		{"unused document", LintUnusedParam, other("Params", "q", "{a: 1}") + "---\n" + narrow("deny a: true"), other("Params", "q", "{a: 1}") + "---\n" + written("p", "match: {tools: [x]}", "paramsFrom: [q]", allowed)},
		{"unused variable", LintUnusedVariable, written("p", "match: {tools: [x]}", "variables: [{name: a, expression: '1'}]", allowed),
			written("p", "match: {tools: [x]}", "variables: [{name: a, expression: '1'}, {name: b, expression: 'variables.a + 1'}]", ruleOf("allow", "variables.b < now.getHours()"))},
		{"unused group", LintUnusedGroup, other("ReviewerGroup", "g", "{members: [a]}") + "---\n" + narrow("deny a: true"),
			other("ReviewerGroup", "g", "{members: [a]}") + "---\n" + written("p", "match: {tools: [x]}", "approval: {reviewers: [g]}", ruleOf("ask", "true"))},
		{"reviewers of others", LintUnreachableQuorum, other("ReviewerGroup", "g", "{members: [a], tenants: [evil]}") + "---\n" + written("p", "match: {tools: [x], tenants: [acme]}", "approval: {reviewers: [g]}", ruleOf("ask", "true")),
			other("ReviewerGroup", "g", "{members: [a], tenants: ['a*']}") + "---\n" + written("p", "match: {tools: [x], tenants: [acme]}", "approval: {reviewers: [g]}", ruleOf("ask", "true"))},
		{"a limit by a claim", LintClaimAlone, written("p", "match: {tools: [x]}", ruleOf("deny", "true", "limit: {max: 1, per: 1m, by: [source, agent]}")), written("p", "match: {tools: [x]}", ruleOf("deny", "true", "limit: {max: 1, per: 1m, by: [source, tool]}"))},
		{"another protocol", LintEvaluatorAlone, doc("p", "{protocols: [agenthook]}", "allow a: tool == 'x'"), doc("p", "{protocols: [agenthook]}", "allow a: tool == 'x'") + "---\n" + doc("q", "{protocols: [aana, aump]}", "deny a: true")},
		{"one of two protocols", LintEvaluatorAlone, doc("p", "{protocols: [agenthook, aana]}", "allow a: tool == 'x'"), doc("p", "{protocols: ['a*']}", "allow a: tool == 'x'")},
		{"event types", LintEvaluatorAlone, doc("p", "{eventTypes: [PreToolUse]}", "allow a: tool == 'x'"), doc("p", "", "ask a: tool == 'x'")},
		{"a list of tools", LintEvaluatorAlone, doc("p", "{tools: ['send_*']}", "allow a: true"), doc("p", "{tools: ['send_*'], protocols: [agenthook, aana, aump]}", "allow a: true")},
		{"a deny of tools", LintEvaluatorAlone, doc("p", "{tools: ['send_*']}", "deny a: true"), doc("p", "{tools: ['*']}", "deny a: true")},
		{"a condition of tools", LintEvaluatorAlone, doc("p", "", "allow a: tool == 'x'"), doc("p", "", "allow a: tool == 'x'", "deny b: tool == 'y'")},
		{"handoffs", LintEvaluatorAlone, doc("p", "{toAgents: [x]}", "allow a: true"), doc("p", "{toAgents: [x]}", "allow a: true") + "---\nbuiltin: evaluators-only\n"},
		{"another tenant", LintEvaluatorAlone, doc("p", "{protocols: [tool], tenants: [acme]}", "allow a: tool == 'x'") + "---\n" + doc("q", "{tenants: [globex]}", "allow a: tool == 'x'"),
			doc("p", "{protocols: [tool], tenants: [acme]}", "allow a: tool == 'x'") + "---\n" + doc("q", "{tenants: ['ac*']}", "deny a: tool == 'x'")},
		{"limit without by", LintLimitWithoutBy, written("p", "match: {tools: [x]}", ruleOf("deny", "true", "limit: {max: 1, per: 1m, by: [tenant]}")), written("p", "match: {tools: [x]}", ruleOf("deny", "true", "limit: {max: 1, per: 1m, by: [session]}"))},
	} {
		covered[c.code] = true
		t.Run(c.name, func(t *testing.T) {
			bad, good := lintOf(c.bad), lintOf(c.good)
			if c.code != LintEvaluatorAlone { // of which it says nothing
				good = withoutEvaluatorAlone(good)
			}
			i := slices.IndexFunc(bad, func(p Finding) bool { return p.Code == c.code })
			if i < 0 {
				t.Fatalf("not found, only %q in\n%s", lintCodes(bad), c.bad)
			}
			if p := bad[i]; p.Document != "t" || p.Line < 1 || p.Message == "" || p.Remedy == "" || p.Severity == "" {
				t.Errorf("%+v", p)
			}
			if len(good) > 0 {
				t.Errorf("%+v in\n%s", good, c.good)
			}
		})
	}
	trial := written("p", "match: {tools: [x]}", "validationActions: [audit]", allowed)
	if got := lintCodes(lintOf(trial)); got != LintNothingEnforced {
		t.Error(got)
	}
	if got := withoutEvaluatorAlone(lintOf(trial, base)); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	covered[LintNothingEnforced] = true
	for code := range remedies {
		if !covered[code] {
			t.Errorf("%s has no case", code)
		}
	}
}

func TestLintSaysWhere(t *testing.T) {
	got := Lint([]Document{
		{Name: "b", Data: []byte(doc("p", "", "allow a: true"))},
		{Name: "a", Data: []byte("# first\n" + written("q", "match: {tools: [x]}", "rules:", "  - name: one", "    when: >-", "      args.to == 'x'", "    verdict: deny", "    reason: r"))},
	})
	if len(got) != 2 || fmt.Sprintf("%s:%d %s %s", got[0].Document, got[0].Line, got[0].Rule, got[0].Code) != "b:6 p/r0 catch_all_allow" ||
		fmt.Sprintf("%s:%d %s %s", got[1].Document, got[1].Line, got[1].Rule, got[1].Code) != "a:9 q/one missing_has" {
		t.Errorf("%+v", got)
	}
	for _, docs := range [][]Document{nil, {{Name: "x"}}, {{Name: "x", Data: []byte("a: [")}}} {
		if got := Lint(docs); len(got) != 1 || got[0].Code != LintDoesNotCompile || got[0].Severity != SeverityError {
			t.Errorf("%+v", got)
		}
	}
	if got := lintOf("builtin: evaluators-only\n"); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
