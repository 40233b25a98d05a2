package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
)

// written makes a policy out of the lines of its spec.
func written(name string, spec ...string) string {
	return "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: " + name + "}\nspec:\n  " + strings.Join(spec, "\n  ") + "\n"
}

func other(kind, name, spec string) string {
	return "apiVersion: countersign.dev/v1\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

const allowed = "rules: [{name: r, when: 'true', verdict: allow, reason: ok}]"

func ruleOf(verdict, when string, more ...string) string {
	return "rules: [{name: r, when: " + fmt.Sprintf("%q", when) + ", verdict: " + verdict + ", reason: r" + strings.Join(append([]string{""}, more...), ", ") + "}]"
}

func TestVariablesAndParams(t *testing.T) {
	shared := other("Params", "mail", "{domains: [acme.example, acme.org], limit: 500, ratio: 0.5, on: true, deep: {a: [1, 2], b: [x]}}")
	in := call("send")
	in.Args = tree(t, `{"to":"a@acme.org","amount":7,"n":1.5}`)
	for when, want := range map[string]string{
		`variables.domain in params.domains`: "allow r", `variables.domain == "acme.org" && variables.local == "a"`: "allow r",
		`params.limit > int(args.amount) && params.ratio < 1.0 && params.on && params.own == "x"`: "allow r",
		`params.deep.a[1] == 2 && params.deep["b"][0] == "x"`:                                     "allow r",
		`args.n in [1.5] && !("evil.example" in params.domains) && !(5 in params.deep.a)`:         "allow r",
		`params.domains.exists(d, d == "acme.org") && size(params.domains) == 2`:                  "allow r",
		`variables.broken == 1`: "deny policy_error", `true || variables.broken == 1`: "allow r", `false && variables.broken == 1`: "deny no_policy_match",
	} {
		set := compileDocs(t, shared, written("p", "paramsFrom: [mail]", `params: {own: x}`,
			`variables:`, `  - {name: parts, expression: 'string(args.to).split("@")'}`, `  - {name: local, expression: 'variables.parts[0]'}`,
			`  - {name: domain, expression: 'variables.parts[1]'}`, `  - {name: broken, expression: 'args.nope'}`, ruleOf("allow", when)))
		t.Run(when, func(t *testing.T) { expect(t, set.Evaluate(in), want) })
	}
}

// A variable is evaluated at most once for a call, only if an expression reads it, and its cost
// is added to the condition's.
func TestVariablesAreLazyAndCounted(t *testing.T) {
	var rules []string
	for i := range 50 {
		rules = append(rules, fmt.Sprintf("{name: r%d, when: 'variables.many && args.n > %d', verdict: allow, reason: ok}", i, i))
	}
	set := compileDocs(t, written("p", "variables:", "  - {name: many, expression: 'args.list.all(x, args.list.all(y, y >= 0))'}",
		"rules: ["+strings.Join(rules, ", ")+"]"))
	in := call("x")
	list := func(n int) map[string]any {
		return map[string]any{"n": int64(100), "list": slices.Repeat([]any{int64(1)}, n)}
	}
	// About a third of what may be spent: were it worked out for every rule, the
	// sum would be far beyond.
	in.Args = list(260)
	if got := set.Evaluate(in); got.Verdict != events.Allow || len(got.Reasons) != 50 {
		t.Fatalf("%s after %d reasons", got.Verdict, len(got.Reasons))
	}
	in.Args = list(1000)
	if got := set.Evaluate(in); got.Fault != FaultLimit || got.Reasons[0].Code != CodePolicyError {
		t.Errorf("%+v", got.Reasons[0])
	}
	// Nor can CEL's own tolerance of errors hide it.
	set = compileDocs(t, written("p", "variables: [{name: many, expression: 'args.list.all(x, args.list.all(y, y >= 0))'}]", ruleOf("allow", "variables.many || true")))
	expect(t, set.Evaluate(in), "deny policy_error")
	set = compileDocs(t, written("p", "variables: [{name: many, expression: 'args.list.all(x, args.list.all(y, y >= 0))'}]", ruleOf("allow", "true || variables.many")))
	expect(t, set.Evaluate(in), "allow r")
	// Several variables share what may be spent.
	set = compileDocs(t, written("p", "variables:", "  - {name: a, expression: 'args.list.all(x, args.list.all(y, y >= 0))'}",
		"  - {name: b, expression: 'args.list.all(x, args.list.all(y, y >= 0))'}", "  - {name: c, expression: 'args.list.all(x, args.list.all(y, y >= 0))'}",
		ruleOf("allow", "variables.a && variables.b && variables.c")))
	in.Args = list(350)
	expect(t, set.Evaluate(in), "deny policy_error")
}

func TestMistakesInTheNewLanguage(t *testing.T) {
	long := strings.Repeat("a", 70)
	for name, c := range map[string]struct{ text, want string }{
		"unknown params document":   {written("p", "paramsFrom: [nobody]", allowed), "t:5: policy p: paramsFrom names nobody"},
		"param twice":               {other("Params", "a", "{x: 1}") + "---\n" + written("p", "params: {x: 2}", "paramsFrom: [a]", allowed), "t:11: policy p: the param x of a is there already, from spec.params"},
		"param of two documents":    {other("Params", "a", "{x: 1}") + "---\n" + other("Params", "b", "{x: 1}") + "---\n" + written("p", "paramsFrom: [a, b]", allowed), "the param x of b is there already, from a"},
		"unknown param":             {written("p", "params: {x: 1}", ruleOf("allow", "params.y == 1")), "undeclared reference"},
		"param of another type":     {written("p", "params: {x: 1}", ruleOf("allow", "params.x == 'a'")), "when is not valid CEL"},
		"empty params":              {written("p", "params: {}", allowed), "t:5: spec.params is empty"},
		"params no mapping":         {written("p", "params: [a]", allowed), "t:5: spec.params must be a mapping"},
		"empty list":                {written("p", "params: {x: []}", allowed), "t:5: the param x is empty"},
		"null param":                {written("p", "params: {x: }", allowed), "t:5: the param x must be"},
		"date":                      {written("p", "params: {x: 2026-01-01}", allowed), "t:5: the param x must be"},
		"large number":              {written("p", "params: {x: 9007199254740993}", allowed), "t:5: the param x must be"},
		"infinite":                  {written("p", "params: {x: .inf}", allowed), "t:5: the param x must be"},
		"too deep":                  {written("p", "params: {x: [[[[[[1]]]]]]}", allowed), "more than 4 levels"},
		"alias in params":           {written("p", "params: {x: &a 1, y: *a}", allowed), "an alias"},
		"a word of CEL":             {written("p", "params: {in: 1}", allowed), "no word of CEL's own"},
		"bad param name":            {written("p", "params: {Bad-name: 1}", allowed), "must look like"},
		"long param name":           {written("p", "params: {"+long+": 1}", allowed), "must look like"},
		"unknown key of params doc": {strings.Replace(other("Params", "a", "{x: 1}"), "spec:", "spce:", 1), "the params document has no key"},
		"same params twice":         {other("Params", "a", "{x: 1}") + "---\n" + other("Params", "a", "{x: 1}"), "the name a is taken by the params document at t:1"},
		"only params":               {other("Params", "a", "{x: 1}"), "there is no policy"},
		"variable later":            {written("p", "variables: [{name: a, expression: 'variables.b'}, {name: b, expression: '1'}]", allowed), "t:5: policy p, variable a"},
		"variable of itself":        {written("p", "variables: [{name: a, expression: 'variables.a + 1'}]", allowed), "undeclared reference"},
		"variable twice":            {written("p", "variables: [{name: a, expression: '1'}, {name: a, expression: '1'}]", allowed), "two variables are named a"},
		"variable without a name":   {written("p", "variables: [{expression: '1'}]", allowed), "a variable needs name"},
		"variable costs":            {written("p", "variables: [{name: a, expression: 'args.a.all(x, x.all(y, y.all(z, z == 1)))'}]", allowed), "the expression may cost more"},
		"variables cost together": {written("p", "variables: [{name: a, expression: 'args.a.all(x, args.b.all(y, string(y).contains(\"abcdefghijklmno\")))'}, {name: b, expression: 'variables.a && args.c.all(x, args.b.all(y, string(y).contains(\"abcdefghijklmno\")))'}]",
			ruleOf("allow", `variables.b && args.d.all(x, args.b.all(y, string(y).contains("abcdefghijklmno")))`)), "when may cost more"},
		"scope":                    {written("p", "scope: Global", allowed), "spec.scope"},
		"global with tenants":      {written("p", "scope: global", "match: {tenants: [a]}", allowed), "a policy of scope global is for all tenants"},
		"tenant without tenants":   {written("p", "scope: tenant", allowed), "a policy of scope tenant needs match.tenants"},
		"actions empty":            {written("p", "validationActions: []", allowed), "spec.validationActions is empty"},
		"actions unknown":          {written("p", "validationActions: [deny]", allowed), "an entry of spec.validationActions"},
		"enforce and audit":        {written("p", "validationActions: [enforce, audit]", allowed), "enforce goes with nothing else"},
		"action twice":             {written("p", "validationActions: [audit, audit]", allowed), "lists audit twice"},
		"unknown reviewers":        {written("p", "approval: {reviewers: [nobody]}", ruleOf("ask", "true")), "t:5: policy p: approval names the reviewers nobody"},
		"unknown reviewers, rule":  {written("p", ruleOf("ask", "true", "approval: {reviewers: [nobody]}")), "t:5: policy p: approval names the reviewers nobody"},
		"quorum out of reach":      {other("ReviewerGroup", "g", "{members: [anna]}") + "---\n" + written("p", "approval: {reviewers: [g], quorum: 2}", ruleOf("ask", "true")), "wants 2 reviewers, and its groups have 1"},
		"quorum of the policy":     {other("ReviewerGroup", "g", "{members: [anna]}") + "---\n" + written("p", "approval: {quorum: 2}", ruleOf("ask", "true", "approval: {reviewers: [g]}")), "wants 2 reviewers"},
		"time zone":                {written("p", ruleOf("ask", `[1].exists(x, now.getHours("Europe/Berln") == x)`)), `the time zone "Europe/Berln", which is none`},
		"time zone in a param":     {written("p", "params: {zone: Europe/Berln}", ruleOf("ask", "now.getHours(params.zone) > 18")), `the time zone "Europe/Berln", which is none`},
		"time zone too far away":   {written("p", ruleOf("ask", `now.getHours("+25:00") > 18`)), `the time zone "+25:00", which is none`},
		"time zone in a variable":  {written("p", "variables: [{name: late, expression: 'now.getDayOfWeek(\"Local\") > 4'}]", ruleOf("ask", "variables.late")), `the time zone "Local", which is none`},
		"quorum zero":              {written("p", "approval: {quorum: 0}", ruleOf("ask", "true")), "quorum must be a whole number between 1 and 16"},
		"quorum text":              {written("p", "approval: {quorum: '2'}", ruleOf("ask", "true")), "quorum must be a whole number"},
		"resume":                   {written("p", "approval: {resume: at_once}", ruleOf("ask", "true")), "resume"},
		"approval lifetime":        {written("p", "approval: {expiresAfter: 25h}", ruleOf("ask", "true")), "expiresAfter must be a duration"},
		"approval empty":           {written("p", "approval: {}", ruleOf("ask", "true")), "spec.approval is empty"},
		"approval of an allow":     {written("p", ruleOf("allow", "true", "approval: {quorum: 1}")), "this rule's verdict is another"},
		"approval without an ask":  {written("p", "approval: {quorum: 1}", allowed), "t:5: spec.approval says how an ask"},
		"show":                     {written("p", "approval: {show: [to]}", ruleOf("ask", "true")), "show"},
		"no members":               {other("ReviewerGroup", "g", "{members: []}") + "---\n" + written("p", allowed), "spec.members is empty"},
		"member twice":             {other("ReviewerGroup", "g", "{members: [a, a]}") + "---\n" + written("p", allowed), "lists a twice"},
		"member's form":            {other("ReviewerGroup", "g", "{members: ['a b']}") + "---\n" + written("p", allowed), "an entry of spec.members"},
		"limit without max":        {written("p", ruleOf("deny", "true", "limit: {per: 1m}")), "limit needs max"},
		"limit without per":        {written("p", ruleOf("deny", "true", "limit: {max: 1}")), "limit needs per"},
		"limit negative":           {written("p", ruleOf("deny", "true", "limit: {max: -1, per: 1m}")), "limit.max must be a whole number"},
		"limit too long":           {written("p", ruleOf("deny", "true", "limit: {max: 1, per: 745h}")), "limit.per must be a duration"},
		"limit by claim":           {written("p", ruleOf("deny", "true", "limit: {max: 1, per: 1m, by: [user]}")), "an entry of limit.by"},
		"limit by twice":           {written("p", ruleOf("deny", "true", "limit: {max: 1, per: 1m, by: [tool, tool]}")), "limit.by lists tool twice"},
		"amount of text":           {written("p", ruleOf("deny", "true", "limit: {max: 1, per: 1m, amount: 'tool'}")), "policy p, rule r: limit.amount must be a whole number"},
		"amount of doubles":        {written("p", ruleOf("deny", "true", "limit: {max: 1, per: 1m, amount: '1.5'}")), "limit.amount must be a whole number"},
		"amount syntax":            {written("p", ruleOf("deny", "true", "limit: {max: 1, per: 1m, amount: 'int('}")), "limit.amount is not valid CEL"},
		"rule's match empty":       {written("p", ruleOf("deny", "true", "match: {}")), "the rule's match is empty"},
		"rule's match of tenants":  {written("p", ruleOf("deny", "true", "match: {tenants: [a]}")), `the rule's match has no key "tenants"`},
		"rule's tool impossible":   {written("p", ruleOf("deny", "true", "match: {tools: [\"a\\u200b\"]}")), "can match no acceptable tool name"},
		"rule's tools of handoffs": {written("p", "match: {toAgents: [a]}", ruleOf("deny", "true", "match: {tools: [a]}")), "match.tools can match nothing"},
		"unknown kind":             {other("Limits", "a", "{x: 1}"), "t:2: kind"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Compile([]Document{{Name: "t", Data: []byte(c.text)}})
			if err == nil || set != nil {
				t.Fatal("compiled")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestScopes(t *testing.T) {
	global := func(verdict string) string { return written("global", "scope: global", ruleOf(verdict, "true")) }
	tenant := func(verdict, when string) string {
		return written("own", "scope: tenant", "match: {tenants: [acme]}", ruleOf(verdict, when))
	}
	byDefault := func(verdict string) string { return written("standard", "scope: default", ruleOf(verdict, "true")) }
	for name, c := range map[string]struct {
		docs []string
		want string
	}{
		"a global deny stands":                 {[]string{global("deny"), tenant("allow", "true")}, "deny r,r"},
		"a global allow can be tightened":      {[]string{global("allow"), tenant("ask", "true")}, "ask r,r"},
		"a default gives way to the tenant's":  {[]string{byDefault("deny"), tenant("allow", "true")}, "allow r"},
		"a default speaks where it is silent":  {[]string{byDefault("ask"), tenant("allow", "false")}, "ask r"},
		"a default speaks beside a global":     {[]string{byDefault("ask"), global("allow")}, "ask r,r"},
		"a default does not loosen a global":   {[]string{byDefault("allow"), global("deny")}, "deny r,r"},
		"an error of the tenant's is a word":   {[]string{byDefault("allow"), tenant("allow", "args.x == 1")}, "deny policy_error"},
		"the strictest of two defaults":        {[]string{byDefault("allow"), written("std", "scope: default", ruleOf("ask", "true"))}, "ask r,r"},
		"another tenant's policy is no word":   {[]string{byDefault("ask"), written("own", "match: {tenants: [evil]}", ruleOf("allow", "true"))}, "ask r"},
		"a default for the tenants it names":   {[]string{written("standard", "scope: default", "match: {tenants: [evil]}", ruleOf("allow", "true")), tenant("allow", "false")}, "deny no_policy_match"},
		"a trial of the tenant's is no word":   {[]string{byDefault("ask"), written("own", "match: {tenants: [acme]}", "validationActions: [audit]", ruleOf("allow", "true"))}, "ask r,r"},
		"the implied scope of one for tenants": {[]string{byDefault("deny"), written("own", "match: {tenants: [acme]}", ruleOf("allow", "true"))}, "allow r"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, compileDocs(t, c.docs...).Evaluate(call("x")), c.want) })
	}
	plain := written("own", "match: {tenants: [acme]}", ruleOf("allow", "true"))
	if compileDocs(t, plain).Digest() != compileDocs(t, tenant("allow", "true")).Digest() {
		t.Error("writing the implied scope out is another policy")
	}
	if compileDocs(t, byDefault("ask")).Digest() == compileDocs(t, written("standard", ruleOf("ask", "true"))).Digest() {
		t.Error("the scope default is not in the digest")
	}
}

// Whatever a tenant's policies say: what global policies say by themselves is
// never loosened.
func TestNothingLoosensAGlobalPolicy(t *testing.T) {
	whens := rapid.SampledFrom([]string{"true", "tool == 'x'", "args.nope == 1", "false"})
	verdicts := rapid.SampledFrom([]string{"allow", "ask", "defer", "deny"})
	actions := rapid.SampledFrom([]string{"enforce", "warn", "audit"})
	rapid.Check(t, func(rt *rapid.T) {
		global := written("g", "scope: global", ruleOf(verdicts.Draw(rt, "global"), whens.Draw(rt, "when")))
		docs := []string{global}
		for i := range rapid.IntRange(1, 4).Draw(rt, "others") {
			lines := []string{"validationActions: [" + actions.Draw(rt, "action") + "]", ruleOf(verdicts.Draw(rt, "verdict"), whens.Draw(rt, "when"))}
			switch rapid.IntRange(0, 2).Draw(rt, "scope") {
			case 0:
				lines = append(lines, "match: {tenants: [acme]}")
			case 1:
				lines = append(lines, "scope: default")
			case 2:
				lines = append(lines, "match: {tenants: ['a*'], tools: [x]}", "fallback: true")
			}
			docs = append(docs, written(fmt.Sprintf("p%d", i), lines...))
		}
		in := call(rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "tool"))
		alone, all := compileDocs(t, global).Evaluate(in), compileDocs(t, docs...).Evaluate(in)
		if !alone.NoRuleMatched() && all.Verdict.Strictness() < alone.Verdict.Strictness() {
			rt.Fatalf("%s alone, %s with others", codes(alone), codes(all))
		}
	})
}

func TestTrialsNeverDecide(t *testing.T) {
	on := func(action string) string {
		return written("trial", "validationActions: ["+action+"]", "expiresAfter: 1s", "match: {tools: [x]}",
			"rules:", "  - {name: no, when: 'true', verdict: deny, reason: too_much, message: 'Not for long.'}", "  - {name: broken, when: 'args.nope', verdict: allow, reason: b}")
	}
	on2 := strings.Replace(on("audit"), "args.nope", "args.nope == 1", 1)
	warn := strings.Replace(on("warn"), "args.nope", "args.nope == 1", 1)
	both := strings.Replace(on("warn, audit"), "args.nope", "args.nope == 1", 1)
	base := doc("base", "", "allow ok: true")
	got := compileDocs(t, base, on2).Evaluate(call("x"))
	want := []events.Reason{
		{Evaluator: EvaluatorName, Code: "ok", Policy: "base/r0"},
		{Evaluator: EvaluatorName, Code: "too_much", Policy: "trial/no", Action: "audit", WouldVerdict: events.Deny},
		{Evaluator: EvaluatorName, Code: "policy_error", Policy: "trial/broken", Action: "audit", WouldVerdict: events.Deny},
	}
	if got.Verdict != events.Allow || !slices.Equal(got.Reasons, want) || got.Warnings != nil || got.Message != "" || got.ExpiresAfter != 0 || got.Fault != "" || got.Policy != "base" {
		t.Errorf("%+v", got)
	}
	for _, d := range []string{warn, both} {
		got = compileDocs(t, base, d).Evaluate(call("x"))
		if got.Verdict != events.Allow || got.Reasons[1].Action != "warn" || !slices.Equal(got.Warnings, []string{"Not for long.", DefaultWarning}) {
			t.Errorf("%+v", got)
		}
	}
	// The name in another case is a deny only of a policy that decides.
	got = compileDocs(t, base, on2).Evaluate(call("X"))
	if got.Verdict != events.Allow || got.Reasons[1].Code != CodeToolNameCase || got.Reasons[1].WouldVerdict != events.Deny {
		t.Errorf("%+v", got)
	}
	// Nobody has spoken, and the trial is kept.
	got = compileDocs(t, doc("base", "{tools: [y]}", "allow ok: true"), on2).Evaluate(call("x"))
	if !got.NoRuleMatched() || codes(got) != "deny no_policy_match,too_much,policy_error" {
		t.Errorf("%+v", got)
	}
	if aside := got.AdvisoryOnly(); aside.Verdict != events.Allow || len(aside.Reasons) != 2 || aside.Reasons[0].Action == "" {
		t.Errorf("%+v", aside)
	}
	// A set of trials is no policy.
	got = compileDocs(t, on2).Evaluate(call("x"))
	if got.NoRuleMatched() || codes(got) != "deny no_policy,too_much,policy_error" {
		t.Errorf("%+v", got)
	}
	// Nor does one let raw arguments pass, or silence a fallback.
	raw := call("x")
	raw.RawArguments = true
	expect(t, compileDocs(t, base, written("trial", "validationActions: [audit]", "acceptRawArguments: true", allowed)).Evaluate(raw), "deny ok,invalid_arguments,ok")
	expect(t, compileDocs(t, written("f", "fallback: true", ruleOf("ask", "true")), base, on2).Evaluate(call("x")), "ask ok,r,too_much,policy_error")
}

func TestApprovalTerms(t *testing.T) {
	groups := []string{other("ReviewerGroup", "legal", "{members: [anna, ben]}"), other("ReviewerGroup", "money", "{members: [ben, carl], tenants: [acme]}"),
		other("ReviewerGroup", "board", "{members: [dora]}")}
	ask := func(name, terms, verdict string) string {
		d := written(name, "approval: "+terms, ruleOf(verdict, "true"))
		if terms == "" {
			d = written(name, ruleOf(verdict, "true"))
		}
		return d
	}
	for name, c := range map[string]struct {
		docs []string
		want approval.Terms
	}{
		"none":    {[]string{ask("a", "", "ask")}, approval.Terms{}},
		"one":     {[]string{ask("a", "{reviewers: [legal], quorum: 2, resume: manual_retry, expiresAfter: 30m, show: [/to, resource]}", "ask")}, approval.Terms{Reviewers: []string{"legal"}, Quorum: 2, Resume: "manual_retry", Lifetime: 30 * time.Minute, Show: []string{"/to", "resource"}}},
		"largest": {[]string{ask("a", "{quorum: 2, expiresAfter: 1h}", "ask"), ask("b", "{quorum: 3}", "defer"), ask("c", "{quorum: 1, expiresAfter: 5m, resume: publisher_waits}", "ask")}, approval.Terms{Quorum: 3, Lifetime: 5 * time.Minute, Resume: "publisher_waits"}},
		"both":    {[]string{ask("a", "{reviewers: [legal]}", "ask"), ask("b", "{reviewers: [money]}", "ask")}, approval.Terms{Reviewers: []string{"legal&money"}}},
		"one of":  {[]string{ask("a", "{reviewers: [legal, board]}", "ask"), ask("b", "{reviewers: [money, legal]}", "ask")}, approval.Terms{Reviewers: []string{"legal&money", "legal", "board&money", "board&legal"}}},
		"denied":  {[]string{ask("a", "{reviewers: [legal]}", "ask"), ask("b", "", "deny")}, approval.Terms{}},
		"trial":   {[]string{ask("a", "{reviewers: [legal]}", "ask"), strings.Replace(ask("b", "{reviewers: [board]}", "ask"), "spec:\n", "spec:\n  validationActions: [audit]\n", 1)}, approval.Terms{Reviewers: []string{"legal"}}},
		"rest":    {[]string{written("a", "approval: {reviewers: [legal], quorum: 2, resume: manual_retry, expiresAfter: 1h, show: [/to]}", ruleOf("ask", "true", "approval: {expiresAfter: 4h}"))}, approval.Terms{Reviewers: []string{"legal"}, Quorum: 2, Resume: approval.ResumeManual, Lifetime: 4 * time.Hour, Show: []string{"/to"}}},
		"own":     {[]string{written("a", "approval: {reviewers: [legal], quorum: 2, expiresAfter: 1h, show: [/to]}", ruleOf("ask", "true", "approval: {reviewers: [board], quorum: 1, show: [/cc]}"))}, approval.Terms{Reviewers: []string{"board"}, Quorum: 1, Lifetime: time.Hour, Show: []string{"/cc"}}},
		"of rule": {[]string{written("a", "approval: {quorum: 5}", ruleOf("ask", "true", "approval: {quorum: 2}"))}, approval.Terms{Quorum: 2}},
	} {
		set := compileDocs(t, append(c.docs, groups...)...)
		if got := set.Evaluate(call("x")).Approval; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	set := compileDocs(t, append(groups, ask("a", "", "ask"))...)
	for name, want := range map[string]string{"legal": "[anna ben]", "money": "[ben carl]", "legal&money": "[ben]", "board&legal": "[]", "nobody": "[]", "legal&nobody": "[]", "": "[]", "&": "[]"} {
		if got := fmt.Sprint(set.Members("acme", name)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if set.Members("evil", "money") != nil || (*Set)(nil).Members("acme", "legal") != nil {
		t.Error("groups of others")
	}
	bigger := strings.Replace(groups[0], "ben", "carl", 1)
	if compileDocs(t, bigger, groups[1], groups[2], ask("a", "", "ask")).Digest() == set.Digest() {
		t.Error("who is in a group is not in the digest")
	}
}

func TestCatalog(t *testing.T) {
	set := compileDocs(t, doc("p", "", `allow known: catalog.known && catalog.risk == "low"`, `ask unknown: !catalog.known`))
	expect(t, set.Evaluate(call("x")), "ask unknown")
	in := call("x")
	in.Catalog = map[string]any{"known": true, "risk": "low"}
	expect(t, set.Evaluate(in), "allow known")
}

func TestRulesHaveMatchesOfTheirOwn(t *testing.T) {
	set := compileDocs(t, written("p", "match: {tenants: [acme]}", "rules:",
		"  - {name: read, match: {tools: [read, 'get_*']}, when: 'true', verdict: allow, reason: reads}",
		"  - {name: drop, match: {tools: [drop], actions: [delete]}, when: 'true', verdict: deny, reason: drops}",
		"  - {name: pre, match: {eventTypes: ['Pre*']}, when: 'event_type == \"PreToolUse\"', verdict: ask, reason: pre}",
		"  - {name: all, when: 'tool == \"other\"', verdict: allow, reason: all}"))
	for name, c := range map[string]struct{ tool, action, event, want string }{
		"exact":                {"read", "", "", "allow reads"},
		"pattern":              {"get_x", "", "", "allow reads"},
		"none":                 {"write", "", "", "deny no_policy_match"},
		"both operands":        {"drop", "delete", "", "deny drops"},
		"one operand":          {"drop", "update", "", "deny no_policy_match"},
		"another case":         {"Drop", "delete", "", "deny tool_name_case"},
		"case of an allow":     {"Read", "", "", "deny no_policy_match"},
		"event":                {"read", "", "PreToolUse", "ask reads,pre"},
		"rule without a match": {"other", "", "", "allow all"},
		"no tool":              {"", "", "PreToolUse", "ask pre"},
	} {
		in := call(c.tool)
		in.Action, in.EventType = c.action, c.event
		t.Run(name, func(t *testing.T) { expect(t, set.Evaluate(in), c.want) })
	}
	spoiled := call("read")
	spoiled.EventType = "Pre\x00"
	expect(t, set.Evaluate(spoiled), "deny invalid_operand")
}

// A condition may ask for the time in a zone, by its name or its distance.
func TestTimeZones(t *testing.T) {
	in := call("x")
	in.Now = time.Date(2026, 7, 1, 23, 30, 0, 0, time.UTC)
	when := `now.getHours() == 23 && now.getHours("Europe/Berlin") == 1 && now.getHours("+05:30") == 5 && now.getDate("Asia/Tokyo") == 2 && now.getHours("UTC") == 23`
	expect(t, compileDocs(t, written("p", "rules:", "  - name: r", "    when: >-", "      "+when, "    verdict: allow", "    reason: r")).Evaluate(in), "allow r")
}

// Every variable that conditions may use can be read, and there is no other.
func TestDeclaredVariablesAreRead(t *testing.T) {
	declared := map[string]bool{}
	for _, v := range RequestVariables() {
		declared[v.Name] = true
		if inputVariables[v.Name] == nil {
			t.Errorf("%s is declared, and nothing reads it", v.Name)
		}
	}
	for name := range inputVariables {
		if !declared[name] {
			t.Errorf("%s is read, and is not declared", name)
		}
	}
}
