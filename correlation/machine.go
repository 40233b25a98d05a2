package correlation

import (
	"time"

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
	e := &engine{
		lineage: newLineage(),
		history: &history{sources: newLRU[sourceKey, *sourceState]()},
		timers:  &timers{},
	}
	e.findings = &findings{timers: e.timers, history: e.history, lineage: e.lineage, ruleModes: map[string]ruleModes{}}
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

// processFact takes one fact; the outputs are collected in m.findings.
func (e *engine) processFact(f *fact) {
	if f.invalid {
		e.refuseEvent(f)
		return
	}
	n, conflict, before := e.history.classifyNovelty(f)
	if conflict {
		e.findings.reportRuleFinding(ruleConflict, nil, f, findingFrom(f.eventID).withContent(f.coreSum).withSeq(before))
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
// call it belongs to or arms a new one.
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
		e.findings.reportRuleFinding(ruleReused, c, f, findingFrom(other.firstEvent(), f.eventID).withEventsOf(other).withCase(caseReusedOpen))
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
