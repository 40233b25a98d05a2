package correlation

import "github.com/countersign-dev/countersign/events"

// A completion may come before what announces its call. That it did stays a
// finding, though a small one (AAEP-C-080, AH-C-078): that nobody had announced it is
// withdrawn. And the announcement, once it is there, begins no second call that would
// be missing its end. Which of the two happened first only
// the producer's own clock can tell: runtimes repeat ids, and the next call under
// one must not be taken for the beginning of the last.

// findOvertakenCall finds the call that a pre event or request should have been before: the
// oldest one under its id, or of its tool and arguments where nothing has ids, that
// ended without.
func findOvertakenCall(sl *callGroup, f *fact) *call {
	if f.kind != kindPre && f.kind != kindRequest {
		return nil
	}
	for _, c := range sl.calls {
		if c.state == events.CallOrphaned && !c.expand().hasPre && c.endedBefore(f) && (f.callKey.id != "" || compareArguments(&c.executedArgs, &f.args) != argsDifferent) {
			return c
		}
	}
	return nil
}

// endedBefore tells whether the end of a call, or that it was stopped, was reported
// before the announcement that by its own word is not later. A clock that shows
// whole seconds does not tell a request for the next call from one for this.
func (c *call) endedBefore(f *fact) bool {
	stopped := c.closeReason == closedByStop || c.closeReason == closedByError
	if !c.hasPost && !stopped || f.producerTimes.happenedAt.IsZero() || c.endedAt.IsZero() {
		return false
	}
	if c.postProtocol != f.protocol && (f.callKey.id == "" || c.compareFact(f) == argsDifferent) {
		return false
	}
	fine := f.kind == kindPre || c.endedAt.Nanosecond() != 0
	return f.producerTimes.happenedAt.Before(c.endedAt) || fine && f.producerTimes.happenedAt.Equal(c.endedAt)
}

// completionFact is the completion of a call, as a fact.
func (c *call) completionFact() *fact {
	f := &fact{
		kind: kindPost, seq: c.execSeq, protocol: c.postProtocol, origin: *c.session.origin, eventID: c.postEvent,
		callID: c.id, tool: c.tool, callKey: c.group.key, args: c.executedArgs, approval: c.eventApproval,
		effect: c.maxEffect, outcome: c.outcome, startedAt: c.claimedTimes.StartedAt.Time, hasMutationReason: c.hasMutationReason,
	}
	for _, s := range c.timeline {
		if s.step == stepCompleted {
			f.at = s.brokerTime()
		}
	}
	return f
}

// attachLateAnnouncement takes the announcement of a call whose end is known. What it adds
// to what is known counts: the arguments, and what it says of the verdict.
func (e *engine) attachLateAnnouncement(c *call, f *fact) {
	end, before := c.completionFact(), c.effectiveVerdict()
	c.attachFact(f)
	if c.state != events.CallOrphaned {
		e.judge.rejudgeLateVerdict(c, end, before)
		if st := c.effectiveVerdict(); end.effect == maybeEffect && st.verdict == events.Deny {
			e.judge.judgeDoubtful(c, end, st)
		}
		if st := c.effectiveVerdict(); c.match == matchInconclusive && end.args.known && st.verdict != events.Deny {
			e.judge.compareCallInput(c, end, st)
		}
		return
	}
	tried := c.session.findRetriedCall(f)
	c.state = stateAfter(end)
	e.judge.retractOrphan(c, f)
	if tried != nil && tried.order < c.order && c.retriedCall == nil { // what it tries again counts, whenever it says so
		c.retriedCall = tried.decidedAncestor()
		e.calls.linkRetry(c, tried)
	}
	if f.kind == kindPre && f.preCommit && f.callKey.id != "" {
		e.findings.reportCheckFinding("AH-C-083", c, f, findingFrom(c.postEvent, f.eventID).withText("its end was reported before it was announced"))
	}
	switch st := c.effectiveVerdict(); {
	case st.verdict != "" || e.opts.RequireVerdict: // an announcement is no verdict
		e.judge.judgeExecution(c, end)
	case end.effect != noEffect:
		e.judge.compareCallInput(c, end, st)
	}
}

// retractOrphan takes back that a call had not been announced, and says what is
// left of it.
func (j *judge) retractOrphan(c *call, f *fact) {
	for _, made := range c.takeRetractable(OrphanCompletion, "AH-C-078", "AAEP-C-080", "AAEP-C-083") {
		back := findingFrom(c.postEvent, f.eventID).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).retracting(made.id)
		if made.rule == OrphanCompletion {
			j.findings.reportRuleFinding(ruleOrphan, c, f, back)
			continue
		}
		rule := checkRules[made.rule]
		j.findings.emitFinding(rule, c, f, back.withText("what announces the call came later"))
		j.findings.emitFinding(rule, c, f, findingFrom(c.postEvent, f.eventID).withCase(caseOvertaken).withSeverity(events.SeverityLow).withText("its end overtook what announces it"))
	}
}

// rejudgeLateVerdict judges an execution again that turns out to have been denied or put
// off.
func (j *judge) rejudgeLateVerdict(c *call, end *fact, before effectiveVerdict) {
	st := c.effectiveVerdict()
	if !c.hasPost || st.recorded != nil || st.verdict == "" || st.verdict == events.Allow || st.verdict == before.verdict {
		return
	}
	j.judgeExecution(c, end)
}

// checkEarlierEnd: a call that claims to have asked first was reported as done before
// (AH-C-083). If it is reported again, what had been reported was another call.
func (j *judge) checkEarlierEnd(sl *callGroup, c *call, f *fact) {
	if f.kind != kindPre || !f.preCommit || f.callKey.id == "" {
		return
	}
	for _, o := range sl.calls {
		if o.state == events.CallOrphaned && !o.hasOtherArguments(f) && o.expand().compareFact(f) != argsDifferent {
			c.earlierEndFinding = findingRef{o.postEvent, j.findings.reportCheckFinding("AH-C-083", c, f, findingFrom(o.postEvent, f.eventID).withEventsOf(o).withText("its end was reported before it was announced"))}
			return
		}
	}
}

// retractEarlierEnd takes that back.
func (j *judge) retractEarlierEnd(c *call, f *fact) {
	if c.earlierEndFinding.id == "" {
		return
	}
	j.findings.reportCheckFinding("AH-C-083", c, f, findingFrom(c.earlierEndFinding.rule, c.firstEvent(), f.eventID).withCase(caseWithdrawn).
		withSeverity(events.SeverityInfo).retracting(c.earlierEndFinding.id).withText("its own end came later"))
	c.earlierEndFinding = findingRef{}
}
