package deploy_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/policy/functions"
	"github.com/countersign-dev/countersign/events/strictjson"
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

// TestBudgetInDocs: the page's budget counts whole and broken amounts to the cent, and of one currency alone.
func TestBudgetInDocs(t *testing.T) {
	all := blocks(t, "docs/policies.md")
	i := slices.IndexFunc(all, func(b block) bool { return strings.Contains(b.text, "metadata: {name: spending}") })
	set, err := policy.Compile([]policy.Document{{Name: "spending.yaml", Data: []byte(all[i].text)}})
	ok(t, err)
	for args, want := range map[string]string{
		`{"amount":20,"currency":"EUR"}`: "allow 2000", `{"amount":19.99,"currency":"EUR"}`: "allow 1999", `{"amount":1.10,"currency":"EUR"}`: "allow 110", `{"amount":0.99,"currency":"EUR"}`: "allow 99",
		`{"amount":1000,"currency":"EUR"}`: "allow 100000", `{"amount":1000.01,"currency":"EUR"}`: "ask 100001",
		`{"amount":"500","currency":"EUR"}`: "deny 0", `{"amount":5,"currency":"JPY"}`: "deny 0", `{"amount":-5,"currency":"EUR"}`: "deny", `{"amount":5}`: "deny 0", `{"currency":"EUR"}`: "deny 0",
	} {
		tree, err := strictjson.ParseObject([]byte(args), strictjson.DefaultLimits)
		ok(t, err)
		got := set.Evaluate(policy.Input{Tenant: "acme", Source: "rt1", Protocol: "agenthook", Tool: "buy", Args: tree, Counters: policy.NoCounts{}})
		said := string(got.Verdict)
		for _, c := range got.Counts {
			said += fmt.Sprint(" ", c.Amount)
		}
		if said != want {
			t.Errorf("%s: %s, want %s", args, said, want)
		}
	}
}

func TestExamplePoliciesCompile(t *testing.T) {
	sub, err := fs.Sub(examples.FS, "policies/assistant")
	ok(t, err)
	docs, err := policy.LoadDir(sub)
	ok(t, err)
	_, err = policy.Compile(docs)
	ok(t, err)
}

// TestFunctionsInDocs: every function has an example, and the example is true.
func TestFunctionsInDocs(t *testing.T) {
	for _, f := range functions.All() {
		if !strings.HasPrefix(f.Use, f.Name+"(") || !strings.Contains(f.Example, f.Name+"(") || f.About == "" {
			t.Errorf("%s: %q, %q, %q", f.Name, f.Use, f.About, f.Example)
		}
		set, err := policy.Compile([]policy.Document{{Name: "t.yaml", Data: []byte(
			"apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: t}\nspec:\n  rules:\n    - name: r\n      when: >-\n        " + f.Example + "\n      verdict: allow\n      reason: r\n")}})
		ok(t, err)
		if got := set.Evaluate(policy.Input{Tenant: "acme", Protocol: "agenthook", Tool: "x"}); got.Verdict != "allow" {
			t.Errorf("%s: %s is not true", f.Name, f.Example)
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
