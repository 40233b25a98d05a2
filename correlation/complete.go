package correlation

import "github.com/countersign-dev/countersign/events"

// completeCall takes a completion: it ends the oldest armed occurrence, comes late
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
// that nobody knows completes the call.
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
// completing it. What it says about calls that nobody knows yet is remembered
// if it ends them, and no finding.
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
