package correlate

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/ui/uitest"
)

// TestEveryRuleIsTold: no line of a rule is left out or holds a name that findings
// replace, and what is printed has its special cases.
func TestEveryRuleIsTold(t *testing.T) {
	of := map[string]correlation.Rule{}
	for _, r := range correlation.Rules() {
		of[r.Name] = r
	}
	inputs := map[string]string{}
	for _, r := range AllRules() {
		if r.Level == "" || r.Inputs == "" || r.Refs == "" || r.Explanation == "" || r.Status == catalogue.Implemented && r.Remedy == "" {
			t.Errorf("%s lacks something: %+v", r.ID, r)
		}
		var out strings.Builder
		if err := r.print(&out); err != nil {
			t.Fatal(err)
		}
		for name := range of[r.ID].Cases {
			if r.Cases[name] == "" || !strings.Contains(out.String(), r.Cases[name]) {
				t.Errorf("%s does not tell of its case %s", r.ID, name)
			}
		}
		if strings.ContainsAny(out.String(), "{}") {
			t.Errorf("%s", out.String())
		}
		if before := inputs[r.Inputs]; r.Protocol == OwnRules && before != "" {
			t.Errorf("%s and %s are decided from the same: %s", before, r.ID, r.Inputs)
		}
		inputs[r.Inputs] = r.ID
	}
}

// TestRuleReferences: the places in our own documents that rules refer to exist.
func TestRuleReferences(t *testing.T) {
	place := regexp.MustCompile(`(docs/[a-z-]+\.md)#([a-z-]+)`)
	found := 0
	for _, r := range AllRules() {
		for _, m := range place.FindAllStringSubmatch(r.Refs, -1) {
			text, err := os.ReadFile("../../../" + m[1])
			if err != nil {
				t.Fatal(err)
			}
			if found++; !strings.Contains(strings.ToLower(string(text)), "# "+strings.ReplaceAll(m[2], "-", " ")+"\n") {
				t.Errorf("%s refers to %s, and there is no such heading", r.ID, m[0])
			}
		}
	}
	if found == 0 {
		t.Error("no rule refers to a document of ours")
	}
}

// TestFindingsTables: the auditor's rules about redaction are in the table of the page that describes it, with
// their severities.
func TestFindingsTables(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (info|low|medium|high|critical) \\|")
	text, err := os.ReadFile("../../../docs/redaction.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		table[m[1]] = m[2]
	}
	for _, r := range AllRules() {
		if !strings.HasPrefix(r.Refs, "docs/redaction.md") {
			continue
		}
		if table[r.ID] != string(r.Severity) {
			t.Errorf("%s is %q in the table and %s in the code", r.ID, table[r.ID], r.Severity)
		}
		delete(table, r.ID)
	}
	for name := range table {
		t.Errorf("docs/redaction.md: there is no rule %s", name)
	}
}

func TestRuleColumns(t *testing.T) {
	uitest.SameColumns(t, map[string]func(io ui.Stdio, p *ui.Printer, text string){
		"a rule": func(io ui.Stdio, _ *ui.Printer, x string) {
			_ = Rule{ID: "x", Refs: x, Status: catalogue.Implemented}.print(io.Out)
		},
	})
}

func TestKnownRule(t *testing.T) {
	for name, known := range map[string]bool{"": true, "executed_despite_deny": true, "AH-C-075": true, "log_recreated": true, "executed-despite-deny": false, "ah-c-075": false, "nonsense": false} {
		err := KnownRule(name)
		if (err == nil) != known {
			t.Errorf("%s: %v", name, err)
		}
		if name == "ah-c-075" && !strings.Contains(fmt.Sprint(err), "did you mean AH-C-075?") {
			t.Errorf("%v", err)
		}
	}
}
