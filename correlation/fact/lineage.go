package fact

import (
	"cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// ValidTraceparent gives text if it is a W3C traceparent of version 00 with ids that
// are not zero, else "".
func ValidTraceparent(text string) string {
	if len(text) != len(traceLayout) {
		return ""
	}
	for i := range len(traceLayout) {
		switch c := text[i]; {
		case traceLayout[i] != 'h':
			if c != traceLayout[i] {
				return ""
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return ""
		}
	}
	if text[traceBegin:TraceEnd] == noTrace || text[spanBegin:SpanEnd] == noTrace[:16] {
		return ""
	}
	return text
}

// LineageRefs is what a message says of where it belongs.
type LineageRefs struct {
	Trace            string // W3C traceparent; "" if there is none that is valid
	Correlation      string // as an event id would be written
	CorrelationSum   Sum    // of the event that correlation may be
	cachedToken      string // correlation as the token of a session, once that was asked
	ParentSession    string // session
	AnnouncesHandoff bool   // it announces a handoff; the child may name it
}

func (l *LineageRefs) IsZero() bool {
	return l.Trace == "" && l.Correlation == "" && l.ParentSession == ""
}

func (l *LineageRefs) SetCorrelation(id string) {
	if id != "" {
		l.Correlation, l.CorrelationSum = id, SumOf("event", id)
	}
}

// Thread is what a call's announcement and its end have in common if they have the
// same correlation id, or else the same trace; zero if there is neither.
func (l *LineageRefs) Thread() Sum {
	switch {
	case l.Correlation != "":
		return l.CorrelationSum
	case l.Trace != "":
		return SumOf("thread", l.Trace)
	}
	return Sum{}
}

// CorrelationToken is correlation as the token of a session.
func (l *LineageRefs) CorrelationToken() string {
	if l.cachedToken == "" {
		l.cachedToken = subject.Escape(l.Correlation)
	}
	return l.cachedToken
}

// adoptTraceHeader takes the traceparent that a message carries beside its event, where
// the event has none.
func (f *Fact) adoptTraceHeader(m events.LogMessage, extension string) {
	if f.LineageRefs.Trace == "" {
		f.LineageRefs.Trace = cmp.Or(ValidTraceparent(m.HeaderValue(events.HeaderTrace)), ValidTraceparent(extension))
	}
}

// A traceparent of version 00: where its trace id and its span id end.
const (
	traceLayout = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh"
	traceBegin  = len("00-")
	TraceEnd    = traceBegin + 32
	spanBegin   = TraceEnd + 1
	SpanEnd     = spanBegin + 16
	noTrace     = "00000000000000000000000000000000"
)
