package correlation

import (
	"errors"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// engine compares what was admitted with what ran. The log's Correlator and the offline Check
// use it. It takes facts only. It defines the order of the steps; the state is in the parts. A
// part calls only the parts that it holds. It calls the engine back only through the
// interfaces sessionRegister and originSharer.
type engine struct {
	opts *engineOptions

	// Each part has a row in engine.sections.
	calls    *calls
	history  *history
	timers   *timers
	lineage  *lineage
	findings *findings
	judge    *judge

	// State of what protocols and publishers report.
	trackers *trackers
	protocolParts

	// State of what admission records.
	admissions *admissions
	approvals  *approvals
	receipts   *receipts
	handoffs   *handoffs

	stats Stats // Seq, Messages, Duplicates, Evicted and ForgottenOpen; the parts count the other fields
}

// engineOptions are the options of the engine and all of its parts.
type engineOptions struct {
	Options
	// fromRecording says that facts come from a recording. A recording has no records of
	// approvals, so the claims of events count.
	fromRecording bool
	recordedUntil time.Time // when the last event of a recording had been received; zero if unknown
}

func newEngine(opts engineOptions) *engine {
	o := &opts
	o.Options = o.withDefaults()
	e := &engine{opts: o, timers: &timers{opts: o}, history: newHistory(o), lineage: newLineage()}
	e.findings = newFindings(o, e.timers, e.history, e.lineage)
	e.trackers = newTrackers(o, e.timers, e.findings)
	e.admissions, e.approvals, e.receipts = newAdmissions(e.findings, e.history), newApprovals(o, e.findings), newReceipts(o, e.findings, e.history)
	e.handoffs, e.calls = newHandoffs(e.findings), newCalls(o, e.timers, e.findings)
	e.judge = &judge{opts: o, findings: e.findings, calls: e.calls, approvals: e.approvals, receipts: e.receipts, trackers: e.trackers}
	e.protocolParts = newProtocolParts()
	e.configureProtocols(e, o)
	return e
}

// processFact applies one fact. The part findings collects the outputs.
func (e *engine) processFact(f *fact.Fact) {
	if f.Invalid {
		e.refuseEvent(f)
		return
	}
	n, conflict, before := e.history.classifyNovelty(f)
	if conflict {
		e.findings.reportRule(ruleConflict, nil, f, findingFrom(f.EventID).withContent(f.CoreSum).withSeq(before))
	}
	if n == duplicate {
		e.stats.Duplicates++
		return
	}
	e.trackFact(f, n)
	e.lineage.resolveParentSession(f, e)
	if n == amended {
		e.amendCall(f)
		return
	}
	switch f.Kind {
	case fact.KindRequest, fact.KindPre, fact.KindDecision:
		e.announceCall(f)
	case fact.KindPost:
		e.completeCall(f)
	case fact.KindStopped, fact.KindError, fact.KindFailOpen, fact.KindApproval, fact.KindAdmissionReply:
		e.handleCallUpdate(f)
	case fact.KindSessionEnd:
		e.endSession(f)
	}
}

// ensureSession returns a fact's session, and adds it if it is missing.
func (e *engine) ensureSession(f *fact.Fact) *session {
	if s := e.calls.active(f); s != nil {
		return s
	}
	if e.calls.isFull() {
		e.evictSession(tables.ByPlaces, f.Key)
	}
	return e.calls.addSession(e.SharedOrigin(f), e.lineage.parentOf(f.Key).rank)
}

// evictSession closes and forgets the surplus session (see calls.surplus), never the session that
// stays. It returns false if there is none.
func (e *engine) evictSession(by tables.Measure, stays fact.SourceSession) bool {
	s := e.calls.surplus(by, stays)
	if s == nil {
		return false
	}
	e.stats.Evicted++
	lost := len(s.open)
	for len(s.open) > 0 {
		e.abandonCall(s.open[0], closedForRoom, &fact.Fact{At: e.timers.Now()})
	}
	e.calls.forgetSession(s, lost)
	return true
}

// enforceCallBounds abandons calls and forgets sessions beyond the bounds of Options. Session
// s stays.
func (e *engine) enforceCallBounds(s *session, group *callGroup) {
	if len(group.calls) > maxOpenPerID {
		if open := group.openCalls(); len(open) > maxOpenPerID {
			e.abandonCall(open[0], closedForRoom, &fact.Fact{At: e.timers.Now()})
		}
	}
	if len(s.open) > e.opts.MaxOpenPerSession {
		e.abandonCall(s.open[0], closedForRoom, &fact.Fact{At: e.timers.Now()})
	}
	for _, by := range [...]tables.Measure{tables.ByCalls, tables.ByIDs} {
		for e.calls.exceeds(by) && e.evictSession(by, s.Key) {
		}
	}
}

// endSession abandons the calls that are open when their session ends, but for those that a
// reviewer may still approve: an agent may end its session meanwhile and resume it for the call.
func (e *engine) endSession(f *fact.Fact) {
	if f.Key.Session == noSession {
		return
	}
	s := e.calls.touch(f.Key)
	if s == nil {
		return
	}
	for _, c := range slices.Clone(s.open) {
		if e.approvals.openRequest(c) == fact.StatusPending {
			continue
		}
		c.addStep(stepClosed, f)
		c.sessionEnd = sessionEnd{f.ProducerTimes.HappenedAt, f.At}
		e.abandonCall(c, closedBySessionEnd, f)
	}
}

// SharedOrigin returns a fact's origin in memory that is shared: the sessions of one publisher
// share its names; all of a session shares one Origin.
func (e *engine) SharedOrigin(f *fact.Fact) *fact.Origin {
	if s := e.calls.find(f.Key); s != nil && *s.Origin == f.Origin {
		return s.Origin
	}
	if w := e.trackers.find(f.Key, f.Protocol); w != nil && *w.origin == f.Origin {
		return w.origin
	}
	o := f.Origin
	names := e.history.sharedNames(o.Key.Publisher())
	o.Key.Tenant, o.Key.Source = names.Tenant, names.Source
	for _, n := range [...]struct {
		name *string
		key  string
	}{{&o.Tenant, o.Key.Tenant}, {&o.Source, o.Key.Source}, {&o.Session, o.Key.Session}} {
		if *n.name == n.key {
			*n.name = n.key
		}
	}
	return &o
}

// ensureProtocolSession returns the tracked session of a fact, and begins to track it if
// needed.
func (e *engine) ensureProtocolSession(f *fact.Fact) *protocolSession {
	if w := e.trackers.active(f); w != nil {
		return w
	}
	return e.trackers.beginTracking(f, e.SharedOrigin(f))
}

// trackFact passes a fact to the parts that belong to no call: mandates, admissions, the
// protocol's session.
func (e *engine) trackFact(f *fact.Fact, n novelty) {
	if f.MandateRef != nil {
		protocols.noteMandate(e, f)
	}
	if f.Kind == fact.KindDecision && n == novel {
		e.admissions.checkAdmissionDecision(f)
		e.approvals.checkIgnoredApproval(f)
	}
	if f.RequestFlags != 0 {
		e.admissions.recordFlaggedRequest(f)
	}
	if f.ReceiptDecisionID != "" {
		e.admissions.recordNamedDecision(f)
	}
	if track := rowOf(f.Protocol).track; track != nil {
		track(e, f, n)
	} else {
		e.findings.reportEventFindings(nil, f)
	}
}

// advanceTimers advances event time to t. Deadlines up to t fire, and idle sessions are
// forgotten. It returns early if no timer can be due.
//
// Sessions are ordered by their last activity, so the first one has the next timer. A method
// that moves a session to the front MUST also set its last activity; otherwise an engine
// restored from a snapshot would forget sessions at another time.
func (e *engine) advanceTimers(t time.Time) {
	if e.opts.fromRecording {
		e.timers.AdvanceToRecorded(t)
	} else {
		e.timers.AdvanceTo(t)
	}
	if e.timers.anyDue() {
		e.expireCallDeadlines()
		e.trackers.expireProtocolSessions()
		e.expireSessions()
	}
	protocols.expire(e)
}

// expireCallDeadlines abandons the calls whose deadline has passed.
func (e *engine) expireCallDeadlines() {
	for {
		c, due := e.timers.popDueCall()
		if !due {
			return
		}
		e.abandonCall(c, closedByDeadline, &fact.Fact{At: c.deadline})
	}
}

// expireSessions forgets sessions that have been idle for too long.
func (e *engine) expireSessions() {
	for s := e.calls.popIdle(); s != nil; s = e.calls.popIdle() {
		e.calls.forgetSession(s, 0)
	}
}

// maxReemittedCalls bounds the closed calls of a session that are emitted again when its
// parent link improves.
const maxReemittedCalls = 64

// hasSession implements sessionRegister.
func (e *engine) hasSession(key fact.SourceSession) bool {
	return e.calls.hasSession(key)
}

// upgradeParentLink implements sessionRegister. The calls that closed last are emitted again,
// in the order in which they closed: at most once for each rank, and there are five ranks. An
// open call is not emitted; its next record names the parent.
func (e *engine) upgradeParentLink(key fact.SourceSession, rank int8) {
	s := e.calls.find(key)
	if s == nil || !s.raiseParentLink(rank) {
		return
	}
	for _, c := range s.closed[max(0, len(s.closed)-maxReemittedCalls):] {
		e.findings.emitCall(c.expand())
	}
}

// refuseEvent reports the checks that an invalid event breaks by itself. The event changes no
// state: it opens no session, announces, ends and excuses no call, and answers no question.
// Its meaning is uncertain, and its publisher must not gain by that. Only its number in its
// session or mandate counts: see noteRefusedNumber.
func (e *engine) refuseEvent(f *fact.Fact) {
	e.findings.reportEventFindings(nil, f)
	if refuse := rowOf(f.Protocol).refuse; refuse != nil {
		refuse(e, f)
	}
	e.noteRefusedNumber(f)
}

// noteRefusedNumber records the number of a refused event, so that it does not seem to be
// missing. The finding about the event says what is wrong. An unknown session does not begin
// with a refused event.
func (e *engine) noteRefusedNumber(f *fact.Fact) {
	if note := rowOf(f.Protocol).noteNumber; note != nil {
		note(e, f)
	}
}

// reportUnreadable reports an event that could not be decoded at all.
func (e *engine) reportUnreadable(f *fact.Fact, err error) {
	e.findings.reportInvalid(f, fact.DecodeErrorText(err))
	var strict *strictjson.Error
	if row := rowOf(f.Protocol); errors.As(err, &strict) {
		if check := row.unreadableCheck(strict.Code); check != "" {
			e.findings.emitFinding(checkRules[check], nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withText(fact.DecodeErrorText(err)))
		}
		if row.severalCheck != "" && (strict.Code == strictjson.TrailingData || strict.Code == strictjson.NotObject) {
			e.findings.emitFinding(checkRules[row.severalCheck], nil, f, findingFrom(f.EventID).withContent(f.ContentSum))
		}
	}
	e.noteRefusedNumber(f)
}
