package reference

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
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
	p.line("The severity is that of a finding, unless a case is graded lower. A check that the log does not decide has no findings; the last column says why.")
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
