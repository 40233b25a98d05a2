package correlation

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// callView is a call as it was when it was emitted: what its record is made of, once
// the caller encodes it. It is never changed after it was made.
type callView struct {
	publicDetails // of its own
	timelineRoom  [typicalSteps]timelineEntry

	prefix       string // of its subject
	origin       *fact.Origin
	occurrence   int
	state        events.CallState
	idSum        fact.Sum // see call.sum
	recordNumber int      // record of its state
	parentLink   parentLink

	// admittedDigest and executed are the digests of its arguments.
	admittedDigest, executedDigest string
	hasDecision                    bool // there is a recorded verdict
	decision                       string
	decisionSeq                    uint64
	decidedAt                      time.Time // zero if the verdict is another call's
	verdict                        events.Verdict
}

// callViewPool is memory for them.
type callViewPool struct {
	chunk     []callView  // for several at a time
	freeViews []*callView // that were used, and may be again
}

const (
	callViewsPerChunk = 4 // memory is made for
	maxFreeViews      = 1024
)

// release takes a view back.
func (pool *callViewPool) release(v *callView) {
	if len(pool.freeViews) < maxFreeViews {
		pool.freeViews = append(pool.freeViews, v)
	}
}

func (pool *callViewPool) next() *callView {
	if last := len(pool.freeViews) - 1; last >= 0 {
		one := pool.freeViews[last]
		pool.freeViews = pool.freeViews[:last]
		return one
	}
	if len(pool.chunk) == 0 {
		pool.chunk = make([]callView, callViewsPerChunk)
	}
	one := &pool.chunk[0]
	pool.chunk = pool.chunk[1:]
	return one
}

// ReleaseOutput takes back what an output was to be encoded from, for outputs to come. A caller that
// does so spares the garbage collector most of its work. The output is encoded or
// will never be, and so is every copy of it; what was encoded stays good.
func (c *Correlator) ReleaseOutput(o *Output) {
	if o.call != nil {
		c.engine.findings.release(o.call)
	}
	o.call = nil
}

// fillFrom makes it the likeness of a call; st is the verdict that stands for it.
func (view *callView) fillFrom(c *call, verdict *effectiveVerdict, parents *lineage) {
	view.publicDetails = c.publicDetails
	view.timeline = append(view.timelineRoom[:0], c.timeline...)
	if c.rules != nil || c.differences != nil {
		view.rules, view.differences = slices.Clone(c.rules), slices.Clone(c.differences)
	}
	view.origin, view.occurrence, view.state, view.idSum = c.session.Origin, c.occurrence, c.state, c.idSum()
	view.parentLink = parentLink{}
	if c.session.parentLinkRank != 0 {
		view.parentLink = parents.parentOf(c.session.Key)
	}
	view.admittedDigest, view.executedDigest = c.args.RecordDigest, c.executedArgs.RecordDigest
	if view.hasDecision = verdict.recorded != nil; !view.hasDecision {
		return
	}
	d := verdict.recorded
	view.verdict, view.decision, view.decisionSeq, view.decidedAt = verdict.verdict, d.Id, d.Seq, d.At
	if verdict.inherited {
		view.decidedAt = time.Time{}
	}
	if d.ArgsDigest != "" {
		view.admittedDigest, view.executedDigest = d.ArgsDigest, c.executedArgs.DigestLike(d.ArgsDigest)
	}
}

// callRecordBuffer is memory for a record while it is encoded.
type callRecordBuffer struct {
	events.Call
	durations events.CallDurations
	micros    [3]int64 // of durations
	parent    events.CallParent
}

var recordBuffers = sync.Pool{New: func() any {
	return &callRecordBuffer{Call: events.Call{Timeline: make([]events.TimelineEntry, 0, typicalSteps)}}
}}

// encode gives the record, where it belongs and its id.
func (view *callView) encode() (subject, id string, body []byte, err error) {
	r := recordBuffers.Get().(*callRecordBuffer)
	defer recordBuffers.Put(r)
	var room [256]byte
	b := appendSubject(room[:0], view.prefix, string(view.state), view.origin.Key)
	end := len(b)
	both := string(view.appendID(b))
	r.CallID = both[end : end+callIDSize]
	r.fillFrom(view)
	body, err = events.Encode(&r.Call)
	return both[:end], both[end:], body, err
}

// appendID appends the id of the record; it begins with the call's own.
func (view *callView) appendID(b []byte) []byte {
	b = append(append(appendCallID(b, &view.idSum), '-'), view.state...)
	if view.recordNumber > 1 {
		b = strconv.AppendInt(append(b, '-'), int64(view.recordNumber), 10)
	}
	return b
}

// fillFrom writes everything but the call_id.
func (r *callRecordBuffer) fillFrom(view *callView) {
	r.Tenant, r.Source, r.Session = view.origin.Tenant, view.origin.Source, view.origin.Session
	r.Protocol, r.Agent, r.ToolCallID, r.Occurrence, r.Tool = view.protocol, view.agent, view.id, view.occurrence, view.tool
	r.State, r.Outcome, r.ExecutionSeq, r.Match = view.state, view.outcome, view.execSeq, view.match
	r.Inferred, r.WeakScope, r.Findings = view.inferred, view.origin.Key.Session == noSession, view.rules
	r.Protocols, r.MatchReason, r.Differences, r.MoreDifferences = view.seenIn.names(), view.reason, view.differences, view.moreDifferences
	r.Attempt, r.RetriedFrom, r.RetriedTo = int(view.retryChain.attempt), callIDOf(view.retryChain.from), callIDOf(view.retryChain.to)
	r.Trace, r.Binding = view.trace, view.binding
	r.AdmittedDigest, r.ExecutedDigest = view.admittedDigest, view.executedDigest
	r.Verdict, r.DecisionID, r.DecisionSeq = "", "", 0
	decided := time.Time{}
	if view.hasDecision {
		r.Verdict, r.DecisionID, r.DecisionSeq, decided = view.verdict, view.decision, view.decisionSeq, view.decidedAt
	}
	r.fillOptionalParts(view, decided)
	r.fillTimeline(view)
}

// fillTimeline writes the timeline, which names a protocol only where it is another than
// the call's.
func (r *callRecordBuffer) fillTimeline(view *callView) {
	r.Timeline = r.Timeline[:0]
	for i := range view.timeline {
		e := &view.timeline[i]
		shown := events.TimelineEntry{Step: stepNames[e.step], Seq: e.seq, At: events.At(e.brokerTime()), EventID: e.eventID}
		if e.protocol != view.protocol {
			shown.Protocol = e.protocol
		}
		r.Timeline = append(r.Timeline, shown)
	}
}

// fillOptionalParts writes what there is of a record's durations, claims and parent. decided is
// when the verdict that counts was recorded; zero if there is none.
func (r *callRecordBuffer) fillOptionalParts(view *callView, decided time.Time) {
	r.Parent, r.Claimed, r.Durations = nil, nil, nil
	if of := &view.parentLink; !of.isZero() {
		r.parent = events.CallParent{CallID: callIDOf(of.callSum), Source: of.origin.Source, Session: of.origin.Session, By: linkNames[of.rank]}
		r.Parent = &r.parent
	}
	if view.claimedTimes != (events.CallClaim{}) {
		r.Claimed = &view.claimedTimes
	}
	requested, started, completed := view.stepTimes()
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
