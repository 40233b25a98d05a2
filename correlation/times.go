package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// producerTimes is what a producer says of a call's time and place in a chain.
type producerTimes struct {
	happenedAt  time.Time // when it happened, by the producer's own clock; zero if that is not known
	completedAt time.Time
	durationMS  int64
	attempt     int64
}

func agentHookTimes(f *fact, e *agenthook.Event) {
	f.producerTimes.happenedAt = e.Time
	if retry, ok := e.Retry(); ok {
		f.producerTimes.attempt = nonNegative(retry.Attempt)
	}
	if f.kind != kindPost {
		return
	}
	f.producerTimes.durationMS = nonNegative(e.DurationMS())
	if x, ok := e.Execution(); ok {
		f.producerTimes.completedAt = parseInstant(x.CompletedAt)
	}
}

// nonNegative is a producer's number, 0 if it is none that means something here.
func nonNegative(n *int64) int64 {
	if n == nil || *n < 0 {
		return 0
	}
	return *n
}

// recordTimes notes what a fact claims; the first word on each counts.
func (x *details) recordTimes(f *fact) {
	if f.kind == kindPost {
		mergeTime(&x.claimedTimes.StartedAt, f.startedAt)
		mergeTime(&x.claimedTimes.CompletedAt, f.producerTimes.completedAt)
	}
	setDefault(&x.claimedTimes.DurationMS, f.producerTimes.durationMS)
	setDefault(&x.claimedTimes.Attempt, f.producerTimes.attempt)
}

func mergeTime(to *events.Time, from time.Time) {
	if !from.IsZero() && to.IsZero() {
		*to = events.At(from)
	}
}

// fillOptionalParts writes what there is of a record's durations, claims and parent. decided is
// when the verdict that counts was recorded; zero if there is none.
func (r *callRecordBuffer) fillOptionalParts(l *callView, decided time.Time) {
	r.Parent, r.Claimed, r.Durations = nil, nil, nil
	if of := &l.parentLink; !of.isZero() {
		r.parent = events.CallParent{CallID: callIDOf(of.callSum), Source: of.origin.source, Session: of.origin.session, By: linkNames[of.rank]}
		r.Parent = &r.parent
	}
	if l.claimedTimes != (events.CallClaim{}) {
		r.Claimed = &l.claimedTimes
	}
	requested, started, completed := l.stepTimes()
	r.micros = [...]int64{microsFrom(requested, decided), microsFrom(decided, started), microsFrom(started, completed)}
	for i, to := range [...]**int64{&r.durations.Decided, &r.durations.Started, &r.durations.Ran} {
		if *to = nil; r.micros[i] != noTimeSpan {
			*to, r.Durations = &r.micros[i], &r.durations
		}
	}
}

// noTimeSpan is that no time is known to have passed.
const noTimeSpan = -1

// microsFrom is how much time passed if both ends are known, and in this order.
func microsFrom(from, to time.Time) int64 {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return noTimeSpan
	}
	return to.Sub(from).Microseconds()
}

// stepTimes are when the call was requested, when it started and when it ended; zero
// where that is not known.
func (k *publicDetails) stepTimes() (requested, started, completed time.Time) {
	for i := range k.timeline {
		switch e := &k.timeline[i]; e.step {
		case stepRequested:
			keepFirstTime(&requested, e.brokerTime())
		case stepInvoked:
			keepFirstTime(&started, e.brokerTime())
		case stepCompleted:
			keepFirstTime(&completed, e.brokerTime())
		}
	}
	return requested, started, completed
}

// keepFirstTime keeps the first of the times that were seen.
func keepFirstTime(to *time.Time, at time.Time) {
	if to.IsZero() {
		*to = at
	}
}

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
	return timelineEntry{seq: seq, second: at.Unix(), nanos: int32(at.Nanosecond()), step: s, eventID: boundID(eventID), protocol: protocol}
}

func (e *timelineEntry) brokerTime() time.Time { return time.Unix(e.second, int64(e.nanos)).UTC() }
