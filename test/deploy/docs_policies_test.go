package deploy_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/policy/functions"
	"github.com/countersign-dev/countersign/examples"
)

func TestPoliciesInDocsCompile(t *testing.T) {
	n := 0
	for _, b := range blocks(t, "docs/policies.md") {
		if b.info != "yaml" {
			continue
		}
		n++
		if _, err := policy.Compile([]policy.Document{{Name: fmt.Sprintf("%s:%d", b.file, b.line), Data: []byte(b.text)}}); err != nil {
			t.Errorf("the policy at %s:%d does not compile: %v", b.file, b.line, err)
		}
	}
	if n < 5 {
		t.Errorf("only %d policies were found", n)
	}
}

func TestExamplePoliciesCompileAndAreShown(t *testing.T) {
	sub, err := fs.Sub(examples.FS, "policies")
	ok(t, err)
	docs, err := policy.LoadDir(sub)
	ok(t, err)
	_, err = policy.Compile(docs)
	ok(t, err)
	page := read(t, "docs/policies.md")
	for _, d := range docs {
		if !strings.Contains(page, "### "+d.Name+"\n") || !strings.Contains(page, "```yaml\n"+string(d.Data)+"```") {
			t.Errorf("docs/policies.md does not show examples/policies/%s as it is", d.Name)
		}
	}
}

// TestPolicyVariables: the table of variables is what a condition sees.
func TestPolicyVariables(t *testing.T) {
	compiles := func(when string) error {
		_, err := policy.Compile([]policy.Document{{Name: "t.yaml", Data: []byte(
			"apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: t}\nspec:\n  rules:\n    - {name: r, when: '" + when + "', verdict: allow, reason: r}\n")}})
		return err
	}
	types := map[string]string{"string": `%s.startsWith("x")`, "map": `has(%s.x)`, "timestamp": `%s.getHours() == 1`, "text or object": `%s == "x"`, "object": `%s.kind == "x"`}
	for _, row := range rows(t, "docs/policies.md", "| variable | type | what it is |") {
		name := codes(row[0])[0]
		if err := compiles(fmt.Sprintf(types[row[1]], name)); err != nil {
			t.Errorf("%s is not a %s: %v", name, row[1], err)
		}
		if err := compiles("no_such_" + name + " == 1"); err == nil {
			t.Error("an unknown variable compiles, so this test shows nothing")
		}
	}
}

// TestFunctionsInDocs: every function has an example, and the example is true.
func TestFunctionsInDocs(t *testing.T) {
	shown := map[string]bool{}
	for _, row := range rows(t, "docs/policies.md", "| function | result | an example that is true |") {
		name, _, _ := strings.Cut(codes(row[0])[0], "(")
		shown[name] = true
		set, err := policy.Compile([]policy.Document{{Name: "t.yaml", Data: []byte(
			"apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: t}\nspec:\n  rules:\n    - name: r\n      when: >-\n        " + codes(row[2])[0] + "\n      verdict: allow\n      reason: r\n")}})
		ok(t, err)
		if got := set.Evaluate(policy.Input{Tenant: "acme", Protocol: "agenthook", Tool: "x"}); got.Verdict != "allow" {
			t.Errorf("%s: %s is not true", name, row[2])
		}
	}
	for _, name := range functions.Names() {
		if !shown[name] {
			t.Errorf("docs/policies.md leaves out %s", name)
		}
	}
}

func TestPolicyLimits(t *testing.T) {
	want := map[string]int{
		"bytes of one file": policy.MaxDocument, "policies in one set": policy.MaxPolicies, "rules of one policy": policy.MaxRules,
		"entries of one operand": policy.MaxOperand, "characters of one entry": policy.MaxPattern, "characters of one condition": policy.MaxExpression,
		"characters of one message": policy.MaxMessage, "variables of one policy": policy.MaxVariables, "params of one policy": policy.MaxParams,
		"entries of one list or mapping of a param": policy.MaxParamEntries, "characters of one text of a param": policy.MaxParamText,
		"documents of one paramsFrom": policy.MaxParamsFrom, "members of one reviewer group": policy.MaxMembers,
		"groups of one approval": policy.MaxReviewers, "entries of one show": policy.MaxShown, "limits on one call": policy.MaxCounts,
		"estimated cost of one condition": policy.MaxStaticCost, "real cost of one evaluation": policy.MaxRuntimeCost,
		"real cost of all evaluations on one call": policy.MaxCallSteps, "bytes that all evaluations make on one call": policy.MaxCallBytes,
		"characters of a pattern that is not written in the condition": policy.MaxPatternOfCall,
	}
	for _, row := range rows(t, "docs/policies.md", "| limit | value |") {
		if n, err := strconv.Atoi(row[1]); err != nil || n != want[row[0]] {
			t.Errorf("%s: %s, the code says %d", row[0], row[1], want[row[0]])
		}
		delete(want, row[0])
	}
	if len(want) > 0 {
		t.Errorf("docs/policies.md leaves out %v", want)
	}
}

// TestPolicyErrorsInDocs: the messages shown are those that the reader gives.
func TestPolicyErrorsInDocs(t *testing.T) {
	const bad = "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: mail\nspec:\n%s  rules:\n    - name: colleagues\n" +
		"      when: 'args.to.%s(\"@acme.example\")'\n      verdict: %s\n      reason: internal\n"
	_, malformed := policy.Compile([]policy.Document{{Name: "bad.yaml", Data: fmt.Appendf(nil, bad, "  match:\n    tools: []\n    tool: [x]\n", "endsWith", "alow")}})
	_, cel := policy.Compile([]policy.Document{{Name: "bad.yaml", Data: fmt.Appendf(nil, bad, "", "endWith", "allow")}})
	said := fmt.Sprint(malformed, "\n", cel)
	position := regexp.MustCompile(`^bad\.yaml:\d+: `)
	for _, b := range blocks(t, "docs/policies.md") {
		if b.info != "text" {
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(b.text), "\n") {
			if text := position.ReplaceAllString(line, ""); text == line || !strings.Contains(said, text) {
				t.Errorf("%q is not what the reader says:\n%s", line, said)
			}
		}
	}
}

// TestLintCodes: the reference explains every code that Lint can say.
func TestLintCodes(t *testing.T) {
	const page = "docs/reference/reason-codes.md"
	_, section, _ := strings.Cut(read(t, page), "\n### Findings of policy lint\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, code := range policy.LintCodes() {
		if !strings.Contains(section, "| `"+code+"` | ") {
			t.Errorf("%s does not explain %s", page, code)
		}
	}
}

// TestPoliciesInDocsAreClean: what the page shows is what lint would praise.
func TestPoliciesInDocsAreClean(t *testing.T) {
	for _, b := range blocks(t, "docs/policies.md") {
		if b.info != "yaml" {
			continue
		}
		for _, p := range policy.Lint([]policy.Document{{Name: b.file, Data: []byte(b.text)}}) {
			if p.Severity != policy.SeverityInfo && p.Code != policy.LintNothingEnforced {
				t.Errorf("%s:%d: %s: %s", b.file, b.line+p.Line, p.Code, p.Message)
			}
		}
	}
}
