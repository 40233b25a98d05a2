package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
)

func TestNothingMatchesIsDeny(t *testing.T) {
	var none *Set
	expect(t, none.Evaluate(call("x")), "deny no_policy")
	set := compileDocs(t, doc("a", "{tenants: [acme], tools: [read]}", "allow ok: true"))
	expect(t, set.Evaluate(call("read")), "allow ok")
	expect(t, set.Evaluate(call("write")), "deny no_policy_match")
	other := call("read")
	other.Tenant = "evil"
	expect(t, set.Evaluate(other), "deny no_policy")
	expect(t, compileDocs(t, doc("a", "", "allow ok: tool == 'x'")).Evaluate(call("y")), "deny no_policy_match")
	expect(t, compileDocs(t, doc("a", "{tenants: ['ac*']}", "allow ok: 'true' == 'true'")).Evaluate(call("y")), "allow ok")
}

// The bypass "an absent, empty or null operand that matches everything".
func TestAbsentValuesMatchNoEntry(t *testing.T) {
	for _, operand := range []string{"tools", "actions", "resourceKinds", "risks"} {
		set := compileDocs(t, doc("a", "{"+operand+": ['*', '?*']}", "allow ok: true"))
		expect(t, set.Evaluate(call("")), "deny no_policy_match")
	}
	in := call("")
	in.Source, in.Protocol = "", ""
	expect(t, compileDocs(t, doc("a", "{sources: ['*']}", "allow ok: true")).Evaluate(in), "deny no_policy_match")
	expect(t, compileDocs(t, doc("a", "{protocols: ['*']}", "allow ok: true")).Evaluate(in), "deny no_policy_match")
	in.Tenant = ""
	expect(t, compileDocs(t, doc("a", "{tenants: ['*']}", "allow ok: true")).Evaluate(in), "deny no_policy")
	expect(t, compileDocs(t, doc("a", "", "allow ok: true")).Evaluate(in), "allow ok")
}

func TestOperands(t *testing.T) {
	in := call("send_mail")
	in.Action, in.ResourceKind = "send", "email"
	in.Risk = map[string]any{"operation_risk": "external_transfer", "risk_class": "external_side_effect", "level": "high", "irreversible": true, "idempotent": false}
	for match, hit := range map[string]bool{
		"{tenants: [acme]}": true, "{tenants: [Acme]}": false, "{tenants: ['?cme']}": true,
		"{sources: [rt1]}": true, "{sources: [rt2]}": false, "{sources: [rt2, 'rt*']}": true,
		"{protocols: [agenthook]}": true, "{protocols: [aaep]}": false,
		"{tools: [send_mail]}": true, "{tools: ['*_mail']}": true, "{tools: ['send']}": false, "{tools: ['send?mail']}": true,
		"{tools: ['end_mai']}": false, "{tools: ['*']}": true, "{tools: [read, send_mail]}": true,
		"{actions: [send]}": true, "{actions: [write]}": false,
		"{resourceKinds: [email]}": true, "{resourceKinds: [file]}": false,
		"{risks: [external_transfer]}": true, "{risks: [external_side_effect]}": true, "{risks: [high]}": true,
		"{risks: [irreversible]}": true, "{risks: [low, 'destr*']}": false,
		"{tenants: [acme], tools: [read]}": false, "{tenants: [acme], tools: [send_mail], risks: [high]}": true,
	} {
		want := "deny no_policy_match"
		if hit {
			want = "allow ok"
		} else if strings.Contains(match, "Acme") {
			want = "deny no_policy"
		}
		t.Run(match, func(t *testing.T) { expect(t, compileDocs(t, doc("a", match, "allow ok: true")).Evaluate(in), want) })
	}
	in.Catalog = map[string]any{"risk": "publication"}
	expect(t, compileDocs(t, doc("a", "{risks: [publication]}", "allow ok: true")).Evaluate(in), "allow ok")
	silent := call("send_mail")
	silent.Catalog = map[string]any{"risk": "unknown"} // it states none
	expect(t, compileDocs(t, doc("a", "{risks: ['*']}", "allow ok: true")).Evaluate(silent), "deny no_policy_match")
	silent.Catalog = in.Catalog
	expect(t, compileDocs(t, doc("a", "{risks: ['*']}", "allow ok: true")).Evaluate(silent), "allow ok")
	in.Risk["irreversible"] = "true" // a text is no boolean
	expect(t, compileDocs(t, doc("a", "{risks: [irreversible]}", "allow ok: true")).Evaluate(in), "deny no_policy_match")
}

func TestAllPoliciesAndRulesSpeakAndTheStrictestWins(t *testing.T) {
	set := compileDocs(t,
		doc("a", "", "allow a0: true", "ask a1: tool == 'x'", "allow a2: tool == 'never'"),
		doc("b", "{tools: [x]}", "defer b0: true", "allow b1: true"),
		doc("c", "{tools: ['x*']}", "deny c0: true"),
		doc("d", "{tools: [y]}", "deny d0: true"),
	)
	got := set.Evaluate(call("x"))
	expect(t, got, "deny a0,a1,b0,b1,c0")
	if got.Policy != "c" || got.Reasons[4].Policy != "c/r0" {
		t.Errorf("%+v", got)
	}
	expect(t, set.Evaluate(call("z")), "allow a0")
}

func TestMessageOfTheStrictestRuleThatHasOne(t *testing.T) {
	text := func(name, verdict, message string) string {
		d := doc(name, "", verdict+" r: true")
		if message == "" {
			return d
		}
		return strings.Replace(d, "reason: r}", "reason: r, message: "+message+"}", 1)
	}
	set := compileDocs(t, text("a", "allow", "fine"), text("b", "deny", ""), text("c", "deny", "because"), text("d", "deny", "too late"))
	got := set.Evaluate(call("x"))
	if got.Verdict != events.Deny || got.Message != "because" || got.Policy != "c" {
		t.Errorf("%+v", got)
	}
}

func TestShortestLifetimeOfMatchingPolicies(t *testing.T) {
	life := func(name, when, d string) string {
		return strings.Replace(doc(name, "", "allow ok: "+when), "spec:\n", "spec:\n  expiresAfter: "+d+"\n", 1)
	}
	set := compileDocs(t, doc("a", "", "allow ok: true"), life("b", "true", "5m"), life("c", "true", "2m"), life("d", "tool == 'never'", "1s"))
	if got := set.Evaluate(call("x")).ExpiresAfter; got != 2*time.Minute {
		t.Error(got)
	}
}

func TestConditionsSeeTheCall(t *testing.T) {
	in := call("send_mail")
	in.Action, in.ResourceKind, in.ResourceScope, in.Session, in.Agent = "send", "email", "tenant", "s1", "bot"
	in.Resource = map[string]any{"box": "a"}
	in.Risk = map[string]any{"level": "high", "irreversible": true}
	in.Args = tree(t, `{"to":"a@example.com","n":3,"one":1.0,"e":1e3,"half":0.5,"big":9007199254740992,"neg":-0,"list":[1,2.5,"x",null,{"k":[true]}],"nothing":null}`)
	in.Event = tree(t, `{"event_id":"e","metadata":{"a":{"b":7}}}`)
	for _, when := range []string{
		`tenant == "acme" && source == "rt1" && protocol == "agenthook" && tool == "send_mail"`,
		`action == "send" && resource_kind == "email" && resource_scope == "tenant" && session == "s1" && agent == "bot"`,
		`resource.box == "a"`, `risk.level == "high" && risk.irreversible`, `args.to.endsWith("@example.com")`,
		`type(args.n) == int && args.n == 3 && args.n < 3.5`, `type(args.one) == int && string(args.one) == "1"`, `type(args.e) == int`,
		`type(args.half) == double && args.half < 1`, `args.big == 9007199254740992`, `type(args.neg) == int && args.neg == 0`,
		`size(args.list) == 5 && args.list[4].k[0] && args.list[0] == 1 && args.list[1] > 2`, `args.nothing == null`,
		`has(args.to) && !has(args.cc)`, `event.metadata.a.b == 7`, `now == timestamp("2026-11-20T12:00:00Z")`, `now.getHours() == 12`,
		`args.to.split("@")[1] in ["example.com", "example.org"]`, `sets.contains(["a", "b"], ["b"])`,
		`args.list.exists(x, x == "x")`, `!args.list.all(x, x == 1)`,
	} {
		t.Run(when, func(t *testing.T) {
			expect(t, compileDocs(t, doc("a", "", "allow ok: "+when)).Evaluate(in), "allow ok")
		})
	}
}

func TestWhatCannotBeEvaluatedIsDenied(t *testing.T) {
	in := call("x")
	in.Args = tree(t, `{"n":1,"s":"text","deep":[[[1]]],"loop":[`+strings.Repeat("0,", 1999)+`0]}`)
	for name, when := range map[string]string{
		"missing key": `args.nope == 1`, "wrong type": `args.n.endsWith("x")`, "mixed arithmetic": `args.n * 1.5 > 1.0`,
		"division": `1 / (args.n - 1) == 1`, "index": `args.deep[7] == 1`, "nil map": `event.x == 1`, "missing risk": `risk.level == "low"`,
		"dyn regexp": `"a".matches(args.s + "(")`, "negated": `!(args.nope == 1)`, "overflow": `args.n + 9223372036854775807 > 0`,
		"cost": `args.loop.all(x, args.loop.all(y, x == y || true))`,
	} {
		t.Run(name, func(t *testing.T) {
			got := compileDocs(t, doc("a", "", "allow no: "+when), doc("b", "", "allow ok: true")).Evaluate(in)
			expect(t, got, "deny policy_error,ok")
			if got.Reasons[0].Policy != "a/r0" || got.Message != "" {
				t.Errorf("%+v", got)
			}
		})
	}
	for _, when := range []string{`args.nope == 1 || args.s == "text"`, `[1, 2].exists(x, args.nope == x || x == 2)`} { // another part decides
		expect(t, compileDocs(t, doc("a", "", "allow ok: "+when)).Evaluate(in), "allow ok")
	}
	in.Args["n"] = struct{}{} // a value of no JSON type
	expect(t, compileDocs(t, doc("a", "", "allow no: args.n == 1")).Evaluate(in), "deny policy_error")
}

func TestValuesThatCELCannotHave(t *testing.T) {
	adapter := treeAdapter{types.DefaultTypeAdapter}
	if v := adapter.NativeToValue(json.Number("1e999")); !types.IsError(v) {
		t.Errorf("%v", v)
	}
	if v := adapter.NativeToValue([]any{json.Number("1.0")}); v.Equal(types.NewDynamicList(adapter, []any{1})) != types.True {
		t.Errorf("%v", v)
	}
	m, ok := adapter.NativeToValue(map[string]any{"n": json.Number("2.0")}).(traits.Mapper)
	if !ok || m.Get(types.String("n")).Equal(types.Int(2)) != types.True {
		t.Errorf("%v", m)
	}
	if _, known := (inputActivation{in: &Input{}}).ResolveName("secrets"); known {
		t.Error("a variable that nobody declared")
	}
}

// The bypass "homoglyphs, NUL and case in tool names".
func TestDeceptiveToolNamesAreDeniedWhateverMatches(t *testing.T) {
	set := compileDocs(t, doc("all", "", "allow ok: true"), doc("no", "{tools: [delete_file, 'drop_*']}", "deny no: true"))
	for name, c := range map[string]struct{ tool, want string }{
		"plain": {"send_mail", "allow ok"}, "dots": {"mcp__x__y.z/w:1", "allow ok"}, "inner space": {"send mail", "allow ok"},
		"accent": {"envoyer_\u00e9t\u00e9", "allow ok"}, "Japanese": {"メール送信_v2", "allow ok"}, "Cyrillic only": {"\u043f\u043e\u0447\u0442\u0430_1", "allow ok"},
		"denied": {"delete_file", "deny ok,no"}, "case": {"Delete_File", "deny ok,tool_name_case"}, "case of a glob": {"DROP_table", "deny ok,tool_name_case"},
		"long s": {"de\u017fete", "deny invalid_tool_name"}, "Kelvin": {"dele\u212ae", "deny invalid_tool_name"},
		"NUL": {"delete_file\x00", "deny invalid_tool_name"}, "newline": {"a\nb", "deny invalid_tool_name"}, "tab": {"a\tb", "deny invalid_tool_name"},
		"DEL": {"a\x7f", "deny invalid_tool_name"}, "leading space": {" delete_file", "deny invalid_tool_name"}, "trailing space": {"delete_file ", "deny invalid_tool_name"},
		"no-break space": {"delete\u00a0file", "deny invalid_tool_name"}, "zero width": {"delete_\u200bfile", "deny invalid_tool_name"},
		"right to left": {"\u202eelif_eteled", "deny invalid_tool_name"}, "Cyrillic e": {"d\u0435lete_file", "deny invalid_tool_name"},
		"Greek o": {"r\u03bfot", "deny invalid_tool_name"}, "full width": {"\uff44elete", "deny invalid_tool_name"},
		"combining": {"ete\u0301", "deny invalid_tool_name"}, "invalid UTF-8": {"a\xff", "deny invalid_tool_name"},
		"private use": {"a\ue000", "deny invalid_tool_name"}, "unassigned": {"a\U000e0fff", "deny invalid_tool_name"},
		"dotless i": {"delete_f\u0131le", "deny invalid_tool_name"}, "dotted capital I": {"DELETE_F\u0130LE", "deny invalid_tool_name"},
		"dot above": {"delete_fi\u0307le", "deny invalid_tool_name"}, "dotless j": {"\u0237oin", "deny invalid_tool_name"}, "script a": {"re\u0251d", "deny invalid_tool_name"},
		"script g": {"\u0261et", "deny invalid_tool_name"}, "click": {"de\u01c0ete", "deny invalid_tool_name"}, "small capital": {"\u1d20iew", "deny invalid_tool_name"},
		"estimated sign": {"d\u212elete", "deny invalid_tool_name"}, "other hyphen": {"delete\u2010file", "deny invalid_tool_name"}, "other slash": {"a\u2215b", "deny invalid_tool_name"},
		"other digit": {"v\u06f1", "deny invalid_tool_name"}, "selector": {"delete\ufe0f_file", "deny invalid_tool_name"}, "late selector": {"a\U000e0101", "deny invalid_tool_name"},
		"joiner": {"delete\u034f_file", "deny invalid_tool_name"}, "Hangul filler": {"delete\u115f", "deny invalid_tool_name"}, "Khmer vowel": {"delete\u17b4", "deny invalid_tool_name"},
		"all Cyrillic, reads as Latin": {"\u0441\u043e\u0440\u0443_2", "deny invalid_tool_name"}, "all Greek": {"\u03bd\u03bf", "deny invalid_tool_name"}, "Cherokee": {"\u13a0\u13a1", "deny invalid_tool_name"},
		"German": {"gr\u00f6\u00dfe_messen", "allow ok"}, "Polish": {"wy\u015blij_\u0142\u0105cze", "allow ok"}, "Vietnamese": {"g\u1eedi_th\u01b0", "allow ok"},
		"Danish": {"s\u00f8g_\u00e6bler", "allow ok"}, "Greek word": {"\u03b1\u03c0\u03bf\u03c3\u03c4\u03bf\u03bb\u03ae", "allow ok"}, "Hindi": {"\u092d\u0947\u091c\u0947\u0902", "allow ok"}, "Arabic": {"\u0628\u062d\u062b", "allow ok"}, "middle dot": {"\u30e1\u30fc\u30eb\u30fb\u9001\u4fe1_v2", "allow ok"},
		"too long": {strings.Repeat("a", names.MaxTool+1), "deny invalid_tool_name"}, "longest": {strings.Repeat("a", names.MaxTool), "allow ok"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, set.Evaluate(call(c.tool)), c.want) })
	}
	// Where a policy only allows, another case is simply another tool.
	expect(t, compileDocs(t, doc("a", "{tools: [Read]}", "allow ok: true")).Evaluate(call("read")), "deny no_policy_match")
	expect(t, compileDocs(t, doc("a", "{tools: ['Étude', 'e*']}", "deny no: true")).Evaluate(call("étude")), "deny tool_name_case")
	if names.ValidTool("") {
		t.Error("the empty name is no tool's")
	}
}

// The names of arguments are held to what those of tools are, at any depth: a reader
// that strips or folds characters must not find an argument that no policy saw.
func TestDeceptiveArgumentNamesAreDenied(t *testing.T) {
	set := compileDocs(t, doc("all", "", "allow ok: true"))
	for name, c := range map[string]struct{ key, want string }{
		"plain": {"path", "allow ok"}, "capitals": {"filePath", "allow ok"}, "spaces": {"Content Type", "allow ok"}, "other letters": {"\u0438\u043c\u044f", "allow ok"},
		"accents": {"gr\u00f6\u00dfe", "allow ok"}, "Japanese": {"\u5b9b\u5148", "allow ok"}, "empty": {"", "allow ok"}, "emoji": {"\U0001f600", "allow ok"},
		"two scripts, two words": {"\u0438\u043c\u044f_file", "allow ok"}, "Cyrillic words": {"\u0441 \u0438\u043c\u0435\u043d\u0435\u043c", "allow ok"}, "sign beside Latin": {"price (\u20ac)", "allow ok"}, "Han beside Latin": {"\u5b9b\u5148id", "allow ok"},
		"Cyrillic in a Latin word": {"p\u0430th", "deny invalid_argument_name"}, "Greek in a Latin word": {"p\u03b1th", "deny invalid_argument_name"},
		"reads as Latin": {"\u0441\u043e\u0440\u0443", "deny invalid_argument_name"}, "a word that reads as Latin": {"\u0441\u043e\u0440\u0443_file", "deny invalid_argument_name"}, "Cherokee": {"\u13a0\u13a1", "deny invalid_argument_name"},
		"space after": {"path ", "deny invalid_argument_name"}, "space before": {" path", "deny invalid_argument_name"}, "space alone": {" ", "deny invalid_argument_name"}, "other space after": {"path\u00a0", "deny invalid_argument_name"}, "line feed": {"path\n", "deny invalid_argument_name"},
		"zero width": {"pa\u200bth", "deny invalid_argument_name"}, "joiner": {"pa\u200dth", "deny invalid_argument_name"}, "NUL": {"path\x00", "deny invalid_argument_name"},
		"escape": {"\x1bpath", "deny invalid_argument_name"}, "DEL": {"path\x7f", "deny invalid_argument_name"}, "soft hyphen": {"pa\u00adth", "deny invalid_argument_name"},
		"byte order mark": {"\ufeffpath", "deny invalid_argument_name"}, "right to left": {"\u202ehtap", "deny invalid_argument_name"}, "selector": {"path\ufe0f", "deny invalid_argument_name"},
		"grapheme joiner": {"pa\u034fth", "deny invalid_argument_name"}, "Hangul filler": {"path\u3164", "deny invalid_argument_name"}, "Braille blank": {"path\u2800", "deny invalid_argument_name"}, "tag": {"path\U000e0070", "deny invalid_argument_name"},
		"full width": {"\uff50ath", "deny invalid_argument_name"}, "dotless i": {"f\u0131le", "deny invalid_argument_name"}, "long s": {"u\u017fer", "deny invalid_argument_name"},
		"Kelvin": {"\u212aey", "deny invalid_argument_name"}, "ligature": {"\ufb01le", "deny invalid_argument_name"}, "dotted capital I": {"F\u0130LE", "deny invalid_argument_name"}, "invalid UTF-8": {"a\xff", "deny invalid_argument_name"},
	} {
		t.Run(name, func(t *testing.T) {
			in := call("x")
			for i, args := range []map[string]any{{c.key: "v"}, {"a": map[string]any{c.key: nil}}, {"a": []any{[]any{map[string]any{"b": map[string]any{c.key: 1}}}}}} {
				in.Args = args
				if got := set.Evaluate(in); codes(got) != c.want {
					t.Errorf("depth %d: got %s, want %s", i, codes(got), c.want)
				}
			}
		})
	}
}

func TestOtherOperandsMustBeClean(t *testing.T) {
	set := compileDocs(t, doc("all", "", "allow ok: true"), doc("no", "{actions: [delete]}", "deny no: true"))
	for i, spoil := range []func(*Input){
		func(in *Input) { in.Action = "delete\x00" }, func(in *Input) { in.Source = "a\x1b" }, func(in *Input) { in.ResourceKind = "\xff" },
		func(in *Input) { in.Action = "del\u200bete" }, func(in *Input) { in.Protocol = "a\n" },
		func(in *Input) { in.Risk = map[string]any{"risk_class": "x\x00"} },
	} {
		in := call("x")
		spoil(&in)
		t.Run(fmt.Sprint(i), func(t *testing.T) { expect(t, set.Evaluate(in), "deny invalid_operand") })
	}
	in := call("x")
	in.Action = "löschen"
	expect(t, set.Evaluate(in), "allow ok")
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"**", "abc", true}, {"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "acb", false}, {"a?c", "ac", false},
		{"?", "é", true}, {"??", "é", false}, {"*é", "caé", true}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXbYbZ", false}, {"", "", true}, {"", "a", false},
		{"*a", "aaab", false}, {"a", "A", false}, {"[a]", "a", false}, {"a.c", "abc", false}, {"*", "日本", true}, {"日?", "日本", true},
	} {
		if got := matchGlob(c.pattern, c.s); got != c.want {
			t.Errorf("glob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

func TestGlobTakesNoLongOnHostilePatterns(t *testing.T) {
	if matchGlob(strings.Repeat("*a", 128), strings.Repeat("a", 127)+"b") {
		t.Error("matched")
	}
}

// Adding a policy that can only restrict never loosens a verdict, whatever the
// set and the call.
func TestRestrictingPoliciesOnlyTighten(t *testing.T) {
	tools := rapid.SampledFrom([]string{"read", "Read", "read_file", "write", "drop_x", ""})
	patterns := rapid.SampledFrom([]string{"", "{tools: [read]}", "{tools: [Read]}", "{tools: ['read*']}", "{tools: ['*']}", "{tools: [write, read]}", "{actions: [write]}", "{tenants: [acme]}", "{tenants: [other]}", "{sources: ['rt*']}"})
	whens := rapid.SampledFrom([]string{"true", "tool == 'read'", "args.n > 1", "args.nope == 1", "tool != 'write'"})
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string, verdicts ...string) string {
			return doc(name, patterns.Draw(rt, "match"), rapid.SampledFrom(verdicts).Draw(rt, "verdict")+" r: "+whens.Draw(rt, "when"))
		}
		var docs []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "policies") {
			docs = append(docs, draw(fmt.Sprintf("p%d", i), "allow", "ask", "defer", "deny"))
		}
		in := call(tools.Draw(rt, "tool"))
		in.Action = rapid.SampledFrom([]string{"", "write"}).Draw(rt, "action")
		in.Args = tree(t, `{"n":2}`)
		before := compileDocs(t, docs...).Evaluate(in).Verdict
		decided := append(docs, draw("extra", "ask", "defer", "deny"))
		after := compileDocs(t, decided...).Evaluate(in).Verdict
		undecided := before == events.Deny // nothing matched, or a deny: an ask that now matches is no loosening to allow
		if after.Strictness() < before.Strictness() && !(undecided && after != events.Allow) {
			rt.Fatalf("%s became %s", before, after)
		}
	})
}

func BenchmarkEvaluate(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		var docs []string
		for i := range n {
			docs = append(docs, doc(fmt.Sprintf("p%d", i), fmt.Sprintf("{tenants: [acme], tools: [tool_%d]}", i), `allow ok: args.to.endsWith("@example.com")`))
		}
		set := compileDocs(b, docs...)
		in := call(fmt.Sprintf("tool_%d", n-1))
		in.Args = map[string]any{"to": "a@example.com"}
		b.Run(fmt.Sprintf("exact-%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if set.Evaluate(in).Verdict != events.Allow {
					b.Fatal("not allowed")
				}
			}
		})
	}
}
