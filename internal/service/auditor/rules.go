package auditor

import (
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Rule is what a finding that the auditor itself makes is about. No switch
// concerns it.
type Rule struct {
	Name                string
	Severity            events.Severity
	Explanation, Remedy string
	Inputs, Ref         string // what it is decided from; where it is described
}

// Rules gives the rules of the auditor's own findings, by name.
func Rules() []Rule {
	list := []Rule{{ruleRecreated, events.SeverityCritical, "The log began anew; evidence of an earlier one is there and its log is gone.", remedyRecreated,
		"the time at which the log was created, and the shards that there is evidence of", "docs/operating.md#the-log-was-recreated"}}
	for _, name := range slices.Sorted(maps.Keys(redactionFindings)) {
		a := redactionFindings[name]
		list = append(list, Rule{name, a.severity, a.explains, a.help, a.inputs, "docs/redaction.md#when-redaction-fails"})
	}
	return list
}
