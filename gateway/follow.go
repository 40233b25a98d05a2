package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// Filter chooses records of a stream. It never changes a position: a stream that goes on behind an id gets what
// followed there and passes the filter, whatever filter it had before.
type Filter struct {
	space   subject.Space
	state   string            // in the subject; "" for any
	session string            // the session in the subject; "" for any
	wanted  map[string]string // values by member
}

// maxFilterValue bounds a value of a filter, in bytes.
const maxFilterValue = 512

// In place of a member: the subject has the value.
const (
	stateInSubject   = " state" // the verdict, the severity and the like
	sessionInSubject = " session"
)

// filterMembers are the parameters of a kind, each with the member of its records that it is held against.
var filterMembers = map[string]map[string]string{
	string(subject.Decisions): {"state": stateInSubject, "session": "session", "tool_call_id": "tool_call_id", "tool": "tool", "agent": "agent", "source": "source"},
	string(subject.Calls):     {"state": stateInSubject, "session": "session", "tool_call_id": "tool_call_id", "tool": "tool", "agent": "agent", "source": "source"},
	string(subject.Findings):  {"state": stateInSubject, "session": "session", "tool_call_id": "tool_call_id", "source": "source", "rule": "rule"},
	string(subject.Approvals): {"state": stateInSubject, "session": "session", "tool_call_id": "tool_call_id", "tool": "tool", "source": "source", "workflow": "workflow_id"},
	events.KindAAEP:           {"session": "session_id", "tool_call_id": "tool_call_id"},
	events.KindAIOC:           {"state": "decision", "session": sessionInSubject, "tool_call_id": "callId", "tool": "toolName", "agent": "agent"},
}

// ReadFilter reads the filter of a stream: each parameter once, with a value that a record must have. A parameter
// that the kind does not have is refused, since a stream without it would show more than was asked for.
func ReadFilter(space subject.Space, kind, query string) (Filter, *endpoint.Problem) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return Filter{}, ProblemOf(BadQuery)
	}
	f := Filter{space: space, wanted: map[string]string{}}
	for name, given := range values {
		member, known := filterMembers[kind][name]
		if !known {
			return Filter{}, badQuery("it reads " + strings.Join(slices.Sorted(maps.Keys(filterMembers[kind])), ", "))
		}
		if len(given) != 1 || given[0] == "" || len(given[0]) > maxFilterValue {
			return Filter{}, badQuery(fmt.Sprintf("%q is given once, with a value of at most %d bytes", name, maxFilterValue))
		}
		switch member {
		case stateInSubject:
			f.state = given[0]
		case sessionInSubject:
			f.session = given[0]
		default:
			f.wanted[member] = given[0]
		}
	}
	return f, nil
}

// Passes reports whether a record passes. One that is too large to be sent passes every filter on its members: it
// is named only, and the client looks for itself.
func (f Filter) Passes(o events.Output) bool {
	if f.state != "" || f.session != "" {
		p, err := f.space.Parse(o.Subject)
		if err != nil || f.state != "" && p.Verdict != f.state && p.State != f.state || f.session != "" && p.Session != f.session && p.Session != subject.Escape(f.session) {
			return false
		}
	}
	if len(f.wanted) == 0 || len(o.Record) == 0 {
		return true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(o.Record, &members) != nil {
		return false
	}
	for name, want := range f.wanted {
		if !holds(members[name], want) && !(name == "tool_call_id" && holdsAny(members["tool_call_ids"], want)) {
			return false
		}
	}
	return true
}

func holds(raw json.RawMessage, want string) bool {
	var text string
	return json.Unmarshal(raw, &text) == nil && text == want
}

// holdsAny looks into a list: the calls that wait for an approval.
func holdsAny(raw json.RawMessage, want string) bool {
	var list []string
	return json.Unmarshal(raw, &list) == nil && slices.Contains(list, want)
}
