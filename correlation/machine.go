package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// machine holds what was admitted against what ran: it is behind the log's correlator and
// the offline check. It takes facts only, and is the order of the steps: what a step knows
// is in the parts. A part calls only the parts that it holds; only the machine, through the
// small interfaces sessionRegister and originSharer, is called back.
type machine struct {
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

// engineOptions are the options of the machine and all of its parts.
type engineOptions struct {
	Options
	// fromRecording says that facts come from a recording: there is no record of
	// approvals, so what events say of them counts.
	fromRecording bool
	recordedUntil time.Time // by which the events of a recording had been received; zero if that is not known
}

func newMachine(opts Options) *machine {
	m := &machine{
		lineage: newLineage(),
		history: &history{sources: newLRU[sourceKey, *sourceState]()},
		timers:  &timers{},
	}
	m.findings = &findings{timers: m.timers, history: m.history, lineage: m.lineage, ruleModes: map[string]ruleModes{}}
	m.trackers, m.negotiations = newTrackers(m.timers, m.findings), newNegotiations(m.timers, m.findings)
	m.replies = newReplies(m.trackers, m.negotiations)
	m.admissions, m.approvals, m.receipts = newAdmissions(m.findings, m.history), newApprovals(m.findings), newReceipts(m.findings, m.history)
	m.handoffs, m.attestations = newHandoffs(m.findings), newAttestations(m.findings)
	m.declarations, m.mandates = &declarations{findings: m.findings}, newMandates(m.findings)
	m.calls = newCalls(m.timers, m.findings)
	m.judge = &judge{findings: m.findings, calls: m.calls, approvals: m.approvals, receipts: m.receipts, trackers: m.trackers}
	m.configure(&engineOptions{Options: opts.withDefaults()})
	return m
}

// configure gives the options to the parts. They are no state: a restored machine gets
// them anew.
func (m *machine) configure(o *engineOptions) {
	m.opts, m.history.opts, m.timers.opts = o, o, o
	m.approvals.opts, m.receipts.opts, m.mandates.opts = o, o, o
	m.trackers.opts, m.negotiations.opts, m.replies.opts = o, o, o
	m.calls.opts, m.judge.opts = o, o
	m.findings.configure(o)
}

// processFact takes one fact; the outputs are collected in m.findings.
func (m *machine) processFact(f *fact) {
	if f.invalid {
		m.refuseEvent(f)
		return
	}
	n, conflict, before := m.history.classifyNovelty(f)
	if conflict {
		m.findings.reportRuleFinding(ruleConflict, nil, f, findingFrom(f.eventID).withContent(f.coreSum).withSeq(before))
	}
	if n == duplicate {
		m.stats.Duplicates++
		return
	}
	m.trackFact(f, n)
	m.lineage.resolveParentSession(f, m)
	if n == amended {
		m.amendCall(f)
		return
	}
	switch f.kind {
	case kindRequest, kindPre, kindDecision:
		m.announceCall(f)
	case kindPost:
		m.completeCall(f)
	case kindStopped, kindError, kindFailOpen, kindApproval, kindAdmissionReply:
		m.handleCallUpdate(f)
	case kindSessionEnd:
		m.endSession(f)
	}
}

// announceCall takes a request copy, a decision or a pre event: it attaches to the
// call it belongs to or arms a new one.
func (m *machine) announceCall(f *fact) {
	m.nameByRequest(f)
	if !f.hasTool() {
		return
	}
	s := m.ensureSession(f)
	s.askedAdmission = s.askedAdmission || f.kind == kindRequest && f.protocol == protoAgentHook
	c := s.matchAnnouncement(f)
	if c == nil {
		c = m.openOccurrence(s, f)
	} else {
		m.judge.checkRequestConflict(c, f)
		m.approvals.checkResumePolicy(c, f)
		m.attachAnnouncement(c, f)
		if before := s.findNamedRetry(f); before != nil {
			m.calls.linkRetry(c, before)
		}
	}
	m.lineage.recordCallTargets(c, f)
	if f.decision != nil && f.decision.hasReceipt {
		m.receipts.recordReceipt(f)
	}
	if !m.handoffs.isEmpty() || f.protocol == subject.ProtoHandoff {
		m.handoffs.trackHandoff(s, c, f)
	}
	switch f.protocol {
	case protoAAEP:
		m.judge.checkSecondInvocation(s, c, f)
	case protoAgentHook:
		m.judge.checkApprovalBypass(s, c, f)
	}
	s.linkDecision(c, f.decisionID)
	m.timers.extendDeadline(c, f, m.calls.openCount())
	if f.kind == kindDecision && len(c.retractable) > 0 {
		m.receipts.retractUnknownReference(c, f)
	}
	m.approvals.useWorkflow(c, f)
	m.trackers.noteDecidedCall(c, f)
	m.approvals.checkAnnouncedApproval(c, f)
	m.judge.replaceWaitingCalls(s, c, f)
	m.settleVerdict(c, f)
	m.judge.judgeCallClaims(c, f)
	m.receipts.judgeReference(c, f)
	if len(s.earlyUpdates) > 0 {
		m.applyEarlyUpdates(s, c)
	}
	m.findings.emitCall(c)
}

// nameByRequest gives a decision the call of its request where its record names none:
// the admitter refuses names that are too long and leaves them out of the record, but
// the request has them.
func (m *machine) nameByRequest(f *fact) {
	if f.kind != kindDecision || f.callKey.id != "" || f.decisionID == "" {
		return
	}
	s := m.calls.find(f.key)
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
func (m *machine) amendCall(f *fact) {
	if f.kind != kindPre {
		return
	}
	s := m.calls.touch(f.key)
	if s == nil {
		return
	}
	if c := s.findInGroup(f.callKey, f.eventID, func(c *call) bool { return c.hasEvent(f.eventID) }); c != nil {
		before := c.effectiveVerdict()
		c.applyClaims(f)
		m.settleVerdict(c, f)
		m.judge.judgeCallClaims(c, f)
		m.receipts.judgeReference(c, f)
		m.judge.rejudgeLateVerdict(c, c.completionFact(), before)
		m.findings.emitCall(c)
	}
}

// attachAnnouncement notes that an announcement belongs to a call, which may be over.
func (m *machine) attachAnnouncement(c *call, f *fact) {
	if f.kind == kindPre && c.hasPost || f.kind == kindRequest && c.state == events.CallOrphaned {
		m.attachLateAnnouncement(c, f)
		return
	}
	c.attachFact(f)
}

// openOccurrence makes a new occurrence.
func (m *machine) openOccurrence(s *session, f *fact) *call {
	sl := s.ensureGroup(f)
	other := sl.oldestOpen()
	c := m.calls.newOccurrence(s, f)
	c.state = events.CallOpen
	before := s.findRetriedCall(f)
	if before != nil {
		c.retriedCall = before.decidedAncestor()
	}
	m.calls.addOpen(c)
	c.attachFact(f)
	if before != nil {
		m.calls.linkRetry(c, before)
	}
	m.judge.checkEarlierEnd(sl, c, f)
	if other != nil && f.callKey.id != "" && f.protocol != protoAAEP {
		m.findings.reportRuleFinding(ruleReused, c, f, findingFrom(other.firstEvent(), f.eventID).withEventsOf(other).withCase(caseReusedOpen))
	}
	if f.kind != kindDecision || f.decision.verdict != events.Deny {
		m.findings.emitCall(c)
	}
	m.enforceCallBounds(s, sl)
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
func (m *machine) settleVerdict(c *call, f *fact) {
	if c.hasPost {
		if f.kind == kindDecision && len(c.decisions) == 1 {
			m.judge.judgeLateVerdict(c, f)
		}
		return
	}
	if c.directVerdict().verdict == events.Deny && (c.isOpen() || c.state == events.CallAbandoned) {
		m.judge.retractMissingCompletion(c, f)
		m.calls.closeCall(c, events.CallDenied, closedByDeny)
	}
}

// abandonCall closes a call that will not be completed in time.
func (m *machine) abandonCall(c *call, why closeReason, f *fact) {
	m.calls.closeCall(c, events.CallAbandoned, why)
	m.judge.reportMissingCompletion(c, f)
	m.judge.judgeCallClaims(c, f)
	m.findings.emitCall(c)
}
