package fact

import (
	"cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// ValidTraceparent returns text if it is a W3C traceparent of version 00 with ids that are not
// zero, else "".
func ValidTraceparent(text string) string {
	if !events.IsTraceparent(text) {
		return ""
	}
	return text
}

// LineageRefs are the references of a message to its session's parent.
type LineageRefs struct {
	Trace            string // W3C traceparent; "" if there is none that is valid
	Correlation      string // correlation_id, in the form of an event id
	CorrelationSum   Sum    // the sum of the event that Correlation may name
	cachedToken      string // Correlation as a session token; "" until CorrelationToken computes it
	ParentSession    string // session
	AnnouncesHandoff bool   // a handoff, which a child session may name
}

// IsZero reports whether the message has no references.
func (l *LineageRefs) IsZero() bool {
	return l.Trace == "" && l.Correlation == "" && l.ParentSession == ""
}

// SetCorrelation sets the correlation id.
func (l *LineageRefs) SetCorrelation(id string) {
	if id != "" {
		l.Correlation, l.CorrelationSum = id, SumOf("event", id)
	}
}

// Thread identifies messages with the same correlation id, or the same trace if they have no
// correlation id; zero if there is neither.
func (l *LineageRefs) Thread() Sum {
	switch {
	case l.Correlation != "":
		return l.CorrelationSum
	case l.Trace != "":
		return SumOf("thread", l.Trace)
	}
	return Sum{}
}

// CorrelationToken is Correlation as a session token.
func (l *LineageRefs) CorrelationToken() string {
	if l.cachedToken == "" {
		l.cachedToken = subject.Escape(l.Correlation)
	}
	return l.cachedToken
}

// adoptTraceHeader takes the traceparent from the message's header if the event has none.
func (f *Fact) adoptTraceHeader(m events.LogMessage, extension string) {
	if f.LineageRefs.Trace == "" {
		f.LineageRefs.Trace = cmp.Or(ValidTraceparent(m.HeaderValue(events.HeaderTrace)), ValidTraceparent(extension))
	}
}

// The ends of the trace id and of the span id in a traceparent of version 00.
const (
	TraceEnd = len("00-") + 32
	SpanEnd  = TraceEnd + len("-") + 16
)
