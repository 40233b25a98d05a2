package correlation

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/subject"
)

// lineage is what a message says of where it belongs.
type lineage struct {
	trace       string // W3C traceparent; "" if there is none that is valid
	correlation string // as an event id would be written
	mark        sum    // of the event that correlation may be
	sibling     string // correlation as the token of a session, once that was asked
	parent      string // session
	hands       bool   // it announces a handoff, whose child may name it
}

func (l *lineage) none() bool { return l.trace == "" && l.correlation == "" && l.parent == "" }

func (l *lineage) correlates(id string) {
	if id != "" {
		l.correlation, l.mark = id, sumOf("event", id)
	}
}

// thread is what a call's announcement and its end have in common if they have the
// same correlation id, or else the same trace; zero if there is neither.
func (l *lineage) thread() sum {
	switch {
	case l.correlation != "":
		return l.mark
	case l.trace != "":
		return sumOf("thread", l.trace)
	}
	return sum{}
}

// token is correlation as the token of a session.
func (l *lineage) token() string {
	if l.sibling == "" {
		l.sibling = subject.Escape(l.correlation)
	}
	return l.sibling
}

func agentHookLineage(f *fact, e *agenthook.Event) {
	l := &f.lineage
	l.trace, l.hands = traceparent(e.Trace()), e.EventType == agenthook.AgentHandoff
	l.correlates(agenthook.NormaliseID(e.CorrelationID))
	if e.EventType == agenthook.GoalSet || e.EventType == agenthook.GoalStatus {
		l.parent = goalParent(e.Metadata)
	}
}

// goalParent is the parent session of a goal (AHP-010), in a block of its own or
// among the metadata.
func goalParent(metadata map[string]any) string {
	if goal, is := metadata["goal"].(map[string]any); is {
		metadata = goal
	}
	parent, _ := metadata["parent_session_id"].(string)
	return parent
}

// aaepLineage: a correlation_id that is a traceparent is one (AAEP-C-017).
func aaepLineage(f *fact, e *aaep.Event) {
	if f.lineage.trace = traceparent(e.CorrelationID); f.lineage.trace == "" {
		f.lineage.correlates(e.CorrelationID)
	}
}

// carried takes the traceparent that a message carries beside its event, where
// the event has none.
func (f *fact) carried(m events.LogMessage, extension string) {
	if f.lineage.trace == "" {
		f.lineage.trace = first(traceparent(m.HeaderValue(events.HeaderTrace)), traceparent(extension))
	}
}
