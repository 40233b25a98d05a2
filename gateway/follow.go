package gateway

import (
	"encoding/json"
	"net/url"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/endpoint"
)

// Filter chooses records of a stream. It never changes a position: a stream that goes on behind an id gets what
// followed there and passes the filter, whatever filter it had before.
type Filter struct {
	space  subject.Space
	state  string            // "" for any
	wanted map[string]string // values by parameter
}

// maxFilterValue bounds a value of a filter, in bytes.
const maxFilterValue = 512

// filterMembers are the parameters of a kind beside state, each with the member of its records. The verdict, the
// severity and the like are in the subject.
var filterMembers = map[string]map[string]string{
	string(subject.Decisions): {"session": "session", "tool_call_id": "tool_call_id", "tool": "tool", "agent": "agent", "source": "source"},
	string(subject.Calls):     {"session": "session", "tool_call_id": "tool_call_id", "tool": "tool", "agent": "agent", "source": "source"},
	string(subject.Findings):  {"session": "session", "tool_call_id": "tool_call_id", "source": "source", "rule": "rule"},
	string(subject.Approvals): {"session": "session", "tool_call_id": "tool_call_id", "tool": "tool", "source": "source", "workflow": "workflow_id"},
	events.FollowAAEP:         {"session": "session_id", "tool_call_id": "tool_call_id"},
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
		_, member := filterMembers[kind][name]
		isState := name == "state" && kind != events.FollowAAEP
		if !member && !isState || len(given) != 1 || given[0] == "" || len(given[0]) > maxFilterValue {
			return Filter{}, ProblemOf(BadQuery)
		}
		if isState {
			f.state = given[0]
			continue
		}
		f.wanted[filterMembers[kind][name]] = given[0]
	}
	return f, nil
}

// IsAll reports whether everything passes.
func (f Filter) IsAll() bool { return f.state == "" && len(f.wanted) == 0 }

// Passes reports whether a record passes. One that is too large to be sent passes every filter on its members: it
// is named only, and the client looks for itself.
func (f Filter) Passes(o events.Output) bool {
	if f.state != "" {
		p, err := f.space.Parse(o.Subject)
		if err != nil || p.Verdict != f.state && p.State != f.state {
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
