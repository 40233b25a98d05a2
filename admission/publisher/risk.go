package publisher

import (
	"maps"
	"strings"
)

// level orders risk levels.
type level int

const (
	unstated level = iota
	low
	medium
	high
)

var levelNames = map[level]string{low: "low", medium: "medium", high: "high"}

// grades are the levels of the words that a catalogue may use, graded as the
// same words of a request are.
var grades = map[string]level{
	"read_only": low, "sensitive_read": medium, "write": medium, "external_side_effect": medium, "external_transfer": medium, "runtime_change": medium,
	"destructive_write": high, "credential_access": high, "publication": high,
}

// final are the words for what cannot be taken back.
var final = map[string]bool{"destructive_write": true, "publication": true}

// gradeOf is high for a word that nobody knows.
func gradeOf(word any) level {
	text, _ := word.(string)
	if text == "" {
		return unstated
	}
	for l, name := range levelNames {
		if name == text {
			return l
		}
	}
	if l, known := grades[text]; known {
		return l
	}
	return high
}

func (d toolDoc) entry() *Entry {
	e := &Entry{
		Name: d.Name, Category: d.Category, Risk: d.Risk, Irreversible: d.Irreversible || final[d.Risk], Requires: d.Requires,
		Mandate: Binding(d.Mandate), level: grades[d.Risk],
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

// Raise is what is known of the risk of a call: what the request says, and what
// the catalogue knows where that is stricter. risk is not changed.
//
// The level becomes the higher one. The catalogue's word becomes risk_class
// unless the request's own is graded higher; then it becomes operation_risk, if
// the request has none that is graded higher. A word of the request that gave way
// becomes operation_risk where there was none: a policy that looks for either
// finds it.
func (e *Entry) Raise(risk map[string]any) map[string]any {
	if e == nil || e.Risk == "" && !e.Irreversible {
		return risk
	}
	out := maps.Clone(risk)
	if out == nil {
		out = map[string]any{}
	}
	if e.Irreversible {
		out["irreversible"] = true
	}
	if e.Risk == "" {
		return out
	}
	if gradeOf(out["level"]) < e.level {
		out["level"] = levelNames[e.level]
	}
	class, operation := out["risk_class"], out["operation_risk"]
	switch {
	case gradeOf(class) <= e.level:
		out["risk_class"] = e.Risk
		if class != nil && operation == nil {
			out["operation_risk"] = class
		}
	case gradeOf(operation) <= e.level:
		out["operation_risk"] = e.Risk
	}
	return out
}
