package correlation

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// callView is a copy of a call at the time it was emitted. Its record is encoded from it
// later. It does not change.
type callView struct {
	publicDetails // a copy

	prefix       string // of its subject
	origin       *fact.Origin
	occurrence   int
	state        events.CallState
	idSum        fact.Sum // see call.idSum
	recordNumber int      // which record of its state this is, from 1
	parentLink   parentLink

	// admittedDigest and executedDigest are the digests of its arguments.
	admittedDigest, executedDigest string
	hasDecision                    bool // a verdict is recorded
	decision                       string
	decisionSeq                    uint64
	decidedAt                      time.Time // zero if the verdict is inherited from another call
	verdict                        events.Verdict
}

// fillFrom copies a call into a new view. verdict is the call's effective verdict.
func (view *callView) fillFrom(c *call, verdict *effectiveVerdict, parents *lineage) {
	view.publicDetails = c.publicDetails
	view.timeline = slices.Clone(c.timeline)
	if c.rules != nil || c.differences != nil {
		view.rules, view.differences = slices.Collect(c.rules.names()), slices.Clone(c.differences)
	}
	view.origin, view.occurrence, view.state, view.idSum = c.session.Origin, c.occurrence, c.state, c.idSum()
	if c.session.parentLinkRank != 0 {
		view.parentLink = parents.parentOf(c.session.Key)
	}
	view.admittedDigest, view.executedDigest = c.args.RecordDigest, c.executedArgs.RecordDigest
	if view.hasDecision = verdict.recorded != nil; !view.hasDecision {
		return
	}
	d := verdict.recorded
	view.verdict, view.decision, view.decisionSeq, view.decidedAt = verdict.verdict, d.ID, d.Seq, d.At
	if verdict.inherited {
		view.decidedAt = time.Time{}
	}
	if d.ArgsDigest != "" {
		view.admittedDigest, view.executedDigest = d.ArgsDigest, c.executedArgs.DigestLike(d.ArgsDigest)
	} else if !c.allowsArguments(*verdict) {
		view.admittedDigest = ""
	}
}

// callRecordBuffer is the memory of a record while it is encoded.
type callRecordBuffer struct {
	events.Call
	durations events.CallDurations
	micros    [3]int64 // the values that durations points to
	parent    events.CallParent
}

var recordBuffers = sync.Pool{New: func() any {
	return &callRecordBuffer{Call: events.Call{Timeline: make([]events.TimelineEntry, 0, typicalSteps)}}
}}

// encode returns the record, its subject and its id.
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

// appendID appends the id of the record: the call_id, the state, and a number from the second
// record on.
func (view *callView) appendID(b []byte) []byte {
	b = append(append(appendCallID(b, &view.idSum), '-'), view.state...)
	if view.recordNumber > 1 {
		b = strconv.AppendInt(append(b, '-'), int64(view.recordNumber), 10)
	}
	return b
}

// fillFrom fills in everything but the call_id.
func (r *callRecordBuffer) fillFrom(view *callView) {
	r.Tenant, r.Source, r.Session = view.origin.Tenant, view.origin.Source, view.origin.Session
	r.Protocol, r.Agent, r.ToolCallID, r.Occurrence, r.Tool = view.protocol, view.agent, view.id, view.occurrence, view.tool
	r.State, r.Outcome, r.ExecutionSeq, r.Match = view.state, view.outcome, view.execSeq, view.match
	r.Inferred, r.WeakScope, r.Findings = view.inferred, view.origin.Key.Session == noSession, view.rules
	r.Protocols, r.MatchReason, r.Differences, r.MoreDifferences = view.seenIn.names(), view.reason, view.differences, view.moreDifferences
	r.Attempt, r.RetriedFrom, r.RetriedTo = int(view.retryChain.attempt), callIDOf(view.retryChain.from), callIDOf(view.retryChain.to)
	r.Traceparent, r.Binding = view.trace, view.binding
	r.AdmittedDigest, r.ExecutedDigest = view.admittedDigest, view.executedDigest
	r.Verdict, r.DecisionID, r.DecisionSeq = "", "", 0
	decided := time.Time{}
	if view.hasDecision {
		r.Verdict, r.DecisionID, r.DecisionSeq, decided = view.verdict, view.decision, view.decisionSeq, view.decidedAt
	}
	r.fillOptionalParts(view, decided)
	r.fillTimeline(view)
}

// fillTimeline fills in the timeline. An entry names its protocol only where that differs from
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

// fillOptionalParts fills in durations, claims and parent, as far as they are known. decided
// is when the effective verdict was recorded; zero if there is none.
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

// noTimeSpan means that a duration is unknown.
const noTimeSpan = -1

// microsFrom is the time from one step to a later one. It is noTimeSpan if one of them is
// unknown, or if to is before from.
func microsFrom(from, to time.Time) int64 {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return noTimeSpan
	}
	return to.Sub(from).Microseconds()
}

// stepTimes are when the call was requested, started and ended; zero if unknown.
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

// keepFirstTime sets to at its first call only.
func keepFirstTime(to *time.Time, at time.Time) {
	if to.IsZero() {
		*to = at
	}
}
