package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// engine holds what was admitted against what ran: it is behind the log's correlator and
// the offline check. It takes facts only, and is the order of the steps: what a step knows
// is in the parts. A part calls only the parts that it holds; only the engine, through the
// small interfaces sessionRegister and originSharer, is called back.
type engine struct {
	opts *engineOptions `snapshot:"-"` // given anew

	calls    *calls // before the parts that refer to calls: a restored snapshot reads it first
	history  *history
	timers   *timers
	lineage  *lineage
	findings *findings
	judge    *judge

	// What protocols and publishers say.
	trackers     *trackers
	replies      *replies
	negotiations *negotiations
	attestations *attestations
	declarations *declarations
	mandates     *mandates

	// What admission says.
	admissions *admissions
	approvals  *approvals
	receipts   *receipts
	handoffs   *handoffs

	stats      Stats  // Seq, Messages, Duplicates and Evicted; the parts count the rest
	prefetched uint64 `snapshot:"-"` // what Ahead read: it means nothing, but has to be used
}

// engineOptions are the options of the engine and all of its parts.
type engineOptions struct {
	Options
	// fromRecording says that facts come from a recording: there is no record of
	// approvals, so what events say of them counts.
	fromRecording bool
	recordedUntil time.Time // by which the events of a recording had been received; zero if that is not known
}

func newEngine(opts Options) *engine {
	e := &engine{timers: &timers{}, history: newHistory(), lineage: newLineage()}
	e.findings = newFindings(e.timers, e.history, e.lineage)
	e.trackers, e.negotiations = newTrackers(e.timers, e.findings), newNegotiations(e.timers, e.findings)
	e.replies = newReplies(e.trackers, e.negotiations)
	e.admissions, e.approvals, e.receipts = newAdmissions(e.findings, e.history), newApprovals(e.findings), newReceipts(e.findings, e.history)
	e.handoffs, e.attestations = newHandoffs(e.findings), newAttestations(e.findings)
	e.declarations, e.mandates = &declarations{findings: e.findings}, newMandates(e.findings)
	e.calls = newCalls(e.timers, e.findings)
	e.judge = &judge{findings: e.findings, calls: e.calls, approvals: e.approvals, receipts: e.receipts, trackers: e.trackers}
	e.configure(&engineOptions{Options: opts.withDefaults()})
	return e
}

// configure gives the options to the parts. They are no state: a restored engine gets
// them anew.
func (e *engine) configure(o *engineOptions) {
	e.opts, e.history.opts, e.timers.opts = o, o, o
	e.approvals.opts, e.receipts.opts, e.mandates.opts = o, o, o
	e.trackers.opts, e.negotiations.opts, e.replies.opts = o, o, o
	e.calls.opts, e.judge.opts = o, o
	e.findings.configure(o)
}

// processFact applies one fact; the part findings collects the outputs.
func (e *engine) processFact(f *fact) {
	if f.invalid {
		e.refuseEvent(f)
		return
	}
	n, conflict, before := e.history.classifyNovelty(f)
	if conflict {
		e.findings.reportRule(ruleConflict, nil, f, findingFrom(f.eventID).withContent(f.coreSum).withSeq(before))
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
	switch f.kind {
	case kindRequest, kindPre, kindDecision:
		e.announceCall(f)
	case kindPost:
		e.completeCall(f)
	case kindStopped, kindError, kindFailOpen, kindApproval, kindAdmissionReply:
		e.handleCallUpdate(f)
	case kindSessionEnd:
		e.endSession(f)
	}
}

// announceCall takes a request copy, a decision or a pre event: it attaches to the
// call it belongs to or opens a new one.
func (e *engine) announceCall(f *fact) {
	e.nameByRequest(f)
	if !f.hasTool() {
		return
	}
	s := e.ensureSession(f)
	s.askedAdmission = s.askedAdmission || f.kind == kindRequest && f.protocol == protoAgentHook
	c := s.matchAnnouncement(f)
	if c == nil {
		c = e.openOccurrence(s, f)
	} else {
		e.judge.checkRequestConflict(c, f)
		e.approvals.checkResumePolicy(c, f)
		e.attachAnnouncement(c, f)
		if before := s.findNamedRetry(f); before != nil {
			e.calls.linkRetry(c, before)
		}
	}
	e.lineage.recordCallTargets(c, f)
	if f.decision != nil && f.decision.hasReceipt {
		e.receipts.recordReceipt(f)
	}
	if !e.handoffs.isEmpty() || f.protocol == subject.ProtoHandoff {
		e.handoffs.trackHandoff(s, c, f)
	}
	switch f.protocol {
	case protoAAEP:
		e.judge.checkSecondInvocation(s, c, f)
	case protoAgentHook:
		e.judge.checkApprovalBypass(s, c, f)
	}
	s.linkDecision(c, f.decisionID)
	e.timers.extendDeadline(c, f, e.calls.openCount())
	if f.kind == kindDecision && len(c.retractable) > 0 {
		e.receipts.retractUnknownReference(c, f)
	}
	e.approvals.useWorkflow(c, f)
	e.trackers.noteDecidedCall(c, f)
	e.approvals.checkAnnouncedApproval(c, f)
	e.judge.replaceWaitingCalls(s, c, f)
	e.settleVerdict(c, f)
	e.judge.judgeCallClaims(c, f)
	e.receipts.judgeReference(c, f)
	if len(s.earlyUpdates) > 0 {
		e.applyEarlyUpdates(s, c)
	}
	e.findings.emitCall(c)
}

// nameByRequest gives a decision the call of its request where its record names none:
// the admitter refuses names that are too long and leaves them out of the record, but
// the request has them.
func (e *engine) nameByRequest(f *fact) {
	if f.kind != kindDecision || f.callKey.id != "" || f.decisionID == "" {
		return
	}
	s := e.calls.find(f.key)
	if s == nil {
		return
	}
	if c := s.callOfDecision(f.decisionID); c != nil && c.group.key != f.callKey && (f.tool == "" || f.tool == c.tool) {
		f.callID = c.id
		f.setCallKey(c.group.key)
	}
}

// amendCall takes a copy of an earlier event that differs only in what it says
// about verdict and approval: the request form and the evidence form of one
// event (AH-C-050).
func (e *engine) amendCall(f *fact) {
	if f.kind != kindPre {
		return
	}
	s := e.calls.touch(f.key)
	if s == nil {
		return
	}
	if c := s.findInGroup(f.callKey, f.eventID, func(c *call) bool { return c.hasEvent(f.eventID) }); c != nil {
		before := c.effectiveVerdict()
		c.applyClaims(f)
		e.settleVerdict(c, f)
		e.judge.judgeCallClaims(c, f)
		e.receipts.judgeReference(c, f)
		e.judge.rejudgeLateVerdict(c, c.completionFact(), before)
		e.findings.emitCall(c)
	}
}

// attachAnnouncement notes that an announcement belongs to a call, which may be over.
func (e *engine) attachAnnouncement(c *call, f *fact) {
	if f.kind == kindPre && c.hasPost || f.kind == kindRequest && c.state == events.CallOrphaned {
		e.attachLateAnnouncement(c, f)
		return
	}
	c.attachFact(f)
}

// openOccurrence makes a new occurrence.
func (e *engine) openOccurrence(s *session, f *fact) *call {
	sl := s.ensureGroup(f)
	other := sl.oldestOpen()
	c := e.calls.newOccurrence(s, f)
	c.state = events.CallOpen
	before := s.findRetriedCall(f)
	if before != nil {
		c.retriedCall = before.decidedAncestor()
	}
	e.calls.addOpen(c)
	c.attachFact(f)
	if before != nil {
		e.calls.linkRetry(c, before)
	}
	e.judge.checkEarlierEnd(sl, c, f)
	if other != nil && f.callKey.id != "" && f.protocol != protoAAEP {
		e.findings.reportRule(ruleReused, c, f, findingFrom(other.firstEvent(), f.eventID).withEventsOf(other).withCase(caseReusedOpen))
	}
	if f.kind != kindDecision || f.decision.verdict != events.Deny {
		e.findings.emitCall(c)
	}
	e.enforceCallBounds(s, sl)
	return c
}

// decidedAncestor is the call in a chain of retries whose verdict stands: no number of
// retries takes it out of reach.
func (c *call) decidedAncestor() *call {
	for c.directVerdict().verdict == "" && c.retriedCall != nil {
		c = c.retriedCall.expand()
	}
	return c
}

// settleVerdict closes a call that was denied, and judges a verdict that came late.
func (e *engine) settleVerdict(c *call, f *fact) {
	if c.hasPost {
		if f.kind == kindDecision && len(c.decisions) == 1 {
			e.judge.judgeLateVerdict(c, f)
		}
		return
	}
	if c.directVerdict().verdict == events.Deny && (c.isOpen() || c.state == events.CallAbandoned) {
		e.judge.retractMissingCompletion(c, f)
		e.calls.closeCall(c, events.CallDenied, closedByDeny)
	}
}

// abandonCall closes a call that will not be completed in time.
func (e *engine) abandonCall(c *call, why closeReason, f *fact) {
	e.calls.closeCall(c, events.CallAbandoned, why)
	e.judge.reportMissingCompletion(c, f)
	e.judge.judgeCallClaims(c, f)
	e.findings.emitCall(c)
}

// ensureSession finds a session or makes it, and notes that it is active.
func (e *engine) ensureSession(f *fact) *session {
	if s := e.calls.active(f); s != nil {
		return s
	}
	if e.calls.isFull() {
		e.evictSession(tables.ByPlaces, f.key)
	}
	return e.calls.addSession(e.sharedOrigin(f), e.lineage.parentOf(f.key).rank)
}

// evictSession closes and forgets a session for something of another one, which stays: see
// surplus. It reports whether there was one.
func (e *engine) evictSession(by tables.Measure, stays sessionKey) bool {
	s := e.calls.surplus(by, stays)
	if s == nil {
		return false
	}
	e.stats.Evicted++
	for len(s.open) > 0 {
		e.abandonCall(s.open[0], closedByDeadline, &fact{at: e.timers.now()})
	}
	e.calls.forgetSession(s)
	return true
}

// enforceCallBounds abandons and forgets what the bounds of Options leave no room for.
// The session that is being worked on stays.
func (e *engine) enforceCallBounds(s *session, sl *callGroup) {
	if len(sl.calls) > maxOpenPerID {
		if open := sl.openCalls(); len(open) > maxOpenPerID {
			e.abandonCall(open[0], closedByDeadline, &fact{at: e.timers.now()})
		}
	}
	if len(s.open) > e.opts.MaxOpenPerSession {
		e.abandonCall(s.open[0], closedByDeadline, &fact{at: e.timers.now()})
	}
	for _, by := range [...]tables.Measure{tables.ByCalls, tables.ByIDs} {
		for e.calls.exceeds(by) && e.evictSession(by, s.key) {
		}
	}
}

// endSession abandons what is still open when a session ends.
func (e *engine) endSession(f *fact) {
	if f.key.session == noSession {
		return
	}
	s := e.calls.touch(f.key)
	if s == nil {
		return
	}
	for len(s.open) > 0 {
		c := s.open[0]
		c.addStep(stepClosed, f)
		e.abandonCall(c, closedBySessionEnd, f)
	}
}

// sharedOrigin is a fact's origin to keep. Sessions of one publisher share the names of
// that, and a session's calls and what follows their order share all of it.
func (e *engine) sharedOrigin(f *fact) *origin {
	if s := e.calls.find(f.key); s != nil && *s.origin == f.origin {
		return s.origin
	}
	if w := e.trackers.find(f.key, f.protocol); w != nil && *w.origin == f.origin {
		return w.origin
	}
	o := f.origin
	names := e.history.sharedNames(o.key.publisher())
	o.key.tenant, o.key.source = names.tenant, names.source
	for _, n := range [...]struct {
		name *string
		key  string
	}{{&o.tenant, o.key.tenant}, {&o.source, o.key.source}, {&o.session, o.key.session}} {
		if *n.name == n.key {
			*n.name = n.key
		}
	}
	return &o
}

// completeCall takes a completion: it ends the oldest opened occurrence, comes late
// for one that was closed without it, or has nothing before it.
func (e *engine) completeCall(f *fact) {
	if !f.hasTool() && f.retriedKey == (callKey{}) {
		return
	}
	s := e.ensureSession(f)
	c, inferred := s.matchCompletion(f)
	if c == nil {
		if again := s.findRepeatedCompletion(f); again != nil {
			e.judge.checkEffectFirst(again, f)
			e.completeInOtherProtocol(again, f)
			return
		}
		if c = e.calls.recallDenied(s, f); c == nil {
			e.recordOrphan(s, f)
			return
		}
		defer e.enforceCallBounds(s, c.group)
	}
	c.inferred = c.inferred || inferred
	c.recordCompletion(f)
	e.judge.checkUnnamedEnd(c, f, inferred)
	e.judge.retractEarlierEnd(c, f)
	e.judge.judgeExecution(c, f)
	e.judge.checkEffectFirst(c, f)
	e.judge.retractMissingCompletion(c, f)
	e.calls.closeCall(c, stateAfter(f), closedByPost)
	e.judge.judgeCallClaims(c, f)
	e.receipts.judgeReference(c, f)
	c.executedArgs.canonical = nil
	e.findings.emitCall(c)
}

func (c *call) recordCompletion(f *fact) {
	c.mergeIdentity(f)
	c.recordProtocol(f)
	c.recordTimes(f)
	c.applyClaims(f)
	c.addStep(stepCompleted, f)
	c.hasPost, c.postEvent, c.postProtocol = true, f.eventID, f.protocol
	c.outcome, c.hasMutationReason = f.outcome, f.hasMutationReason
	if !c.hasPre || !c.hasRequest && f.protocol == protoAgentHook {
		c.endedAt = f.producerTimes.happenedAt
	}
	if f.effect != noEffect {
		c.execSeq, c.executedArgs = f.seq, f.args
	}
}

// recordOrphan records a completion that nothing was before.
func (e *engine) recordOrphan(s *session, f *fact) {
	c := e.calls.newOccurrence(s, f)
	sl := c.group
	sl.calls = append(sl.calls, c)
	c.state, c.closeReason = events.CallOrphaned, closedByPost
	c.recordCompletion(f)
	c.executedArgs.canonical = nil
	s.moveToClosed(c)
	detail := caseOrphan
	if sl.count > 1 {
		detail = caseOrphanAgain
	}
	e.findings.reportRetractable(ruleOrphan, c, f, findingFrom(f.eventID).withCase(detail))
	e.judge.checkOrphan(sl, c, f)
	e.receipts.checkReceiptUse(c, f)
	e.findings.emitCall(c)
	e.enforceCallBounds(s, sl)
}

// stateAfter is the state after a completion, by the protocol's own word; a word
// that is not known completes the call.
func stateAfter(f *fact) events.CallState {
	switch f.outcome {
	case "failed", "cancelled", "timed_out", "error", "timeout":
		return events.CallFailed
	case "denied", "blocked":
		return events.CallDenied
	}
	return events.CallCompleted
}

// handleCallUpdate takes what a producer says about a call beside announcing and
// completing it. What it says about unknown calls is remembered if it ends them, and is no
// finding.
func (e *engine) handleCallUpdate(f *fact) {
	s := e.calls.touch(f.key)
	if s == nil {
		e.bufferEarlyUpdate(f)
		return
	}
	c := s.findUpdatedCall(f)
	if c == nil {
		e.judge.retractForFailMode(s, f)
		e.bufferEarlyUpdate(f)
		return
	}
	e.applyCallUpdate(c, f)
	e.findings.emitCall(c)
}

func (e *engine) stopCall(c *call, f *fact, state events.CallState, why closeReason) {
	if c.hasPost {
		return
	}
	c.addStep(stepClosed, f)
	if c.outcome == "" {
		c.outcome = f.outcome
	}
	if !c.hasRequest {
		c.endedAt = f.producerTimes.happenedAt
	}
	if c.isOpen() || c.state == events.CallAbandoned {
		e.judge.retractMissingCompletion(c, f)
		e.calls.closeCall(c, state, why)
		e.judge.judgeCallClaims(c, f)
	}
}

// findUpdatedCall finds the call that a remark is about: by its id, by the event it
// names, by the approval workflow.
func (s *session) findUpdatedCall(f *fact) *call {
	if sl := s.findGroup(f); sl != nil && f.callKey.id != "" {
		if c := sl.oldestOpen(); c != nil {
			return c
		}
		return sl.latestClosed((*call).awaitsCompletion)
	}
	for _, event := range append([]string{f.eventID}, f.relatedEventIDs...) {
		if c := s.findNamed(event, func(c *call) bool { return c.hasEvent(event) }); c != nil {
			return c
		}
	}
	workflow := f.approval.valueOrZero().workflow
	if workflow == "" {
		return nil
	}
	return s.findNamed(workflow, func(c *call) bool { return c.awaitedApproval().workflow == workflow })
}
