package reference

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/conformance"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/correlate"
)

// ruleGroups are the protocols of the rules, in the order of the page.
var ruleGroups = []struct{ protocol, title string }{
	{correlate.OwnRules, "Our own rules"},
	{subject.ProtoAAEP, "AAEP"},
	{subject.ProtoAgentHook, "AgentHook"},
	{subject.ProtoAUMP, "AUMP"},
}

func rules(_ string, p *text) error {
	p.line("The severity is that of a finding, unless a case is graded otherwise. A check that the log does not decide has no findings; the last column says why.")
	p.line("`countersign rules show ID` has what a rule is decided from and what to do about a finding.\n")
	for _, g := range ruleGroups {
		head, rows := []string{"id", "level", "severity", "what is wrong", "specification", "decided, or why not"}, [][]string(nil)
		if g.protocol == correlate.OwnRules {
			head = []string{"id", "severity", "what is wrong", "specification", "what to do"}
		}
		for _, r := range correlate.AllRules() {
			if r.Protocol != g.protocol {
				continue
			}
			severity, decided := string(r.Severity), "decided"
			if g.protocol == correlate.OwnRules { // the log decides all of them
				rows = append(rows, []string{quoted(r.ID), severity, r.Explanation, r.Refs, r.Remedy})
				continue
			}
			if r.Status == catalogue.Undecidable {
				severity, decided = "", r.Reason
			}
			rows = append(rows, []string{quoted(r.ID), string(r.Level), severity, r.Explanation, r.Refs, decided})
		}
		p.line("## %s\n\n%d rules.\n", g.title, len(rows))
		p.table(head, rows)
	}
	return nil
}

// profiles lists what `countersign conformance` holds traffic against.
func profiles(_ string, p *text) error {
	p.line("[conformance.md](../conformance.md) says how to read a report. `countersign rules show ID` explains a check.\n")
	for _, profile := range conformance.Profiles() {
		demand := fmt.Sprintf("%d %% of the requirements that are not excused", profile.Percent)
		if profile.Percent == 100 {
			demand = "all requirements that are not excused"
		}
		if profile.Includes != "" {
			demand = fmt.Sprintf("`%s`, and %s", profile.Includes, demand)
		}
		if len(profile.ClaimSigns) > 0 {
			demand += ". Reported for publishers that show a sign of claiming it, or with `--profile`"
		}
		p.line("## %s\n\n%s: %s.\n", profile.Name, profile.Title, demand)
		var rows [][]string
		for _, r := range profile.Requirements {
			by := quoted(r.Checks...)
			switch {
			case r.Reason != "":
				by = "not decided by any log: " + r.Reason
			case by == "" && r.EventType != "":
				by = "an event of this type"
			case by == "":
				by = strings.TrimSpace(string(r.BrokenBy))
			}
			if r.Mandatory {
				by += "; always required"
			}
			rows = append(rows, []string{quoted(r.ID), r.Text, by})
		}
		p.table([]string{"requirement", "demands", "decided by"}, rows)
	}
	return nil
}
