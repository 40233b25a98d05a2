package schemas

// A rule is a named check of one event that no schema makes.
type rule struct {
	id      string // of the rule in the protocol's catalogue
	name    string // snake_case; the Keyword of its violations
	level   Level
	message string
	// check reports the path of every culprit.
	check func(e *event, report func(keys ...string))
}

// event is what the rules of both protocols look at.
type event struct {
	tree map[string]any
	kind string // the normalised type
	// fields are the top-level keys of a core type, nil for other types.
	fields map[string]bool
}

// text is a top-level string, "" when there is none.
func (e *event) text(key string) string { s, _ := e.tree[key].(string); return s }

// runRules applies the rules in order. Each rule is heard at most MaxViolations
// times, so that no rule can drown another.
func runRules(rules []rule, e *event) []Violation {
	var found []Violation
	for _, r := range rules {
		said := 0
		r.check(e, func(keys ...string) {
			if said++; said > MaxViolations {
				return
			}
			found = append(found, Violation{Path: jsonPointer(keys...), Keyword: r.name, Message: r.message, Check: r.id, Level: r.level})
		})
	}
	return mergeViolations(found, nil)
}
