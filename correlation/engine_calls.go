package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// The steps of a call, from its announcement to its completion.

// announceCall applies a request copy, a decision or a pre event. It attaches the fact to its
// call, or opens a new occurrence.
func (e *engine) announceCall(f *fact.Fact) {
	e.nameByRequest(f)
	if !f.HasTool() {
		return
	}
	s, protocol := e.ensureSession(f), rowOf(f.Protocol)
	if f.Kind == fact.KindRequest && protocol.requestAnnounces {
		s.noteAskedAdmission()
	}
	c := s.matchAnnouncement(f)
	if group := s.findGroup(f); c == nil && f.Kind == fact.KindPre && (group == nil || len(group.calls) == 0) {
		if denied := e.calls.reopenDenied(s, f); protocol.announcesStart {
			c = denied
		} // else the next occurrence is a retry of it
	}
	switch {
	case c == nil:
		c = e.openOccurrence(s, f)
	case !c.isOpen() && c.isAnnouncedBy(f):
		return
	default:
		e.judge.checkRequestConflict(c, f)
		e.approvals.checkResumePolicy(c, f)
		e.attachAnnouncement(c, f)
		if before := s.findNamedRetry(f); before != nil {
			e.calls.linkRetry(c, before)
		}
	}
	e.lineage.recordCallTargets(c, f)
	if f.Decision != nil && f.Decision.HasReceipt {
		e.receipts.recordReceipt(f)
	}
	if !e.handoffs.isEmpty() || protocol.isHandoffTo != nil {
		e.handoffs.trackHandoff(s, c, f)
	}
	if protocol.onceUnderID {
		e.judge.checkSecondInvocation(s, c, f)
	}
	if protocol.resumesByRule {
		e.judge.checkApprovalBypass(s, c, f)
	}
	s.linkDecision(c, f.DecisionID)
	e.timers.extendDeadline(c, f, e.calls.openCount())
	if f.Kind == fact.KindDecision && len(c.retractable) > 0 {
		e.receipts.retractUnknownReference(c, f)
	}
	e.approvals.useWorkflow(c, f)
	if protocol.noteDecided != nil {
		protocol.noteDecided(e.trackers, c, f)
	}
	e.approvals.checkAnnouncedApproval(c, f)
	e.judge.replaceWaitingCalls(s, c, f)
	e.settleVerdict(c, f)
	e.judge.judgeDeniedStart(c, f)
	e.judge.judgeCallClaims(c, f)
	e.receipts.judgeReference(c, f)
	if len(s.earlyUpdates) > 0 {
		e.applyEarlyUpdates(s, c)
	}
	e.findings.emitCall(c)
}

// nameByRequest sets the call of a decision from its request. The admitter leaves names that
// are too long out of its record; the request has them.
func (e *engine) nameByRequest(f *fact.Fact) {
	if f.Kind != fact.KindDecision || f.CallKey.ID != "" || f.DecisionID == "" {
		return
	}
	s := e.calls.find(f.Key)
	if s == nil {
		return
	}
	if c := s.callOfDecision(f.DecisionID); c != nil && c.group.key != f.CallKey && (f.Tool == "" || f.Tool == c.tool) {
		f.CallID = c.id
		f.SetCallKey(c.group.key)
	}
}

// amendCall applies a copy of an earlier event that differs only in verdict and approval: the
// request form and the evidence form of one event (AH-C-050).
func (e *engine) amendCall(f *fact.Fact) {
	if f.Kind != fact.KindPre {
		return
	}
	s := e.calls.touch(f.Key)
	if s == nil {
		return
	}
	if c := s.findInGroup(f.CallKey, f.EventID, func(c *call) bool { return c.hasEvent(f.EventID) }); c != nil {
		before := c.effectiveVerdict()
		c.applyClaims(f)
		e.settleVerdict(c, f)
		e.judge.judgeCallClaims(c, f)
		e.receipts.judgeReference(c, f)
		e.judge.rejudgeLateVerdict(c, c.completionFact(), before)
		e.findings.emitCall(c)
	}
}

// attachAnnouncement attaches an announcement to a call, which may be closed.
func (e *engine) attachAnnouncement(c *call, f *fact.Fact) {
	if f.Kind == fact.KindPre && c.hasPost || f.Kind == fact.KindRequest && c.state == events.CallOrphaned {
		e.attachLateAnnouncement(c, f)
		return
	}
	if c.closeReason == closedByDeny && f.Kind == fact.KindPre && rowOf(f.Protocol).announcesStart {
		e.calls.reopenCall(c)
		defer e.enforceCallBounds(c.session, c.group)
	}
	c.attachFact(f)
}

// openOccurrence opens a new occurrence.
func (e *engine) openOccurrence(s *session, f *fact.Fact) *call {
	group := s.ensureGroup(f)
	other := group.oldestOpen()
	before := s.findRetriedCall(f)
	if before == nil {
		before = s.reopenRetried(f)
	}
	c := e.calls.newOccurrence(s, f)
	if before != nil {
		c.recordRetried(before)
	}
	e.calls.addOpen(c)
	c.attachFact(f)
	if before != nil {
		e.calls.linkRetry(c, before)
	}
	e.judge.checkEarlierEnd(group, c, f)
	if other != nil && f.CallKey.ID != "" && !rowOf(f.Protocol).onceUnderID {
		e.findings.reportRule(ruleReused, c, f, findingFrom(other.firstEvent(), f.EventID).withEventsOf(other).withCase(caseReusedOpen))
	}
	if f.Kind != fact.KindDecision || f.Decision.Verdict != events.Deny {
		e.findings.emitCall(c)
	}
	e.enforceCallBounds(s, group)
	return c
}

// settleVerdict closes a denied call that has not begun, and judges a verdict that came after the execution.
func (e *engine) settleVerdict(c *call, f *fact.Fact) {
	if c.hasPost {
		if f.Kind == fact.KindDecision && len(c.decisions) == 1 {
			e.judge.judgeLateVerdict(c, f)
		}
		return
	}
	if c.directVerdict().verdict == events.Deny && c.invokedEvent == "" && (c.isOpen() || c.state == events.CallAbandoned) {
		e.judge.retractMissingCompletion(c, f)
		e.calls.closeCall(c, events.CallDenied, closedByDeny)
	}
}

// abandonCall closes a call that was not completed in time.
func (e *engine) abandonCall(c *call, why closeReason, f *fact.Fact) {
	if why == closedForRoom {
		e.stats.ForgottenOpen++
	}
	e.calls.closeCall(c, events.CallAbandoned, why)
	e.judge.reportMissingCompletion(c, f)
	e.judge.judgeCallClaims(c, f)
	e.findings.emitCall(c)
}

// completeCall applies a completion. It completes the oldest open occurrence, or a closed one
// that had no completion, or it is an orphan.
func (e *engine) completeCall(f *fact.Fact) {
	if !f.HasTool() && f.RetriedKey == (fact.CallKey{}) {
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
		if f.Effect != fact.NoEffect {
			c = e.calls.reopenDenied(s, f)
		}
		if c == nil {
			e.recordOrphan(s, f)
			return
		}
		defer e.enforceCallBounds(s, c.group)
	}
	c.recordCompletion(f, inferred)
	e.judge.checkUnnamedEnd(c, f, inferred)
	e.judge.retractEarlierEnd(c, f)
	e.judge.judgeExecution(c, f)
	e.judge.checkEffectFirst(c, f)
	e.judge.retractMissingCompletion(c, f)
	e.calls.closeCall(c, stateAfter(f), closedByPost)
	e.judge.judgeCallClaims(c, f)
	e.receipts.judgeReference(c, f)
	c.dropExecutedText()
	e.findings.emitCall(c)
}

// recordOrphan records a completion that no announcement preceded.
func (e *engine) recordOrphan(s *session, f *fact.Fact) {
	c := e.calls.addOrphan(s, f)
	group := c.group
	spec := findingFrom(f.EventID).withCase(caseOrphan)
	switch {
	case group.hasRepeated():
		spec.withCase(caseOrphanAgain)
	case e.calls.wasErased(s.Key, f.At):
		spec.withCase(caseOrphanErased).withSeverity(events.SeverityLow)
	case s.takeLostCall():
		spec.withCase(caseOrphanForgotten).withSeverity(events.SeverityLow)
	}
	e.findings.reportRetractable(ruleOrphan, c, f, spec)
	if check := rowOf(f.Protocol).checkOrphan; check != nil {
		check(e.judge, group, c, f)
	}
	e.receipts.checkReceiptUse(c, f)
	e.findings.emitCall(c)
	e.enforceCallBounds(s, group)
}

// completeInOtherProtocol applies another protocol's view of a known completion. Only what the
// first view left open counts: the arguments, and that the call ran.
func (e *engine) completeInOtherProtocol(c *call, f *fact.Fact) {
	if c.endedIn.has(f.Protocol) {
		return
	}
	before := c.maxEffect
	fresh := c.recordOtherCompletion(f)
	switch {
	case f.Effect > before:
		e.judge.judgeExecution(c, f)
	case fresh && c.effectiveVerdict().verdict != events.Deny:
		e.judge.compareCallInput(c, f, c.effectiveVerdict())
	}
	e.findings.emitCall(c)
}
