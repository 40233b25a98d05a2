package agenthook

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
)

// modelCalls are the model calls of a session (SPEC 5). maxOpenModelCalls bounds the open
// ones, and the findings about those without an end.
type modelCalls struct {
	incomplete      bool                 // earlier events of the session are forgotten
	announced       bool                 // the session announces its model calls
	excusedEnds     int32                // ends of calls that are not open any more: of forgotten ones, and of those that an error ended
	openCalls       []eventRef           // the oldest first
	unendedFindings []*catalogue.Finding // about the calls that were open when the session ended
}

// announce opens a model call. One that was denied does not run.
func (m *modelCalls) announce(x *Event) {
	m.announced = true
	if x.verdict == string(events.Deny) {
		return
	}
	if len(m.openCalls) >= maxOpenModelCalls {
		m.openCalls = append(m.openCalls[:0], m.openCalls[1:]...)
		m.excusedEnds++
	}
	m.openCalls = append(m.openCalls, x.eventRef())
}

// endDenied ends the model call that an event announced, if it is open: it was denied.
func (m *modelCalls) endDenied(eventID string) {
	m.openCalls = slices.DeleteFunc(m.openCalls, func(open eventRef) bool { return open.id == eventID })
}

// endReported ends the model call that an event reports. A session that announces no model
// calls does not claim to pair them.
func (m *modelCalls) endReported(out *findingList, x *Event) {
	switch {
	case m.endOldest(out, x):
	case m.excusedEnds > 0:
		m.excusedEnds--
	case m.announced && !m.incomplete:
		out.add("AH-C-057", "the runtime had not announced it", x.eventRef())
	}
}

// endFailed ends a model call for an error that names no call. The error may be of something
// else, so the call's own end may still come. If none comes, an unannounced end later in the
// session is excused instead of it: better than to report an end that was announced.
func (m *modelCalls) endFailed(out *findingList, x *Event) {
	if m.endOldest(out, x) {
		m.excusedEnds++
	}
}

// endOldest ends the oldest open model call, and reports whether there was one.
func (m *modelCalls) endOldest(out *findingList, x *Event) bool {
	switch {
	case len(m.openCalls) > 0:
		m.openCalls = m.openCalls[1:]
	case len(m.unendedFindings) > 0:
		out.retract(m.unendedFindings[0], "its end came after that of the session", x.eventRef())
		m.unendedFindings = m.unendedFindings[1:]
	default:
		return false
	}
	return true
}

// reportUnended reports the model calls that are open at the session's end, x. If the end of
// one comes after x, endOldest retracts the call's finding; AH-C-056 stays.
func (m *modelCalls) reportUnended(out *findingList, x *Event) {
	for _, open := range m.openCalls {
		if found := out.add("AH-C-057", "it never ended", open, x.eventRef()); len(found.Events) > 0 && len(m.unendedFindings) < maxOpenModelCalls {
			m.unendedFindings = append(m.unendedFindings, found)
		}
	}
	m.openCalls = nil
}

func (m *modelCalls) storedItems() int { return len(m.openCalls) + len(m.unendedFindings) }
