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

// RaiseRisk adds what the catalogue states to the risk that the request states. said is not changed.
//
// The level becomes the higher one, and irreversible is true where either says so. The request's own words stay as
// they are, and the catalogue's is in Facts: a policy that looks for one of either side's words finds it.
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
	if level, _ := out["level"].(string); risk.ParseLevel(level) < e.level {
		out["level"] = e.level.String()
	}
	return out
}
