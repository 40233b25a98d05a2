// Package check applies the named checks of one protocol's messages, which no schema makes.
package check

import (
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Rule is a named check of one event that no schema makes.
type Rule struct {
	id      string // of the rule in the protocol's catalogue
	name    string // snake_case; the Keyword of its violations
	level   schemas.Level
	message string
	find    Find
}

// Find reports the path of every violation of a rule.
type Find func(e *Event, report func(keys ...string))

// Error is a rule about what a protocol forbids.
func Error(id, name, message string, find Find) Rule {
	return Rule{id, name, schemas.LevelError, message, find}
}

// Warning is a rule about what a protocol only recommends.
func Warning(id, name, message string, find Find) Rule {
	return Rule{id, name, schemas.LevelWarning, message, find}
}

// Event is the input of the rules, and collects what they find.
type Event struct {
	Doc  strictjson.Value
	Kind string // the normalised type
	// Fields are the top-level keys of a type that the schemas know, nil for other types.
	Fields map[string]bool

	rule     *Rule // that is applied
	reported int   // by it
	found    []schemas.Violation
	reporter func(keys ...string) // report
}

// Text returns a top-level string, "" if there is none.
func (e *Event) Text(key string) string {
	if v := e.Doc.Get(key); v.Kind() == strictjson.KindString {
		return v.Text()
	}
	return ""
}

// Lacks reports whether there is no such top-level member.
func (e *Event) Lacks(key string) bool { return !e.Doc.Get(key).Exists() }

// IsEmptyText reports whether a top-level member is the empty string.
func (e *Event) IsEmptyText(key string) bool { return e.Doc.Get(key).IsText("") }

// Run applies the rules in order. Each rule reports at most schemas.MaxViolations times, so that
// no rule can crowd out another. The event must not be used afterwards.
func Run(rules []Rule, e *Event) []schemas.Violation {
	for i := range rules {
		e.rule, e.reported = &rules[i], 0
		rules[i].find(e, e.reporter)
	}
	found := schemas.Merge(e.found, nil)
	*e = Event{reporter: e.reporter}
	usedEvents.Put(e)
	return found
}

// usedEvents are events that Run is done with: the correlator applies the rules to every
// message.
var usedEvents = sync.Pool{New: func() any {
	e := &Event{}
	e.reporter = e.report
	return e
}}

// NewEvent returns the event of a document, for Run.
func NewEvent(v strictjson.Value) *Event {
	e := usedEvents.Get().(*Event)
	e.Doc = v
	return e
}

// report records a violation of the rule that is applied.
func (e *Event) report(keys ...string) {
	if e.reported++; e.reported <= schemas.MaxViolations {
		e.found = append(e.found, schemas.Violation{Path: schemas.Pointer(keys...), Keyword: e.rule.name, Message: e.rule.message, Check: e.rule.id, Level: e.rule.level})
	}
}

// Tag sets the rule of each violation.
func Tag(vs []schemas.Violation, rule func(schemas.Violation) string) []schemas.Violation {
	for i := range vs {
		vs[i].Check = rule(vs[i])
	}
	return vs
}

// TopKey is the first key of a path.
func TopKey(path string) string {
	key, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return key
}
