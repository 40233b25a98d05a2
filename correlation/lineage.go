package correlation

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/subject"
)

// lineageRefs is what a message says of where it belongs.
type lineageRefs struct {
	trace            string // W3C traceparent; "" if there is none that is valid
	correlation      string // as an event id would be written
	correlationSum   sum    // of the event that correlation may be
	cachedToken      string // correlation as the token of a session, once that was asked
	parentSession    string // session
	announcesHandoff bool   // it announces a handoff, whose child may name it
}

func (l *lineageRefs) isZero() bool {
	return l.trace == "" && l.correlation == "" && l.parentSession == ""
}

func (l *lineageRefs) setCorrelation(id string) {
	if id != "" {
		l.correlation, l.correlationSum = id, sumOf("event", id)
	}
}

// thread is what a call's announcement and its end have in common if they have the
// same correlation id, or else the same trace; zero if there is neither.
func (l *lineageRefs) thread() sum {
	switch {
	case l.correlation != "":
		return l.correlationSum
	case l.trace != "":
		return sumOf("thread", l.trace)
	}
	return sum{}
}

// correlationToken is correlation as the token of a session.
func (l *lineageRefs) correlationToken() string {
	if l.cachedToken == "" {
		l.cachedToken = subject.Escape(l.correlation)
	}
	return l.cachedToken
}

func agentHookLineage(f *fact, e *agenthook.Event) {
	l := &f.lineageRefs
	l.trace, l.announcesHandoff = validTraceparent(e.Trace()), e.EventType == agenthook.AgentHandoff
	l.setCorrelation(agenthook.NormaliseID(e.CorrelationID))
	if e.EventType == agenthook.GoalSet || e.EventType == agenthook.GoalStatus {
		l.parentSession = goalParent(e.Metadata)
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
	if f.lineageRefs.trace = validTraceparent(e.CorrelationID); f.lineageRefs.trace == "" {
		f.lineageRefs.setCorrelation(e.CorrelationID)
	}
}

// adoptTraceHeader takes the traceparent that a message carries beside its event, where
// the event has none.
func (f *fact) adoptTraceHeader(m events.LogMessage, extension string) {
	if f.lineageRefs.trace == "" {
		f.lineageRefs.trace = firstNonEmpty(validTraceparent(m.HeaderValue(events.HeaderTrace)), validTraceparent(extension))
	}
}
