package correlation

import (
	"cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// validTraceparent gives text if it is a W3C traceparent of version 00 with ids that
// are not zero, else "".
func validTraceparent(text string) string {
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
	if text[traceBegin:traceEnd] == noTrace || text[spanBegin:spanEnd] == noTrace[:16] {
		return ""
	}
	return text
}

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

// adoptTraceHeader takes the traceparent that a message carries beside its event, where
// the event has none.
func (f *fact) adoptTraceHeader(m events.LogMessage, extension string) {
	if f.lineageRefs.trace == "" {
		f.lineageRefs.trace = cmp.Or(validTraceparent(m.HeaderValue(events.HeaderTrace)), validTraceparent(extension))
	}
}

// A traceparent of version 00: where its trace id and its span id end.
const (
	traceLayout = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh"
	traceBegin  = len("00-")
	traceEnd    = traceBegin + 32
	spanBegin   = traceEnd + 1
	spanEnd     = spanBegin + 16
	noTrace     = "00000000000000000000000000000000"
)
