package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// machine is the state machine behind the log's correlator and the offline
// check. It sees facts only.
type machine struct {
	opts *engineOptions `snapshot:"-"` // given anew

	sessions          *lru[sessionKey, *session]
	sessionTombstones *fifoMap[sessionKey, int]
	history           *history
	timers            *timers
	findings          *findings
	trackers          *trackers
	negotiations      *negotiations
	replies           *replies
	denials           *lru[sum, *denial] // of calls that are forgotten
	lineage           *lineage
	admissions        *admissions
	approvals         *approvals
	receipts          *receipts
	handoffs          *handoffs
	attestations      *attestations
	declarations      *declarations
	mandates          *mandates
	lastCallOrder     uint64 // calls opened so far

	stats      Stats
	dirtyCalls []*call       `snapshot:"-"` // calls that may be over and whose details are not compacted
	freeLists  callFreeLists `snapshot:"-"`
	prefetched uint64        `snapshot:"-"` // what Ahead read: it means nothing, but has to be used
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
		sessions:          newLRU[sessionKey, *session](),
		sessionTombstones: newFIFOMap[sessionKey, int](maxTombstones),
		lineage:           newLineage(),
		history:           &history{sources: newLRU[sourceKey, *sourceState]()},
		timers:            &timers{},
		denials:           newLRU[sum, *denial](),
	}
	m.findings = &findings{timers: m.timers, history: m.history, lineage: m.lineage, ruleModes: map[string]ruleModes{}}
	m.trackers, m.negotiations = newTrackers(m.timers, m.findings), newNegotiations(m.timers, m.findings)
	m.replies = newReplies(m.trackers, m.negotiations)
	m.admissions, m.approvals, m.receipts = newAdmissions(m.findings, m.history), newApprovals(m.findings), newReceipts(m.findings, m.history)
	m.handoffs, m.attestations = newHandoffs(m.findings), newAttestations(m.findings)
	m.declarations, m.mandates = &declarations{findings: m.findings}, newMandates(m.findings)
	m.configure(&engineOptions{Options: opts.withDefaults()})
	return m
}

// configure gives the options to the parts. They are no state: a restored machine gets
// them anew.
func (m *machine) configure(o *engineOptions) {
	m.opts, m.history.opts, m.timers.opts = o, o, o
	m.approvals.opts, m.receipts.opts, m.mandates.opts = o, o, o
	m.trackers.opts, m.negotiations.opts, m.replies.opts = o, o, o
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
	c := m.matchAnnouncement(s, f)
	if c == nil {
		c = m.openOccurrence(s, f)
	} else {
		m.checkRequestConflict(c, f)
		m.approvals.checkResumePolicy(c, f)
		m.attachAnnouncement(c, f)
		if before := s.findNamedRetry(f); before != nil {
			m.linkRetry(c, before)
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
		m.checkSecondInvocation(s, c, f)
	case protoAgentHook:
		m.checkApprovalBypass(s, c, f)
	}
	s.linkDecision(c, f.decisionID)
	m.timers.extendDeadline(c, f, m.stats.Open)
	if f.kind == kindDecision && len(c.retractable) > 0 {
		m.receipts.retractUnknownReference(c, f)
	}
	m.approvals.useWorkflow(c, f)
	m.trackers.noteDecidedCall(c, f)
	m.approvals.checkAnnouncedApproval(c, f)
	m.replaceWaitingCalls(s, c, f)
	m.settleVerdict(c, f)
	m.judgeCallClaims(c, f)
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
	s, known := m.sessions.peek(f.key)
	if !known {
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
	s, ok := m.sessions.get(f.key)
	if !ok {
		return
	}
	s.lastActivity = m.timers.currentActivity()
	if c := s.findInGroup(f.callKey, f.eventID, func(c *call) bool { return c.hasEvent(f.eventID) }); c != nil {
		before := c.effectiveVerdict()
		c.applyClaims(f)
		m.settleVerdict(c, f)
		m.judgeCallClaims(c, f)
		m.receipts.judgeReference(c, f)
		m.rejudgeLateVerdict(c, c.completionFact(), before)
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
	c := m.newOccurrence(s, f)
	c.state = events.CallOpen
	before := s.findRetriedCall(f)
	if before != nil {
		c.retriedCall = before.decidedAncestor()
	}
	sl.calls = append(sl.calls, c)
	c.attachFact(f)
	s.open = append(s.open, c)
	m.stats.Open++
	if before != nil {
		m.linkRetry(c, before)
	}
	m.checkEarlierEnd(sl, c, f)
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

// newOccurrence makes the next call of a slot, neither open nor remembered yet.
func (m *machine) newOccurrence(s *session, f *fact) *call {
	sl := s.ensureGroup(f)
	sl.count++
	m.lastCallOrder++
	m.countCalls(s, 1)
	c := &call{session: s, group: sl, occurrence: sl.count, order: m.lastCallOrder, details: m.allocDetails()}
	if c.occurrence == 1 {
		c.cachedIDSum = f.firstCallSum
	}
	return c
}

// settleVerdict closes a call that was denied, and judges a verdict that came late.
func (m *machine) settleVerdict(c *call, f *fact) {
	if c.hasPost {
		if f.kind == kindDecision && len(c.decisions) == 1 {
			m.judgeLateVerdict(c, f)
		}
		return
	}
	if c.directVerdict().verdict == events.Deny && (c.isOpen() || c.state == events.CallAbandoned) {
		m.retractMissingCompletion(c, f)
		m.closeCall(c, events.CallDenied, closedByDeny)
	}
}

// closeCall ends a call or changes how it ended.
func (m *machine) closeCall(c *call, state events.CallState, why closeReason) {
	wasOpen := c.isOpen()
	c.session.sawDenial = c.session.sawDenial || why == closedByDeny || why == closedByStop
	c.state, c.closeReason = state, why
	if wasOpen {
		m.stats.Open--
		m.releaseCallArgs(c)
		c.session.moveToClosed(c)
	}
}

// abandonCall closes a call that will not be completed in time.
func (m *machine) abandonCall(c *call, why closeReason, f *fact) {
	m.closeCall(c, events.CallAbandoned, why)
	m.reportMissingCompletion(c, f)
	m.judgeCallClaims(c, f)
	m.findings.emitCall(c)
}
