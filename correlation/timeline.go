package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
)

// step is a step of a call's timeline.
type step uint8

const (
	noStep step = iota
	stepRequested
	stepDecided
	stepInvoked
	stepCompleted
	stepClosed
	stepTraced // a trace event
	stepAsked  // somebody has to agree
	stepApproved
	stepRefused
	stepCancelled
	stepExpired
)

// stepNames are how records name them (events.TimelineEntry).
var stepNames = [...]string{
	stepRequested: "requested", stepDecided: "decided", stepInvoked: "invoked", stepCompleted: "completed", stepClosed: "closed", stepTraced: "traced",
	stepAsked: "asked", stepApproved: "approved", stepRefused: "refused", stepCancelled: "cancelled", stepExpired: "expired",
}

// timelineEntry is an events.TimelineEntry in less room: there are several of every call.
type timelineEntry struct {
	seq      uint64
	second   int64 // of broker time
	nanos    int32
	step     step
	eventID  string
	protocol string
}

func newTimelineEntry(s step, seq uint64, at time.Time, eventID, protocol string) timelineEntry {
	return timelineEntry{seq: seq, second: at.Unix(), nanos: int32(at.Nanosecond()), step: s, eventID: fact.BoundID(eventID), protocol: protocol}
}

func (e *timelineEntry) brokerTime() time.Time { return time.Unix(e.second, int64(e.nanos)).UTC() }
