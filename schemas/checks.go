package schemas

import (
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// rule is a named check of one event that no schema makes.
type rule struct {
	id      string // of the rule in the protocol's catalogue
	name    string // snake_case; the Keyword of its violations
	level   Level
	message string
	// check reports the path of every violation.
	check func(e *event, report func(keys ...string))
}

// event is the input of the rules of both protocols, and collects what they find.
type event struct {
	doc  strictjson.Value
	kind string // the normalised type
	// fields are the top-level keys of a core type, nil for other types.
	fields *strictjson.Names[bool]

	rule     *rule // that is applied
	reported int   // by it
	found    []Violation
	reporter func(keys ...string) // report
}

// text returns a top-level string, "" if there is none.
func (e *event) text(key string) string {
	if v := e.doc.Get(key); v.Kind() == strictjson.KindString {
		return v.Text()
	}
	return ""
}

func (e *event) lacks(key string) bool { return !e.doc.Get(key).Exists() }

// isEmptyText reports whether a top-level member is the empty string.
func (e *event) isEmptyText(key string) bool { return e.doc.Get(key).IsText("") }

// runRules applies the rules in order. Each rule reports at most MaxViolations times, so that
// no rule can crowd out another. The event must not be used afterwards.
func runRules(rules []rule, e *event) []Violation {
	for i := range rules {
		e.rule, e.reported = &rules[i], 0
		rules[i].check(e, e.reporter)
	}
	found := mergeViolations(e.found, nil)
	*e = event{reporter: e.reporter}
	usedEvents.Put(e)
	return found
}

// usedEvents are events that runRules is done with: the correlator applies the rules to every
// message.
var usedEvents = sync.Pool{New: func() any {
	e := &event{}
	e.reporter = e.report
	return e
}}

func newEvent(v strictjson.Value) *event {
	e := usedEvents.Get().(*event)
	e.doc = v
	return e
}

// report records a violation of the rule that is applied.
func (e *event) report(keys ...string) {
	if e.reported++; e.reported <= MaxViolations {
		e.found = append(e.found, Violation{Path: jsonPointer(keys...), Keyword: e.rule.name, Message: e.rule.message, Check: e.rule.id, Level: e.rule.level})
	}
}
