package policy

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
)

func handoff(from, to string) Input {
	return Input{Tenant: "acme", Source: "rt1", Protocol: "handoff", FromAgent: from, ToAgent: to, Agent: from, Action: "handoff", Now: noon}
}

func toolCall(tool string) Input {
	in := call(tool)
	in.Protocol = "tool"
	return in
}

// with puts more keys into the spec of a document.
func with(doc, keys string) string { return strings.Replace(doc, "spec:\n", "spec:\n  "+keys+"\n", 1) }

func TestHandoffOperands(t *testing.T) {
	for match, want := range map[string]string{
		"{toAgents: [Finance Agent]}":                              "allow ok",
		"{toAgents: ['Finance *']}":                                "allow ok",
		"{toAgents: ['*']}":                                        "allow ok",
		"{toAgents: [Other, 'Finance?Agent']}":                     "allow ok",
		"{fromAgents: [Triage]}":                                   "allow ok",
		"{fromAgents: [Triage], toAgents: [Finance Agent]}":        "allow ok",
		"{protocols: [handoff]}":                                   "allow ok",
		"{protocols: [tool, handoff]}":                             "allow ok",
		"{protocols: ['*', handoff], tenants: [acme]}":             "allow ok",
		"{protocols: ['h*'], toAgents: [Finance Agent]}":           "allow ok",
		"{toAgents: [Finance Agent], actions: [handoff]}":          "allow ok",
		"{toAgents: [finance agent]}":                              "deny no_policy_match",
		"{toAgents: [Finance]}":                                    "deny no_policy_match",
		"{fromAgents: [Finance Agent]}":                            "deny no_policy_match",
		"{fromAgents: [Triage], toAgents: [HR]}":                   "deny no_policy_match",
		"{fromAgents: [Triage], toAgents: ['F*'], sources: [rt2]}": "deny no_policy_match",
		"{tenants: [evil], toAgents: ['*']}":                       "deny no_policy",
	} {
		t.Run(match, func(t *testing.T) {
			expect(t, compileDocs(t, doc("a", match, "allow ok: true")).Evaluate(handoff("Triage", "Finance Agent")), want)
		})
	}
}

// A policy that does not speak of handoffs decides nothing about them, neither
// way.
func TestNoPolicyMatchesHandoffsByAccident(t *testing.T) {
	in := handoff("Triage", "Finance Agent")
	for _, match := range []string{"", "{tenants: [acme]}", "{protocols: ['*']}", "{protocols: ['hand*']}", "{sources: ['*']}", "{tools: ['*']}", "{tools: [Finance Agent]}", "{actions: [handoff]}"} {
		for _, rule := range []string{"allow yes: true", "deny no: true", "allow trips: args.nothing == 1"} {
			expect(t, compileDocs(t, doc("a", match, rule)).Evaluate(in), "deny no_policy")
			expect(t, compileDocs(t, doc("a", match, rule), doc("b", "{toAgents: [HR]}", "allow hr: true")).Evaluate(in), "deny no_policy_match")
			expect(t, compileDocs(t, doc("a", match, rule), doc("b", "{toAgents: [Finance Agent]}", "allow fin: true")).Evaluate(in), "allow fin")
		}
	}
	in.Tool = "rm" // a wrong input for a handoff
	expect(t, compileDocs(t, doc("a", "{tools: [rm]}", "allow yes: true"), doc("b", "{protocols: [handoff]}", "deny no: tool != ''", "ask a: true")).Evaluate(in), "ask a")
}

func TestAgentOperandsMatchNothingElse(t *testing.T) {
	in := toolCall("x")
	in.Agent, in.FromAgent, in.ToAgent = "a", "a", "b"
	for _, match := range []string{"{fromAgents: ['*']}", "{toAgents: ['*']}", "{protocols: [handoff]}"} {
		expect(t, compileDocs(t, doc("a", match, "allow ok: true")).Evaluate(in), "deny no_policy")
		hook := in
		hook.Protocol = "agenthook"
		expect(t, compileDocs(t, doc("a", match, "allow ok: true")).Evaluate(hook), "deny no_policy_match")
	}
}

func TestGatesNeedAPolicyOfTheirOwn(t *testing.T) {
	builtin := "builtin: evaluators-only\n"
	fin := handoff("Triage", "Finance Agent")
	for name, c := range map[string]struct {
		docs []string
		in   Input
		want string
	}{
		"the built-in alone, tool":      {[]string{builtin}, toolCall("x"), "deny no_policy"},
		"the built-in alone, handoff":   {[]string{builtin}, fin, "deny no_policy"},
		"beside one that matches":       {[]string{builtin, doc("a", "{tools: [x]}", "allow ok: true")}, toolCall("x"), "allow ok"},
		"beside one that does not":      {[]string{builtin, doc("a", "{tools: [x]}", "allow ok: true")}, toolCall("y"), "deny no_policy_match"},
		"for others it still allows":    {[]string{builtin, doc("a", "{tools: [x]}", "allow ok: true")}, call("y"), "allow evaluators_only"},
		"only for another protocol":     {[]string{doc("a", "{protocols: [agenthook]}", "allow ok: true")}, toolCall("x"), "deny no_policy"},
		"only for handoffs":             {[]string{doc("a", "{toAgents: ['*']}", "allow ok: true")}, toolCall("x"), "deny no_policy"},
		"only for tools":                {[]string{doc("a", "{tools: ['*']}", "allow ok: true")}, fin, "deny no_policy"},
		"without match":                 {[]string{doc("a", "", "allow ok: true")}, toolCall("x"), "allow ok"},
		"a pattern reaches the tools":   {[]string{doc("a", "{protocols: ['t*']}", "allow ok: true")}, toolCall("x"), "allow ok"},
		"other tenants' policies":       {[]string{doc("a", "{tenants: [evil], tools: [x]}", "allow ok: true"), doc("b", "{tenants: [acme], protocols: [aaep]}", "allow ok: true")}, toolCall("x"), "deny no_policy"},
		"a rule of the handoff matched": {[]string{doc("a", "{toAgents: [Finance Agent]}", `allow ok: from_agent == "Triage" && to_agent.startsWith("Finance") && agent == from_agent && tool == ""`)}, fin, "allow ok"},
		"from_agent elsewhere":          {[]string{doc("a", "", `allow ok: from_agent == "" && to_agent == ""`)}, toolCall("x"), "allow ok"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, compileDocs(t, c.docs...).Evaluate(c.in), c.want) })
	}
}

func TestDeceptiveAgentNames(t *testing.T) {
	set := compileDocs(t, doc("a", "{protocols: [handoff]}", "allow ok: true"))
	for _, name := range []string{"", " a", "a\x00", "Fin\u0430nce", "a\u200bb", strings.Repeat("x", names.MaxTool+1), "\xff", "\uff21"} {
		expect(t, set.Evaluate(handoff(name, "B")), "deny invalid_agent_name")
		expect(t, set.Evaluate(handoff("A", name)), "deny invalid_agent_name")
	}
	restricted := compileDocs(t, doc("a", "{protocols: [handoff]}", "allow ok: true"), doc("b", "{toAgents: [Finance Agent]}", "ask fin: true"), doc("c", "{fromAgents: [Intern]}", "deny intern: true"))
	expect(t, restricted.Evaluate(handoff("Triage", "finance agent")), "deny ok,agent_name_case")
	expect(t, restricted.Evaluate(handoff("INTERN", "HR")), "deny ok,agent_name_case")
	expect(t, restricted.Evaluate(handoff("Triage", "HR")), "allow ok")
	lenient := compileDocs(t, doc("b", "{toAgents: [Finance Agent]}", "allow fin: true"))
	expect(t, lenient.Evaluate(handoff("Triage", "finance agent")), "deny no_policy_match")
}

// RFC-0010: the exact name, then *.
func TestFallback(t *testing.T) {
	fallback := with(doc("star", "", "deny star: true"), "fallback: true")
	anyTool := with(doc("star", "{tools: ['*']}", "ask star: true"), "fallback: true")
	for name, c := range map[string]struct {
		docs []string
		in   Input
		want string
	}{
		"exact":                         {[]string{fallback, doc("a", "{tools: [export]}", "allow exact: true")}, toolCall("export"), "allow exact"},
		"other name":                    {[]string{fallback, doc("a", "{tools: [export]}", "allow exact: true")}, toolCall("import"), "deny star"},
		"pattern is not exact":          {[]string{fallback, doc("a", "{tools: ['exp*']}", "allow glob: true")}, toolCall("export"), "deny glob,star"},
		"exact without a matching rule": {[]string{anyTool, doc("a", "{tools: [export]}", "allow exact: false")}, toolCall("export"), "deny no_policy_match"},
		"exact for another source":      {[]string{anyTool, doc("a", "{tools: [export], sources: [rt2]}", "allow exact: true")}, toolCall("export"), "ask star"},
		"exact for another tenant":      {[]string{anyTool, doc("a", "{tools: [export], tenants: [evil]}", "allow exact: true")}, toolCall("export"), "ask star"},
		"two fallbacks":                 {[]string{anyTool, with(doc("b", "{tools: [export]}", "allow b: true"), "fallback: true")}, toolCall("export"), "ask b,star"},
		"not a fallback":                {[]string{doc("star", "", "deny star: true"), doc("a", "{tools: [export]}", "allow exact: true")}, toolCall("export"), "deny exact,star"},
		"false is none":                 {[]string{with(doc("star", "", "deny star: true"), "fallback: false"), doc("a", "{tools: [export]}", "allow exact: true")}, toolCall("export"), "deny exact,star"},
		"other protocols too":           {[]string{fallback, doc("a", "{tools: [export]}", "allow exact: true")}, call("export"), "allow exact"},
		"handoff, exact":                {[]string{with(doc("star", "{toAgents: ['*']}", "deny star: true"), "fallback: true"), doc("a", "{toAgents: [Finance Agent]}", "allow exact: true")}, handoff("A", "Finance Agent"), "allow exact"},
		"handoff, other":                {[]string{with(doc("star", "{toAgents: ['*']}", "deny star: true"), "fallback: true"), doc("a", "{toAgents: [Finance Agent]}", "allow exact: true")}, handoff("A", "HR"), "deny star"},
		"handoff, from is not the key":  {[]string{with(doc("star", "{toAgents: ['*']}", "deny star: true"), "fallback: true"), doc("a", "{fromAgents: [A]}", "allow from: true")}, handoff("A", "HR"), "deny from,star"},
		"handoff, exact, from another":  {[]string{with(doc("star", "{toAgents: ['*']}", "deny star: true"), "fallback: true"), doc("a", "{fromAgents: [B], toAgents: [HR]}", "allow x: true")}, handoff("A", "HR"), "deny star"},
		"a default names it, the tenant's own allow": {[]string{
			doc("t", "{tenants: [acme]}", "allow reads: true"), with(doc("f", "{tenants: [acme]}", "deny star: true"), "fallback: true"),
			with(doc("d", "{tools: [export]}", "deny never: true"), "scope: default"),
		}, toolCall("export"), "deny star,reads"},
		"a default's fallback": {[]string{
			with(doc("f", "", "deny star: true"), "scope: default\n  fallback: true"), with(doc("d", "{tools: [export]}", "ask exact: true"), "scope: default"),
		}, toolCall("export"), "ask exact"},
		"a tenant's policy and a default's fallback": {[]string{
			with(doc("f", "", "deny star: true"), "scope: default\n  fallback: true"), doc("a", "{tools: [export], tenants: [acme]}", "allow exact: false"),
		}, toolCall("export"), "deny no_policy_match"},
		"the exact name in another case": {[]string{anyTool, doc("a", "{tools: [export]}", "ask exact: true")}, toolCall("Export"), "deny tool_name_case,star"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, compileDocs(t, c.docs...).Evaluate(c.in), c.want) })
	}
}

func TestRawArgumentsNeedAPolicyThatAcceptsThem(t *testing.T) {
	raw := toolCall("x")
	raw.RawArguments, raw.Args = true, tree(t, `{"__raw":"{bad"}`)
	accepts := with(doc("raw", "{tools: [x]}", `ask raw: has(args.__raw)`), "acceptRawArguments: true")
	for name, c := range map[string]struct {
		docs []string
		want string
	}{
		"nobody accepts":               {[]string{doc("a", "", "allow ok: true")}, "deny ok,invalid_arguments"},
		"nobody accepts, soft":         {[]string{doc("a", "", "deny no: true")}, "deny no,invalid_arguments"},
		"nothing matches":              {[]string{doc("a", "{tools: [y]}", "allow ok: true")}, "deny no_policy_match,invalid_arguments"},
		"accepted":                     {[]string{accepts}, "ask raw"},
		"accepted, others tighten":     {[]string{accepts, doc("a", "", "deny no: true")}, "deny no,raw"},
		"accepted, others trip":        {[]string{accepts, doc("a", "", "allow ok: args.to == 'x'")}, "deny policy_error,raw"},
		"accepted, others allow":       {[]string{accepts, doc("a", "", "allow ok: true")}, "ask ok,raw"},
		"accepting rule not matched":   {[]string{with(doc("raw", "", "allow raw: false"), "acceptRawArguments: true"), doc("a", "", "allow ok: true")}, "deny ok,invalid_arguments"},
		"accepting for another tool":   {[]string{with(doc("raw", "{tools: [y]}", "allow raw: true"), "acceptRawArguments: true"), doc("a", "", "allow ok: true")}, "deny ok,invalid_arguments"},
		"false is no acceptance":       {[]string{with(doc("raw", "", "allow raw: true"), "acceptRawArguments: false")}, "deny raw,invalid_arguments"},
		"overruled fallback accepts":   {[]string{with(doc("raw", "", "allow raw: true"), "fallback: true\n  acceptRawArguments: true"), doc("a", "{tools: [x]}", "allow ok: true")}, "deny ok,invalid_arguments"},
		"the built-in accepts nothing": {[]string{"builtin: evaluators-only\n", doc("a", "{tools: [y]}", "allow ok: true")}, "deny no_policy_match,invalid_arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			got := compileDocs(t, c.docs...).Evaluate(raw)
			expect(t, got, c.want)
			if strings.Contains(c.want, "invalid_arguments") && got.ResultMode != ModeThrow {
				t.Error(got.ResultMode)
			}
		})
	}
	raw.RawArguments = false
	expect(t, compileDocs(t, doc("a", "", "allow ok: true")).Evaluate(raw), "allow ok")
}

func TestResultModeIsSoftOnlyIfAllSaySo(t *testing.T) {
	soft := func(name, rule string) string {
		_, reason, _ := strings.Cut(rule[:strings.Index(rule, ":")], " ")
		return strings.Replace(doc(name, "", rule), "reason: "+reason+"}", "reason: "+reason+", resultMode: tool_result}", 1)
	}
	for name, c := range map[string]struct {
		docs []string
		want string
	}{
		"default":                 {[]string{doc("a", "", "deny a: true")}, ModeThrow},
		"soft":                    {[]string{soft("a", "deny a: true")}, ModeToolResult},
		"both soft":               {[]string{soft("a", "deny a: true"), soft("b", "deny b: true")}, ModeToolResult},
		"hard after soft":         {[]string{soft("a", "deny a: true"), doc("b", "", "deny b: true")}, ModeThrow},
		"soft after hard":         {[]string{doc("a", "", "deny a: true"), soft("b", "deny b: true")}, ModeThrow},
		"hard but less strict":    {[]string{soft("a", "deny a: true"), doc("b", "", "ask b: true")}, ModeToolResult},
		"a stricter hard one":     {[]string{soft("a", "ask a: true"), doc("b", "", "deny b: true")}, ModeThrow},
		"a condition cannot tell": {[]string{soft("a", "deny a: true"), doc("b", "", "deny b: args.x == 1")}, ModeThrow},
		"nothing matches":         {[]string{soft("a", "deny a: false")}, ModeThrow},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compileDocs(t, c.docs...).Evaluate(toolCall("x")); got.ResultMode != c.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestFaultsAreTold(t *testing.T) {
	in := toolCall("x")
	in.Args = tree(t, `{"a":[`+strings.Repeat("0,", 1999)+`0]}`)
	loop := "deny l: args.a.all(x, args.a.all(y, x == y || x + y < 9))"
	for rule, want := range map[string]Fault{"allow ok: true": "", "allow a: args.nope == 1": FaultEvaluation, loop: FaultLimit, "allow a: args.a[0] == 0 && args.a[1] > 'x'": FaultEvaluation} {
		got := compileDocs(t, doc("a", "", rule)).Evaluate(in)
		if got.Fault != want || want != "" && (got.Verdict != events.Deny || got.Code != "") {
			t.Errorf("%s: %+v", rule, got)
		}
	}
}

func TestCodeIsOfTheRuleThatDecided(t *testing.T) {
	set := compileDocs(t, doc("a", "", "allow a0: true", "ask a1: true", "deny a2: tool == 'no'"), doc("b", "", "ask b0: true"))
	for tool, want := range map[string]string{"x": "a1", "no": "a2"} {
		if got := set.Evaluate(toolCall(tool)); got.Code != want {
			t.Errorf("%s: %+v", tool, got)
		}
	}
	if got := set.Evaluate(handoff("A", "B")); got.Code != "" {
		t.Errorf("%+v", got)
	}
}

// Whatever policies there are: the index and a walk through all of them find the
// same, tools and handoffs never share a policy that names neither, and no
// verdict without a rule is an allow.
func TestGatesAreClosedByDefault(t *testing.T) {
	matches := []string{"", "{tools: [x]}", "{tools: ['*']}", "{toAgents: [X]}", "{toAgents: ['*']}", "{fromAgents: [A]}", "{protocols: [handoff]}", "{protocols: [tool]}", "{protocols: ['*']}", "{tenants: [acme], toAgents: [X, Y]}", "{tenants: ['e*']}"}
	rules := []string{"allow ok: true", "deny no: true", "ask a: args.n == 1", "allow never: false"}
	rapid.Check(t, func(rt *rapid.T) {
		var docs []string
		for i := range rapid.IntRange(1, 5).Draw(rt, "policies") {
			d := doc(string(rune('a'+i)), rapid.SampledFrom(matches).Draw(rt, "match"), rapid.SampledFrom(rules).Draw(rt, "rule"))
			if rapid.Bool().Draw(rt, "fallback") {
				d = with(d, "fallback: true")
			}
			docs = append(docs, d)
		}
		set, err := Compile([]Document{{Name: "t", Data: []byte(strings.Join(docs, "---\n"))}})
		if err != nil {
			rt.Fatal(err)
		}
		in := toolCall(rapid.SampledFrom([]string{"x", "y", "X"}).Draw(rt, "tool"))
		if rapid.Bool().Draw(rt, "handoff") {
			in = handoff(rapid.SampledFrom([]string{"A", "B"}).Draw(rt, "from"), rapid.SampledFrom([]string{"X", "x", "Z"}).Draw(rt, "to"))
		}
		got := set.Evaluate(in)
		all := *set // without the index
		all.index = index{}
		for i := range set.policies {
			for _, side := range []bool{true, false} {
				all.index.add(i, indexEntry{handoff: side})
			}
		}
		if want := codes(all.Evaluate(in)); codes(got) != want {
			rt.Fatalf("%s, without the index %s", codes(got), want)
		}
		if got.Verdict == events.Allow && got.Code != "ok" {
			rt.Fatalf("%+v", got)
		}
	})
}
