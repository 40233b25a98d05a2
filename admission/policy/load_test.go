package policy

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

const goodPolicy = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: mail}
spec:
  match: {tenants: [acme], sources: ["*"], protocols: [agenthook], tools: ["send_*"]}
  expiresAfter: 90s
  rules:
    - name: internal
      when: 'args.to.endsWith("@example.com")'
      verdict: allow
      reason: internal_recipient
      message: "Mail inside the company."
`

func TestMistakesAreNamedWithFileAndLine(t *testing.T) {
	replace := func(old, with string) string {
		if !strings.Contains(goodPolicy, old) {
			t.Fatalf("the sample has no %q", old)
		}
		return strings.Replace(goodPolicy, old, with, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":              {"", "p.yaml:1: the file holds no policy"},
		"only comments":        {"# nothing\n", "p.yaml:1: the file holds no policy"},
		"empty document":       {goodPolicy + "---\n", "p.yaml:13: the document is not a policy"},
		"null":                 {"null\n", "p.yaml:1: the document is not a policy"},
		"list":                 {"- a\n", "p.yaml:1: the document is not a policy"},
		"broken YAML":          {"a: [b\n", "p.yaml:"},
		"not UTF-8":            {"a: \xff\n", "p.yaml:1: the file is not UTF-8"},
		"tab":                  {"a:\n\t- b\n", "p.yaml:2"},
		"unknown key":          {replace("  expiresAfter", "  expireAfter"), `p.yaml:6: spec has no key "expireAfter"`},
		"key in other case":    {replace("kind:", "Kind:"), `p.yaml:2: the policy has no key "Kind"`},
		"unknown operand":      {replace("sources:", "source:"), `p.yaml:5: spec.match has no key "source"`},
		"unknown rule key":     {replace("message:", "msg:"), `p.yaml:12: a rule has no key "msg"`},
		"unknown metadata":     {replace("{name: mail}", "{name: mail, labels: {}}"), `p.yaml:3: metadata has no key "labels"`},
		"key twice":            {goodPolicy + "kind: AdmissionPolicy\n", `p.yaml:13: the policy has the key "kind" twice`},
		"version":              {replace("dev/v1", "dev/v2"), "p.yaml:1: apiVersion"},
		"kind":                 {replace("AdmissionPolicy", "Policy"), "p.yaml:2: kind"},
		"no name":              {replace("{name: mail}", "{}"), "p.yaml:3: metadata needs name"},
		"bad name":             {replace("name: mail", "name: Mail"), "p.yaml:3: metadata.name"},
		"built-in's name":      {replace("name: mail", "name: evaluators-only"), "belongs to the built-in policy"},
		"number as name":       {replace("name: mail", "name: 5"), "p.yaml:3: metadata.name must be a string"},
		"no rules":             {goodPolicy[:strings.Index(goodPolicy, "  rules")], "p.yaml:5: spec needs rules"},
		"empty rules":          {goodPolicy[:strings.Index(goodPolicy, "  rules")] + "  rules: []\n", "p.yaml:7: spec.rules is empty"},
		"rules null":           {goodPolicy[:strings.Index(goodPolicy, "  rules")] + "  rules:\n", "p.yaml:7: spec.rules is empty"},
		"rule no mapping":      {goodPolicy[:strings.Index(goodPolicy, "  rules")] + "  rules: [a]\n", "p.yaml:7: a rule must be a mapping"},
		"rules no list":        {goodPolicy[:strings.Index(goodPolicy, "  rules")] + "  rules: {a: b}\n", "p.yaml:7: spec.rules must be a list"},
		"empty match":          {replace(goodPolicy[strings.Index(goodPolicy, "match:"):strings.Index(goodPolicy, "\n  expires")], "match: {}"), "p.yaml:5: spec.match is empty"},
		"null match":           {replace(goodPolicy[strings.Index(goodPolicy, "match:"):strings.Index(goodPolicy, "\n  expires")], "match:"), "p.yaml:5: spec.match must be a mapping"},
		"empty operand":        {replace("[acme]", "[]"), "p.yaml:5: match.tenants is empty"},
		"null operand":         {replace("[acme]", "null"), "p.yaml:5: match.tenants is empty"},
		"blank operand":        {replace("[acme]", ""), "p.yaml:5: match.tenants is empty"},
		"text operand":         {replace("[acme]", "acme"), "p.yaml:5: match.tenants must be a list"},
		"empty entry":          {replace("[acme]", `[acme, ""]`), "p.yaml:5: an entry of match.tenants is empty"},
		"null entry":           {replace("[acme]", `[acme, null]`), "p.yaml:5: an entry of match.tenants must be a string"},
		"boolean entry":        {replace("[acme]", `[true]`), "p.yaml:5: an entry of match.tenants must be a string"},
		"white space":          {replace("[acme]", `[" acme"]`), "white space"},
		"entry twice":          {replace("[acme]", `[acme, acme]`), `match.tenants lists "acme" twice`},
		"NUL in tool":          {replace(`"send_*"`, `"send_\0*"`), "control characters"},
		"impossible tool":      {replace(`"send_*"`, "\"s\u0435nd_*\""), "can match no acceptable tool name"},
		"lifetime too long":    {replace("90s", "25h"), "p.yaml:6: spec.expiresAfter must be a duration"},
		"lifetime too short":   {replace("90s", "10ms"), "p.yaml:6: spec.expiresAfter must be a duration"},
		"lifetime negative":    {replace("90s", "-60s"), "p.yaml:6: spec.expiresAfter must be a duration"},
		"lifetime no unit":     {replace("90s", "90"), "p.yaml:6: spec.expiresAfter must be a string"},
		"lifetime null":        {replace("90s", ""), "p.yaml:6: spec.expiresAfter must be a string"},
		"no when":              {replace("      when: 'args.to.endsWith(\"@example.com\")'\n", ""), "p.yaml:8: a rule needs when"},
		"empty when":           {replace(`'args.to.endsWith("@example.com")'`, `""`), "p.yaml:9: the rule's when is empty"},
		"when true unquoted":   {replace(`'args.to.endsWith("@example.com")'`, `true`), "p.yaml:9: the rule's when must be a string"},
		"verdict":              {replace("verdict: allow", "verdict: permit"), `the verdict "permit" is none of`},
		"verdict case":         {replace("verdict: allow", "verdict: Allow"), `the verdict "Allow" is none of`},
		"verdict missing":      {replace("      verdict: allow\n", ""), "a rule needs verdict"},
		"reason":               {replace("internal_recipient", "Internal-Recipient"), "p.yaml:11: the rule's reason"},
		"message lines":        {replace(`"Mail inside the company."`, `"a\nb"`), "p.yaml:12: the rule's message"},
		"alias":                {replace("name: mail", "name: &n mail") + "---\n" + replace("name: mail", "name: *n"), "is an alias"},
		"merge":                {replace("name: internal", "<<: {name: x}"), `a rule has no key "<<"`},
		"tag":                  {replace("name: mail", "name: !!str mail"), "metadata.name must be a string"},
		"agents and tools":     {replace("tools:", "toAgents: [a], tools:"), "p.yaml:5: match.tools excludes match.fromAgents and match.toAgents"},
		"handoff and tools":    {replace("[agenthook]", "[handoff, tool]"), "p.yaml:5: match.tools excludes the protocol handoff"},
		"agents elsewhere":     {replace(`tools: ["send_*"]`, "fromAgents: [a]"), "p.yaml:5: match.fromAgents and match.toAgents are of the protocol handoff"},
		"empty agents":         {replace("tools:", "toAgents: [], tools:"), "p.yaml:5: match.toAgents is empty"},
		"null agents":          {replace("tools:", "fromAgents: , tools:"), "p.yaml:5: match.fromAgents is empty"},
		"blank agent":          {replace("tools:", `fromAgents: [""], tools:`), "p.yaml:5: an entry of match.fromAgents is empty"},
		"impossible agent":     {replace("tools:", "toAgents: [\"Fin\u0430nce\"], tools:"), "can match no acceptable agent name"},
		"fallback no boolean":  {replace("expiresAfter: 90s", "fallback: yes"), "p.yaml:6: spec.fallback must be true or false"},
		"fallback text":        {replace("expiresAfter: 90s", `fallback: "true"`), "p.yaml:6: spec.fallback must be true or false"},
		"fallback null":        {replace("expiresAfter: 90s", "fallback:"), "p.yaml:6: spec.fallback must be true or false"},
		"raw no boolean":       {replace("expiresAfter: 90s", "acceptRawArguments: 1"), "p.yaml:6: spec.acceptRawArguments must be true or false"},
		"result mode":          {replace("verdict: allow", "verdict: deny\n      resultMode: soft"), "p.yaml:11: the rule's resultMode"},
		"result mode of allow": {replace("verdict: allow", "verdict: allow\n      resultMode: throw"), "resultMode says how a refusal is told"},
		"syntax":               {replace(`'args.to.endsWith("@example.com")'`, `'args.to ='`), "p.yaml:9: policy mail, rule internal: when is not valid CEL; at 1:"},
		"unknown variable":     {replace("args.to", "arg.to"), "undeclared reference"},
		"type":                 {replace(`'args.to.endsWith("@example.com")'`, `'tool == 5'`), "p.yaml:9: policy mail, rule internal: when is not valid CEL"},
		"not a condition":      {replace(`'args.to.endsWith("@example.com")'`, `'tool'`), "when must be true or false"},
		"dyn is no condition":  {replace(`'args.to.endsWith("@example.com")'`, `'args.ok'`), "when must be true or false"},
		"bad regexp":           {replace(`'args.to.endsWith("@example.com")'`, `'tool.matches("(")'`), "p.yaml:9: policy mail"},
		"too costly":           {replace(`'args.to.endsWith("@example.com")'`, `'args.a.all(x, x.all(y, y.all(z, z.all(w, w == 1))))'`), "when may cost more than"},
		"too long":             {replace(`'args.to.endsWith("@example.com")'`, `'tool == "`+strings.Repeat("x", MaxExpression)+`"'`), "more than 8192 characters"},
		"too deep":             {replace(`'args.to.endsWith("@example.com")'`, "'"+strings.Repeat("(", 300)+"true"+strings.Repeat(")", 300)+"'"), "p.yaml:9: policy mail"},
		"same name":            {goodPolicy + "---\n" + goodPolicy, "p.yaml:14: the name mail is taken by the policy at p.yaml:1"},
		"same rule":            {goodPolicy + strings.TrimPrefix(goodPolicy[strings.Index(goodPolicy, "    - name"):], ""), "p.yaml:13: two rules are named internal"},
		"unknown built-in":     {"builtin: allow-all\n", "p.yaml:1: builtin"},
		"built-in with match":  {"builtin: evaluators-only\nmatch: {}\n", `p.yaml:2: a built-in policy has no key "match"`},
		"second document line": {goodPolicy + "---\n" + strings.Replace(replace("name: mail", "name: two"), "kind:", "knd:", 1), "p.yaml:15: the policy has no key"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Compile([]Document{{Name: "p.yaml", Data: []byte(c.text)}})
			if err == nil {
				t.Fatalf("compiled to %v", set.Names())
			}
			if set != nil {
				t.Error("a set came with the error")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	line := "builtin: evaluators-only\n"
	half := strings.Repeat(line+"---\n", MaxPolicies/2) + line
	entries := strings.Repeat("a, ", MaxOperand) + "a"
	for name, docs := range map[string][]Document{
		"a file too large":          {{Name: "p", Data: make([]byte, MaxDocument+1)}},
		"too many in one file":      {{Name: "p", Data: []byte(half + "---\n" + half)}},
		"too many in several files": {{Name: "p", Data: []byte(half)}, {Name: "q", Data: []byte(half)}},
		"too many entries":          {{Name: "p", Data: []byte(doc("a", "{tools: ["+entries+"]}", "allow ok: true"))}},
	} {
		if set, err := Compile(docs); err == nil || set != nil {
			t.Errorf("%s: compiled", name)
		}
	}
}

func TestEveryMistakeIsReported(t *testing.T) {
	_, err := Compile([]Document{
		{Name: "a.yaml", Data: []byte(strings.ReplaceAll(strings.ReplaceAll(goodPolicy, "[acme]", "[]"), "allow", "maybe"))},
		{Name: "b.yaml", Data: []byte("x: 1\n")},
	})
	for _, want := range []string{"a.yaml:5:", "a.yaml:8:", "b.yaml:1:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in:\n%v", want, err)
		}
	}
	var one *Error
	if !errors.As(err, &one) || one.File == "" || one.Line == 0 {
		t.Errorf("no *Error in %v", err)
	}
}

func TestOneBrokenPolicySpoilsTheSet(t *testing.T) {
	set, err := Compile([]Document{{Name: "good", Data: []byte(goodPolicy)}, {Name: "bad", Data: []byte("x")}})
	if set != nil || err == nil {
		t.Fatal("a broken file was left out silently")
	}
}

func TestNoPolicyIsAnError(t *testing.T) {
	if _, err := Compile(nil); !errors.Is(err, ErrNoPolicies) {
		t.Errorf("got %v", err)
	}
	for name, dir := range map[string]fs.FS{
		"empty directory": fstest.MapFS{},
		"other files":     fstest.MapFS{"README.md": {}, "policy.yaml.bak": {}},
		"hidden files":    fstest.MapFS{".mail.yaml": {Data: []byte(goodPolicy)}, "..data/mail.yaml": {Data: []byte(goodPolicy)}},
		"misspelt":        subDir(t, fstest.MapFS{"policies/mail.yaml": {Data: []byte(goodPolicy)}}, "polices"),
	} {
		docs, err := LoadDir(dir)
		if !errors.Is(err, ErrNoPolicies) || docs != nil {
			t.Errorf("%s: %v, %v", name, docs, err)
		}
	}
}

func subDir(t *testing.T, fsys fs.FS, dir string) fs.FS {
	t.Helper()
	sub, err := fs.Sub(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func TestLoadDir(t *testing.T) {
	docs, err := LoadDir(fstest.MapFS{
		"b.yml": {Data: []byte("b")}, "a.yaml": {Data: []byte("a")}, "sub/c.YAML": {Data: []byte("c")}, "d.json": {}, ".git/e.yaml": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range docs {
		names = append(names, d.Name)
	}
	if got := strings.Join(names, " "); got != "a.yaml b.yml sub/c.YAML" {
		t.Error(got)
	}
	if _, err := LoadDir(brokenFS{}); err == nil || errors.Is(err, ErrNoPolicies) {
		t.Errorf("an unreadable directory gave %v", err)
	}
}

type brokenFS struct{}

func (brokenFS) Open(string) (fs.File, error) { return nil, fs.ErrPermission }

func TestDigestCoversWhatDecidesAndNothingElse(t *testing.T) {
	base := compileDocs(t, goodPolicy).Digest()
	if !strings.HasPrefix(base, "sha256:") {
		t.Fatal(base)
	}
	other := doc("other", "", "deny no: true")
	for name, same := range map[string]string{
		"comment": "# hello\n" + goodPolicy,
		"quotes":  strings.Replace(goodPolicy, "[acme]", `["acme"]`, 1),
	} {
		if got := compileDocs(t, same).Digest(); got != base {
			t.Errorf("%s changed the digest", name)
		}
	}
	if compileDocs(t, goodPolicy, other).Digest() != compileDocs(t, other, goodPolicy).Digest() {
		t.Error("order changed the digest")
	}
	for _, edit := range [][2]string{{"acme", "acmf"}, {"90s", "91s"}, {"allow", "deny"}, {"internal_recipient", "x"}, {"company", "house"},
		{"name: mail", "name: post"}, {"  expires", "  fallback: true\n  expires"}, {"  expires", "  acceptRawArguments: true\n  expires"}, {"verdict: allow", "verdict: ask\n      resultMode: tool_result"},
		{`protocols: [agenthook], tools: ["send_*"]`, "toAgents: [a]"}, {`protocols: [agenthook], tools: ["send_*"]`, "fromAgents: [a]"}, {"name: internal", "name: i"}, {"example.com", "example.org"}, {"[agenthook]", "[aaep]"}} {
		if compileDocs(t, strings.Replace(goodPolicy, edit[0], edit[1], 1)).Digest() == base {
			t.Errorf("%s did not change the digest", edit)
		}
	}
	var none *Set
	if none.Digest() != "" || none.Names() != nil {
		t.Error("the nil set has a name or a digest")
	}
}

func TestBuiltin(t *testing.T) {
	set, err := EvaluatorsOnlySet()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(set.Names(), " "); got != EvaluatorsOnly {
		t.Error(got)
	}
	expect(t, set.Evaluate(call("anything")), "allow evaluators_only")
	expect(t, set.Evaluate(call("")), "allow evaluators_only")
	expect(t, compileDocs(t, "builtin: evaluators-only\n", doc("no", "{tools: [rm]}", "deny no_rm: true")).Evaluate(call("rm")), "deny evaluators_only,no_rm")
	if _, ok := builtinDocument("allow-all"); ok {
		t.Error("there is another built-in policy")
	}
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(goodPolicy))
	f.Add([]byte("builtin: evaluators-only\n"))
	f.Add([]byte("a: &a [*a, *a]\n"))
	f.Add([]byte(strings.ReplaceAll(goodPolicy, "[acme]", "[]")))
	f.Add([]byte("? {a: b}\n: c\n---\n- - -\n"))
	f.Add([]byte(doc("x", "{tools: ['?*']}", `ask a: args.a.exists(x, x in [1, 2.0]) || event.b > 1`)))
	f.Add([]byte(other("Params", "a", "{x: [1, 2], y: {z: t}}") + "---\n" + written("p", "paramsFrom: [a]", "variables: [{name: v, expression: 'params.x[0] + 1'}]",
		ruleOf("ask", "variables.v in params.x", "match: {tools: ['s*'], eventTypes: [Pre]}", "limit: {max: 1, per: 1m, by: [session], amount: 'params.x[1]'}"))))
	f.Add([]byte(other("ReviewerGroup", "g", "{members: [a, b], tenants: [acme]}") + "---\n" + written("p", "scope: default", "validationActions: [warn, audit]",
		"approval: {reviewers: [g], quorum: 2, resume: manual_retry, expiresAfter: 1h, show: [/to]}", ruleOf("defer", "has(catalog.risk)", "approval: {quorum: 1}"))))
	in := call("send_mail")
	in.Counters = NoCounts{}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Compile([]Document{{Name: "f", Data: data}})
		if (set == nil) != (err != nil) {
			t.Fatal("neither a set nor an error, or both")
		}
		problems := Lint([]Document{{Name: "f", Data: data}})
		if err != nil {
			if len(problems) == 0 || problems[0].Severity != SeverityError {
				t.Fatalf("an error, and Lint says %+v", problems)
			}
			return
		}
		v := set.Evaluate(in)
		if len(v.Reasons) == 0 || !v.Verdict.Valid() {
			t.Fatalf("%+v", v)
		}
		again, err := Compile([]Document{{Name: "f", Data: data}})
		if err != nil || again.Digest() != set.Digest() || !reflect.DeepEqual(again.Evaluate(in), v) {
			t.Fatal("not deterministic")
		}
	})
}
