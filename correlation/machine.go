package correlation

import (
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// machine is the state machine behind the log's correlator and the offline
// check. It sees facts only.
type machine struct {
	opts            Options         `snapshot:"-"` // given anew
	subjectPrefixes subjectPrefixes `snapshot:"-"` // made of opts
	// fromRecording says that facts come from a recording: there is no ledger of
	// approvals, so what events say of them counts.
	fromRecording bool
	recordedUntil time.Time `snapshot:"-"` // by which the events of a recording had been received; zero if that is not known

	eventTime
	sessions          *lru[sessionKey, *session]
	sources           *lru[sourceKey, *sourceState]
	eventIDCount      int // that are remembered of all sources
	sessionTombstones *fifoMap[sessionKey, int]
	tracker
	lineageIndex
	denials       *lru[sum, *denial] // of calls that are forgotten
	handoffs      *fifoMap[sessionKey, []handedOverAgent]
	ruleModes     map[string]ruleModes // by tenant token
	callDeadlines deadlines
	nextTimer     time.Time `snapshot:"-"` // until when time alone changes nothing; see pass
	lastCallOrder uint64    // calls armed so far

	stats        Stats
	findingsSeen int           // violations seen, those that were put out before included
	outputs      []Output      `snapshot:"-"` // of one message
	dirtyCalls   []*call       `snapshot:"-"` // calls that may be over and whose details are not folded
	freeLists    callFreeLists `snapshot:"-"`
	callViewPool `snapshot:"-"`
	prefetched   uint64 `snapshot:"-"` // what was looked at means nothing, but has to be read
}

func newMachine(opts Options) *machine {
	return &machine{
		opts:              opts.withDefaults(),
		subjectPrefixes:   subjectPrefixes{calls: subjectPrefix(opts.Space, subject.Calls), findings: subjectPrefix(opts.Space, subject.Findings)},
		sessions:          newLRU[sessionKey, *session](),
		sources:           newLRU[sourceKey, *sourceState](),
		sessionTombstones: newFIFOMap[sessionKey, int](maxTombstones),
		tracker:           newTracker(),
		lineageIndex:      newLineageIndex(),
		denials:           newLRU[sum, *denial](),
		handoffs:          newFIFOMap[sessionKey, []handedOverAgent](maxHandoffs),
		ruleModes:         map[string]ruleModes{},
	}
}

// subjectPrefixes are how the subjects of outputs begin.
type subjectPrefixes struct{ calls, findings string }

func subjectPrefix(s subject.Space, c subject.Class) string { return strings.TrimSuffix(s.All(c), ">") }

// processFact takes one fact; the outputs are collected in m.out.
func (m *machine) processFact(f *fact) {
	if f.invalid {
		m.refuseEvent(f)
		return
	}
	n := m.classifyNovelty(f)
	if n == duplicate {
		m.stats.Duplicates++
		return
	}
	m.trackFact(f, n)
	m.resolveParentSession(f)
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
		m.checkResumePolicy(c, f)
		m.attachAnnouncement(c, f)
		if before := s.findNamedRetry(f); before != nil {
			m.linkRetry(c, before)
		}
	}
	m.recordCallTargets(c, f)
	if f.decision != nil && f.decision.hasReceipt {
		m.recordReceipt(f)
	}
	if m.handoffs.len() > 0 || f.protocol == subject.ProtoHandoff {
		m.trackHandoff(s, c, f)
	}
	switch f.protocol {
	case protoAAEP:
		m.checkSecondInvocation(s, c, f)
	case protoAgentHook:
		m.checkApprovalBypass(s, c, f)
	}
	s.linkDecision(c, f.decisionID)
	m.extendDeadline(c, f)
	m.useWorkflow(c, f)
	m.noteDecidedCall(c, f)
	m.checkAnnouncedApproval(c, f)
	m.replaceWaitingCalls(s, c, f)
	m.settleVerdict(c, f)
	m.judgeCallClaims(c, f)
	m.judgeReference(c, f)
	if len(s.earlyUpdates) > 0 {
		m.applyEarlyUpdates(s, c)
	}
	m.emitCall(c)
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
	s.lastActivity = m.currentActivity()
	if c := s.findInGroup(f.callKey, f.eventID, func(c *call) bool { return c.hasEvent(f.eventID) }); c != nil {
		before := c.effectiveVerdict()
		c.applyClaims(f)
		m.settleVerdict(c, f)
		m.judgeCallClaims(c, f)
		m.judgeReference(c, f)
		m.rejudgeLateVerdict(c, c.completionFact(), before)
		m.emitCall(c)
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
		m.reportRuleFinding(ruleReused, c, f, findingFrom(other.firstEvent(), f.eventID).withEventsOf(other).withCase(caseReusedOpen))
	}
	if f.kind != kindDecision || f.decision.verdict != events.Deny {
		m.emitCall(c)
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

// extendDeadline moves a call's deadline.
func (m *machine) extendDeadline(c *call, f *fact) {
	if !c.isOpen() {
		return
	}
	at := m.now.Add(max(m.opts.MissingAfter, 2*min(f.expectedDuration, maxExpectedDuration)))
	at = m.approvalDeadline(at, f.approval)
	if f.decision != nil {
		at = m.approvalDeadline(at, f.decision.approval)
	}
	m.callDeadlines.set(c, at)
	m.nextTimer = earlierTime(m.nextTimer, at)
	if len(m.callDeadlines) > 2*m.stats.Open+64 {
		m.dropStaleDeadlines()
	}
}

// approvalDeadline is a deadline that leaves an approval its time.
func (m *machine) approvalDeadline(at time.Time, a *approval) time.Time {
	if a == nil || a.expiresAt.IsZero() {
		return at
	}
	end := m.fromBrokerTime(a.expiresAt)
	if limit := m.now.Add(maxApprovalWait); end.After(limit) {
		return laterTime(at, limit)
	}
	return laterTime(at, end.Add(m.opts.MissingAfter))
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// dropStaleDeadlines drops stale deadlines; there may be many when one call is asked for
// again and again.
func (m *machine) dropStaleDeadlines() {
	kept := m.callDeadlines[:0]
	for _, d := range m.callDeadlines {
		if !d.isStale() {
			kept = append(kept, d)
		}
	}
	clear(m.callDeadlines[len(kept):])
	m.callDeadlines = kept
	m.callDeadlines.init()
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
	m.emitCall(c)
}
