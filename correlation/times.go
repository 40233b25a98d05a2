package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// said is what a producer says of a call's time and place in a chain.
type said struct {
	at          time.Time // when it happened, by the producer's own clock; zero if that is not known
	completedAt time.Time
	durationMS  int64
	attempt     int64
}

func agentHookTimes(f *fact, e *agenthook.Event) {
	f.said.at = e.Time
	if retry, ok := e.Retry(); ok {
		f.said.attempt = number(retry.Attempt)
	}
	if f.kind != kindPost {
		return
	}
	f.said.durationMS = number(e.DurationMS())
	if x, ok := e.Execution(); ok {
		f.said.completedAt = instant(x.CompletedAt)
	}
}

// number is a producer's number, 0 if it is none that means something here.
func number(n *int64) int64 {
	if n == nil || *n < 0 {
		return 0
	}
	return *n
}

// sayTimes notes what a fact claims; the first word on each counts.
func (c *call) sayTimes(f *fact) {
	x := events.CallClaim{DurationMS: f.said.durationMS, Attempt: f.said.attempt}
	if f.kind == kindPost {
		x.StartedAt, x.CompletedAt = events.At(f.startedAt), events.At(f.said.completedAt)
	}
	takeTime(&c.claimed.StartedAt, x.StartedAt)
	takeTime(&c.claimed.CompletedAt, x.CompletedAt)
	fill(&c.claimed.DurationMS, x.DurationMS)
	fill(&c.claimed.Attempt, x.Attempt)
}

func takeTime(to *events.Time, from events.Time) {
	if to.IsZero() {
		*to = from
	}
}

// parts are what a record points to, in one piece.
type parts struct {
	durations events.CallDurations
	micros    [3]int64
	claimed   events.CallClaim
	parent    events.CallParent
}

// partsOf sets what there is of a record's durations, claims and parent. decided is
// when the verdict that counts was recorded; zero if there is none.
func (w *written) partsOf(c *call, r *events.Call, decided time.Time) {
	spans := c.spans(decided)
	parent, has := c.parent()
	timed := slices.ContainsFunc(spans[:], span.known)
	claims := c.claimed != events.CallClaim{}
	if !has && !claims && !timed {
		return
	}
	p := next(&w.parts, writtenAtOnce)
	p.claimed, p.parent = c.claimed, parent
	if has {
		r.Parent = &p.parent
	}
	if claims {
		r.Claimed = &p.claimed
	}
	if timed {
		r.Durations = &p.durations
	}
	for i, to := range [...]**int64{&p.durations.Decided, &p.durations.Started, &p.durations.Ran} {
		if spans[i].known() {
			p.micros[i] = spans[i].to.Sub(spans[i].from).Microseconds()
			*to = &p.micros[i]
		}
	}
}

type span struct{ from, to time.Time }

// known tells whether both ends are known, and in this order.
func (s span) known() bool { return !s.from.IsZero() && !s.to.IsZero() && !s.to.Before(s.from) }

// spans are from request to verdict, from verdict to start and from start to end.
func (c *call) spans(decided time.Time) [3]span {
	var requested, started, completed time.Time
	for i := range c.timeline {
		switch e := &c.timeline[i]; e.Step {
		case stepRequested:
			earliest(&requested, e.At.Time)
		case stepInvoked:
			earliest(&started, e.At.Time)
		case stepCompleted:
			earliest(&completed, e.At.Time)
		}
	}
	return [...]span{{requested, decided}, {decided, started}, {started, completed}}
}

// earliest keeps the first of the times that were seen.
func earliest(to *time.Time, at time.Time) {
	if to.IsZero() {
		*to = at
	}
}

// Steps of a call's timeline.
const (
	stepRequested = "requested"
	stepInvoked   = "invoked"
	stepDecided   = "decided"
	stepCompleted = "completed"
	stepClosed    = "closed"
)
