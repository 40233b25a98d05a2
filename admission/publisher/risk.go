package publisher

import (
	"maps"
	"strings"

	"github.com/countersign-dev/countersign/admission/risk"
)

func (d toolDoc) newEntry() *Entry {
	e := &Entry{
		Name: d.Name, Category: d.Category, Risk: d.Risk, Irreversible: d.Irreversible || risk.Irreversible(d.Risk), Requires: d.Requires,
		Mandate: Binding(d.Mandate), level: risk.LevelOf(d.Risk),
	}
	for _, h := range d.SchemaHashes {
		e.SchemaHashes = append(e.SchemaHashes, strings.ToLower(h))
	}
	requires := make([]any, 0, len(d.Requires))
	for _, r := range d.Requires {
		requires = append(requires, r)
	}
	e.facts = map[string]any{
		"known": true, "name": e.Name, "category": orUnknown(e.Category), "risk": orUnknown(e.Risk), "irreversible": e.Irreversible, "requires": requires,
	}
	return e
}

func orUnknown(word string) string {
	if word == "" {
		return "unknown"
	}
	return word
}

// RaiseRisk is what is known of the risk of a call: what the request says, and what
// the catalogue knows where that is stricter. said is not changed.
//
// The level becomes the higher one. The catalogue's word becomes risk_class
// unless the request's own is graded higher; then it becomes operation_risk, if
// the request has none that is graded higher. A word of the request that gave way
// becomes operation_risk where there was none: a policy that looks for either
// finds it.
func (e *Entry) RaiseRisk(said map[string]any) map[string]any {
	if e == nil || e.Risk == "" && !e.Irreversible {
		return said
	}
	out := maps.Clone(said)
	if out == nil {
		out = map[string]any{}
	}
	if e.Irreversible {
		out["irreversible"] = true
	}
	if e.Risk == "" {
		return out
	}
	word := func(key string) string { text, _ := out[key].(string); return text }
	if risk.ParseLevel(word("level")) < e.level {
		out["level"] = e.level.String()
	}
	class, operation := word("risk_class"), word("operation_risk")
	switch {
	case risk.LevelOf(class) <= e.level:
		out["risk_class"] = e.Risk
		if class != "" && operation == "" {
			out["operation_risk"] = class
		}
	case risk.LevelOf(operation) <= e.level:
		out["operation_risk"] = e.Risk
	}
	return out
}
