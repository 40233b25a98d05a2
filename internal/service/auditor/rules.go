package auditor

import (
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Rule describes a kind of finding that the auditor itself makes. Rule switches do not apply to
// it.
type Rule struct {
	Name                string
	Severity            events.Severity
	Explanation, Remedy string
	Inputs, Ref         string // the data it is decided from; where it is documented
}

// Rules lists the rules of the auditor's own findings.
func Rules() []Rule {
	list := []Rule{{ruleRecreated, events.SeverityCritical, "The log began anew; evidence or a published checkpoint of an earlier one is there and its log is gone.", remedyRecreated,
		"the time at which the log was created, and the shards that there is evidence of", "docs/operating.md#the-log-was-recreated"}}
	for _, name := range slices.Sorted(maps.Keys(redactionFindings)) {
		a := redactionFindings[name]
		list = append(list, Rule{name, a.severity, a.explains, a.help, a.inputs, "docs/redaction.md#when-redaction-fails"})
	}
	return list
}
