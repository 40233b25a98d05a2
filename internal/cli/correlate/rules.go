package correlate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/auditor"
)

// RulesCmd is `countersign rules`.
type RulesCmd struct {
	List     rulesListCmd     `cmd:"" help:"List every rule and check, those that no log can decide included."`
	Show     rulesShowCmd     `cmd:"" help:"Show one rule or check."`
	Switches rulesSwitchesCmd `cmd:"" help:"List what is switched for a tenant."`
	Set      rulesSetCmd      `cmd:"" help:"Say what becomes of a tenant's findings of a rule: off, warn or enforce."`
}

type rulesListCmd struct {
	Protocol string `help:"Only the checks of a protocol (aaep, agenthook or aump), or our own rules (countersign)." enum:"aaep,agenthook,aump,countersign," default:""`
	Status   string `help:"Only what is implemented, or undecidable." enum:"implemented,undecidable," default:""`
	JSON     bool   `name:"json" help:"One JSON object a line."`
}

// OwnRules is what the column of protocols says of rules that are ours.
const OwnRules = "countersign"

// Rule is a rule or check as other programs read it.
type Rule struct {
	ID          string            `json:"id"`
	Protocol    string            `json:"protocol"`
	Level       catalogue.Level   `json:"level"` // all our own rules are derived
	Severity    events.Severity   `json:"severity"`
	Scope       catalogue.Scope   `json:"scope"`
	Inputs      string            `json:"inputs"`
	Refs        string            `json:"refs"`
	Explanation string            `json:"explanation"`
	Remedy      string            `json:"remedy,omitempty"`
	Status      catalogue.Status  `json:"status"`
	Reason      string            `json:"reason,omitempty"`
	Cases       map[string]string `json:"cases,omitempty"`

	auditors bool // found by the auditor or the admitter; switches apply to the correlator's findings
}

// AllRules are our own rules, then every check of the catalogue.
func AllRules() []Rule {
	var list []Rule
	for _, r := range correlation.Rules() {
		list = append(list, Rule{
			ID: r.Name, Protocol: OwnRules, Level: catalogue.Derived, Severity: r.Severity, Scope: catalogue.ScopeSession, Inputs: r.Inputs,
			Refs: strings.Join(r.Refs, ", "), Explanation: readable(r.Explanation), Remedy: r.Remedy, Status: catalogue.Implemented, Cases: readableCases(r.Cases),
		})
	}
	fixed := auditor.Rules()
	for _, r := range admitter.Rules() {
		fixed = append(fixed, auditor.Rule(r))
	}
	for _, r := range fixed {
		list = append(list, Rule{
			ID: r.Name, Protocol: OwnRules, Level: catalogue.Derived, Severity: r.Severity, Scope: catalogue.ScopeEvent, Inputs: r.Inputs, Refs: r.Ref,
			Explanation: r.Explanation, Remedy: r.Remedy, Status: catalogue.Implemented, auditors: true,
		})
	}
	for _, c := range checks.All() {
		list = append(list, Rule{
			ID: c.ID, Protocol: c.Protocol, Level: c.Level, Severity: c.Severity, Scope: c.Scope, Inputs: c.Inputs, Refs: c.Ref,
			Explanation: c.Explanation, Remedy: c.Remedy, Status: c.Status, Reason: c.Reason,
		})
	}
	return list
}

// readable replaces the placeholders of a finding's text by words.
func readable(text string) string {
	text = strings.NewReplacer("{tool}", "a tool", "{call}", "a call", "recorded {verdict}", "recorded verdict", "{verdict}", "ask or defer",
		": {what}", "", "than were {what}", "than were admitted, requested or announced", "was {what} for", "was admitted, requested or announced for", "decision {what}", "another decision").Replace(text)
	return strings.ToUpper(text[:1]) + text[1:]
}

func readableCases(cases map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range cases {
		out[name] = readable(text)
	}
	return out
}

func (c *rulesListCmd) Run(io ui.Stdio) error {
	var list []Rule
	for _, r := range AllRules() {
		if (c.Protocol == "" || c.Protocol == r.Protocol) && (c.Status == "" || c.Status == string(r.Status)) {
			list = append(list, r)
		}
	}
	if c.JSON {
		return ui.WriteJSONLines(io.Out, list)
	}
	var t ui.Listing
	for _, r := range list {
		grade := string(r.Severity)
		if r.Status == catalogue.Undecidable {
			grade = "-"
		}
		t.Row(r.ID, string(r.Level), grade, string(r.Status), r.Explanation)
	}
	return t.Print(io.Out)
}

type rulesShowCmd struct {
	ID   string `arg:"" help:"Of a rule or check, as findings name it: input_drift, AAEP-C-100, AH-C-075."`
	JSON bool   `name:"json" help:"As JSON."`
}

func (c *rulesShowCmd) Run(io ui.Stdio) error {
	for _, r := range AllRules() {
		if !strings.EqualFold(r.ID, c.ID) {
			continue
		}
		if c.JSON {
			return ui.WriteJSONLines(io.Out, []Rule{r})
		}
		return r.print(io.Out)
	}
	return ui.UsageError{Err: fmt.Errorf("there is no rule %.60q; \"countersign rules list\" has them all", c.ID)}
}

func (r Rule) print(out io.Writer) error {
	fmt.Fprintf(out, "%s: %s\n\n", r.ID, r.Explanation)
	var t ui.Listing
	for _, row := range [][2]string{
		{"protocol", r.Protocol}, {"level", string(r.Level)}, {"severity", string(r.Severity)}, {"scope", string(r.Scope)},
		{"decided from", r.Inputs}, {"specification", r.Refs}, {"status", string(r.Status)}, {"why not", r.Reason}, {"remedy", r.Remedy},
	} {
		if row[1] != "" && !(row[0] == "severity" && r.Status == catalogue.Undecidable) {
			t.Row(row[0], row[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Cases)) {
		t.Row("case "+name, r.Cases[name])
	}
	return t.Print(out)
}

// KnownRule refuses a rule without any possible finding: the empty list of a mistyped name must
// not look like good news.
func KnownRule(name string) error {
	if name == "" {
		return nil
	}
	var names []string
	for _, r := range AllRules() {
		names = append(names, r.ID)
	}
	if slices.Contains(names, name) {
		return nil
	}
	hint := ""
	for _, n := range names {
		if strings.EqualFold(n, name) || strings.EqualFold(strings.ReplaceAll(n, "_", "-"), name) {
			hint = "; did you mean " + n + "?"
		}
	}
	return ui.UsageError{Err: fmt.Errorf("there is no rule %.80q%s (countersign rules list)", name, hint)}
}
