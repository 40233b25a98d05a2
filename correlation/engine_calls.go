package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// The steps of a call, from its announcement to its end.

// announceCall takes a request copy, a decision or a pre event: it attaches to the
// call it belongs to or opens a new one.
func (e *engine) announceCall(f *fact.Fact) {
	e.nameByRequest(f)
	if !f.HasTool() {
		return
	}
	s, protocol := e.ensureSession(f), rowOf(f.Protocol)
	s.askedAdmission = s.askedAdmission || f.Kind == fact.KindRequest && protocol.requestAnnounces
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
	if f.Decision != nil && f.Decision.HasReceipt {
		e.receipts.recordReceipt(f)
	}
	if !e.handoffs.isEmpty() || protocol.isHandoffTo != nil {
		e.handoffs.trackHandoff(s, c, f)
	}
	if protocol.onceUnderID {
		e.judge.checkSecondInvocation(s, c, f)
	}
	if protocol.rulesApprovals {
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
func (e *engine) nameByRequest(f *fact.Fact) {
	if f.Kind != fact.KindDecision || f.CallKey.Id != "" || f.DecisionID == "" {
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

// amendCall takes a copy of an earlier event that differs only in what it says
// about verdict and approval: the request form and the evidence form of one
// event (AH-C-050).
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

// attachAnnouncement notes that an announcement belongs to a call, which may be over.
func (e *engine) attachAnnouncement(c *call, f *fact.Fact) {
	if f.Kind == fact.KindPre && c.hasPost || f.Kind == fact.KindRequest && c.state == events.CallOrphaned {
		e.attachLateAnnouncement(c, f)
		return
	}
	c.attachFact(f)
}

// openOccurrence makes a new occurrence.
func (e *engine) openOccurrence(s *session, f *fact.Fact) *call {
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
	if other != nil && f.CallKey.Id != "" && !rowOf(f.Protocol).onceUnderID {
		e.findings.reportRule(ruleReused, c, f, findingFrom(other.firstEvent(), f.EventID).withEventsOf(other).withCase(caseReusedOpen))
	}
	if f.Kind != fact.KindDecision || f.Decision.Verdict != events.Deny {
		e.findings.emitCall(c)
	}
	e.enforceCallBounds(s, sl)
	return c
}

// settleVerdict closes a call that was denied, and judges a verdict that came late.
func (e *engine) settleVerdict(c *call, f *fact.Fact) {
	if c.hasPost {
		if f.Kind == fact.KindDecision && len(c.decisions) == 1 {
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
func (e *engine) abandonCall(c *call, why closeReason, f *fact.Fact) {
	e.calls.closeCall(c, events.CallAbandoned, why)
	e.judge.reportMissingCompletion(c, f)
	e.judge.judgeCallClaims(c, f)
	e.findings.emitCall(c)
}

// completeCall takes a completion: it ends the oldest opened occurrence, comes late
// for one that was closed without it, or has nothing before it.
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
	c.executedArgs.Canonical = nil
	e.findings.emitCall(c)
}

// recordOrphan records a completion that nothing was before.
func (e *engine) recordOrphan(s *session, f *fact.Fact) {
	c := e.calls.newOccurrence(s, f)
	sl := c.group
	sl.calls = append(sl.calls, c)
	c.state, c.closeReason = events.CallOrphaned, closedByPost
	c.recordCompletion(f)
	c.executedArgs.Canonical = nil
	s.moveToClosed(c)
	detail := caseOrphan
	if sl.count > 1 {
		detail = caseOrphanAgain
	}
	e.findings.reportRetractable(ruleOrphan, c, f, findingFrom(f.EventID).withCase(detail))
	if check := rowOf(f.Protocol).checkOrphan; check != nil {
		check(e.judge, sl, c, f)
	}
	e.receipts.checkReceiptUse(c, f)
	e.findings.emitCall(c)
	e.enforceCallBounds(s, sl)
}

// handleCallUpdate takes what a producer says about a call beside announcing and
// completing it. What it says about unknown calls is remembered if it ends them, and is no
// finding.
func (e *engine) handleCallUpdate(f *fact.Fact) {
	s := e.calls.touch(f.Key)
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

func (e *engine) stopCall(c *call, f *fact.Fact, state events.CallState, why closeReason) {
	if c.hasPost {
		return
	}
	c.addStep(stepClosed, f)
	if c.outcome == "" {
		c.outcome = f.Outcome
	}
	if !c.hasRequest {
		c.endedAt = f.ProducerTimes.HappenedAt
	}
	if c.isOpen() || c.state == events.CallAbandoned {
		e.judge.retractMissingCompletion(c, f)
		e.calls.closeCall(c, state, why)
		e.judge.judgeCallClaims(c, f)
	}
}

// completeInOtherProtocol takes the other protocol's view of a completion. What it knows
// beyond the first counts: arguments, where the first had none, and that the call
// ran, where the first left that open.
func (e *engine) completeInOtherProtocol(c *call, f *fact.Fact) {
	if c.endedIn.has(f.Protocol) {
		return
	}
	before := c.maxEffect
	c.recordProtocol(f)
	c.applyClaims(f)
	c.recordTimes(f)
	c.addStep(stepCompleted, f)
	if f.Effect != fact.NoEffect && c.execSeq == 0 {
		c.execSeq = f.Seq
	}
	fresh := f.Effect != fact.NoEffect && f.Args.Known && !c.executedArgs.Known
	if fresh {
		c.executedArgs = f.Args
		c.executedArgs.Canonical = nil
	}
	switch {
	case f.Effect > before:
		e.judge.judgeExecution(c, f)
	case fresh && c.effectiveVerdict().verdict != events.Deny:
		e.judge.compareCallInput(c, f, c.effectiveVerdict())
	}
	e.findings.emitCall(c)
}

// decidedAncestor is the call in a chain of retries with the verdict that stands: no number of
// retries takes it out of reach.
func (c *call) decidedAncestor() *call {
	for c.directVerdict().verdict == "" && c.retriedCall != nil {
		c = c.retriedCall.expand()
	}
	return c
}

func (c *call) recordCompletion(f *fact.Fact) {
	c.mergeIdentity(f)
	c.recordProtocol(f)
	c.recordTimes(f)
	c.applyClaims(f)
	c.addStep(stepCompleted, f)
	c.hasPost, c.postEvent, c.postProtocol = true, f.EventID, f.Protocol
	c.outcome, c.hasMutationReason = f.Outcome, f.HasMutationReason
	if !c.hasPre || !c.hasRequest && rowOf(f.Protocol).requestAnnounces {
		c.endedAt = f.ProducerTimes.HappenedAt
	}
	if f.Effect != fact.NoEffect {
		c.execSeq, c.executedArgs = f.Seq, f.Args
	}
}

// stateAfter is the state after a completion, by the protocol's own word; a word
// that is not known completes the call.
func stateAfter(f *fact.Fact) events.CallState {
	switch f.Outcome {
	case "failed", "cancelled", "timed_out", "error", "timeout":
		return events.CallFailed
	case "denied", "blocked":
		return events.CallDenied
	}
	return events.CallCompleted
}

// findUpdatedCall finds the call that a remark is about: by its id, by the event it
// names, by the approval workflow.
func (s *session) findUpdatedCall(f *fact.Fact) *call {
	if sl := s.findGroup(f); sl != nil && f.CallKey.Id != "" {
		if c := sl.oldestOpen(); c != nil {
			return c
		}
		return sl.latestClosed((*call).awaitsCompletion)
	}
	for _, event := range append([]string{f.EventID}, f.RelatedEventIDs...) {
		if c := s.findNamed(event, func(c *call) bool { return c.hasEvent(event) }); c != nil {
			return c
		}
	}
	workflow := f.Approval.ValueOrZero().Workflow
	if workflow == "" {
		return nil
	}
	return s.findNamed(workflow, func(c *call) bool { return c.awaitedApproval().Workflow == workflow })
}

// A completion may come before the announcement of its call. The finding for the wrong
// order (low) stays (AAEP-C-080, AH-C-078); the finding that the call was not announced is
// retracted. The announcement begins no second call, which would be missing its end.
// Only the producer's clock can tell which of the two happened first: runtimes repeat
// ids, and the next call under an id must not be taken for the beginning of the last.

// findOvertakenCall finds the call that a pre event or request should have been before: the
// oldest one under its id, or of its tool and arguments where nothing has ids, that
// ended without.
func findOvertakenCall(sl *callGroup, f *fact.Fact) *call {
	if f.Kind != fact.KindPre && f.Kind != fact.KindRequest {
		return nil
	}
	for _, c := range sl.calls {
		if c.state == events.CallOrphaned && !c.expand().hasPre && c.endedBefore(f) && (f.CallKey.Id != "" || fact.CompareArguments(&c.executedArgs, &f.Args) != fact.ArgsDifferent) {
			return c
		}
	}
	return nil
}

// endedBefore reports whether the end of a call, or that it was stopped, was reported
// before the announcement that by its own word is not later. A clock that shows
// whole seconds does not tell a request for the next call from one for this.
func (c *call) endedBefore(f *fact.Fact) bool {
	stopped := c.closeReason == closedByStop || c.closeReason == closedByError
	if !c.hasPost && !stopped || f.ProducerTimes.HappenedAt.IsZero() || c.endedAt.IsZero() {
		return false
	}
	if c.postProtocol != f.Protocol && (f.CallKey.Id == "" || c.compareFact(f) == fact.ArgsDifferent) {
		return false
	}
	fine := f.Kind == fact.KindPre || c.endedAt.Nanosecond() != 0
	return f.ProducerTimes.HappenedAt.Before(c.endedAt) || fine && f.ProducerTimes.HappenedAt.Equal(c.endedAt)
}

// completionFact is the completion of a call, as a fact.
func (c *call) completionFact() *fact.Fact {
	f := &fact.Fact{
		Kind: fact.KindPost, Seq: c.execSeq, Protocol: c.postProtocol, Origin: *c.session.Origin, EventID: c.postEvent,
		CallID: c.id, Tool: c.tool, CallKey: c.group.key, Args: c.executedArgs, Approval: c.eventApproval,
		Effect: c.maxEffect, Outcome: c.outcome, StartedAt: c.claimedTimes.StartedAt.Time, HasMutationReason: c.hasMutationReason,
	}
	for _, s := range c.timeline {
		if s.step == stepCompleted {
			f.At = s.brokerTime()
		}
	}
	return f
}

// attachLateAnnouncement takes the announcement of a call with a known end. What it adds
// to what is known counts: the arguments, and what it says of the verdict.
func (e *engine) attachLateAnnouncement(c *call, f *fact.Fact) {
	end, before := c.completionFact(), c.effectiveVerdict()
	c.attachFact(f)
	if c.state != events.CallOrphaned {
		e.judge.rejudgeLateVerdict(c, end, before)
		if st := c.effectiveVerdict(); end.Effect == fact.MaybeEffect && st.verdict == events.Deny {
			e.judge.judgeDoubtful(c, end, st)
		}
		if st := c.effectiveVerdict(); c.match == matchInconclusive && end.Args.Known && st.verdict != events.Deny {
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
	if f.Kind == fact.KindPre && f.PreCommit && f.CallKey.Id != "" {
		e.findings.reportCheck("AH-C-083", c, f, findingFrom(c.postEvent, f.EventID).withText("its end was reported before it was announced"))
	}
	switch st := c.effectiveVerdict(); {
	case st.verdict != "" || e.opts.RequireVerdict: // an announcement is no verdict
		e.judge.judgeExecution(c, end)
	case end.Effect != fact.NoEffect:
		e.judge.compareCallInput(c, end, st)
	}
}

// retractOrphan takes back that a call had not been announced, and says what is
// left of it.
func (j *judge) retractOrphan(c *call, f *fact.Fact) {
	for _, made := range c.takeRetractable(orphanRules...) {
		back := findingFrom(c.postEvent, f.EventID).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).retracting(made.id)
		if made.rule == OrphanCompletion {
			j.findings.reportRule(ruleOrphan, c, f, back)
			continue
		}
		rule := checkRules[made.rule]
		j.findings.emitFinding(rule, c, f, back.withText("what announces the call came later"))
		j.findings.emitFinding(rule, c, f, findingFrom(c.postEvent, f.EventID).withCase(caseOvertaken).withSeverity(events.SeverityLow).withText("its end overtook what announces it"))
	}
}

// rejudgeLateVerdict judges an execution again that turns out to have been denied or put
// off.
func (j *judge) rejudgeLateVerdict(c *call, end *fact.Fact, before effectiveVerdict) {
	st := c.effectiveVerdict()
	if !c.hasPost || st.recorded != nil || st.verdict == "" || st.verdict == events.Allow || st.verdict == before.verdict {
		return
	}
	j.judgeExecution(c, end)
}

// checkEarlierEnd: a call that claims to have asked first was reported as done before
// (AH-C-083). If it is reported again, what had been reported was another call.
func (j *judge) checkEarlierEnd(sl *callGroup, c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre || !f.PreCommit || f.CallKey.Id == "" {
		return
	}
	for _, o := range sl.calls {
		if o.state == events.CallOrphaned && !o.hasOtherArguments(f) && o.expand().compareFact(f) != fact.ArgsDifferent {
			c.earlierEndFinding = findingRef{o.postEvent, j.findings.reportCheck("AH-C-083", c, f, findingFrom(o.postEvent, f.EventID).withEventsOf(o).withText("its end was reported before it was announced"))}
			return
		}
	}
}

// retractEarlierEnd takes that back.
func (j *judge) retractEarlierEnd(c *call, f *fact.Fact) {
	if c.earlierEndFinding.id == "" {
		return
	}
	j.findings.reportCheck("AH-C-083", c, f, findingFrom(c.earlierEndFinding.rule, c.firstEvent(), f.EventID).withCase(caseWithdrawn).
		withSeverity(events.SeverityInfo).retracting(c.earlierEndFinding.id).withText("its own end came later"))
	c.earlierEndFinding = findingRef{}
}

// maxEarlyUpdates bounds what a session remembers of calls that are not announced yet; the
// oldest is forgotten.
const maxEarlyUpdates = 64

// earlyUpdate is what a producer said of a call's end, or of its fail mode, before
// anything announced the call: events overtake each other, and the same events
// must give the same findings.
type earlyUpdate struct {
	kind              fact.Kind
	seq               uint64
	at                time.Time
	callKey           fact.CallKey
	protocol, eventID string
	outcome           string
	verdictClaim      fact.VerdictClaim
	approval          *fact.Approval
	happenedAt        time.Time // when it was, by its producer's clock
}

// bufferEarlyUpdate remembers a remark about a call that was never heard of. Under an
// id that was, a remark that fits no call says something of one that is over.
func (e *engine) bufferEarlyUpdate(f *fact.Fact) {
	if !f.EndsCall() || f.CallKey.Id == "" {
		return
	}
	s := e.ensureSession(f)
	if s.findGroup(f) != nil {
		return
	}
	if len(s.earlyUpdates) >= maxEarlyUpdates {
		s.earlyUpdates = slices.Delete(s.earlyUpdates, 0, 1)
	}
	s.earlyUpdates = append(s.earlyUpdates, earlyUpdate{
		kind: f.Kind, seq: f.Seq, at: f.At, callKey: f.CallKey, protocol: f.Protocol, eventID: f.EventID,
		outcome: f.Outcome, verdictClaim: f.VerdictClaim, approval: f.Approval, happenedAt: f.ProducerTimes.HappenedAt,
	})
}

// applyEarlyUpdates applies to a call what was said of it before it was announced.
func (e *engine) applyEarlyUpdates(s *session, c *call) {
	for i := 0; i < len(s.earlyUpdates); {
		r := s.earlyUpdates[i]
		if r.callKey != c.group.key {
			i++
			continue
		}
		s.earlyUpdates = slices.Delete(s.earlyUpdates, i, i+1)
		f := &fact.Fact{Kind: r.kind, Seq: r.seq, At: r.at, CallKey: r.callKey, Origin: *s.Origin, Protocol: r.protocol, EventID: r.eventID,
			Outcome: r.outcome, VerdictClaim: r.verdictClaim, Approval: r.approval, ProducerTimes: fact.ProducerTimes{HappenedAt: r.happenedAt}}
		e.applyCallUpdate(c, f)
	}
}

// applyCallUpdate applies a remark to its call.
func (e *engine) applyCallUpdate(c *call, f *fact.Fact) {
	c.applyClaims(f)
	switch f.Kind {
	case fact.KindFailOpen:
		c.failOpen = true
	case fact.KindStopped:
		e.stopCall(c, f, events.CallDenied, closedByStop)
	case fact.KindError:
		e.stopCall(c, f, events.CallFailed, closedByError)
	case fact.KindAdmissionReply:
		e.settleVerdict(c, f)
	}
}

// findingRef is a finding that later events may take back.
type findingRef struct{ rule, id string }

// addRetractable notes a finding that would not have been made, or not as it was, if what
// may come late had come in time: the fail mode, the verdict, the announcement.
func (x *details) addRetractable(rule, id string) {
	x.retractable = append(x.retractable, findingRef{rule, id})
}

// reportRetractable reports what a late word may take back, under the checks that it breaks
// as well.
func (fs *findings) reportRetractable(r *Rule, c *call, f *fact.Fact, v *findingSpec) {
	c.addRetractable(r.Name, fs.reportRule(r, c, f, v))
	for _, check := range equivalentChecks(r, c, f, v) {
		_, id := identifyFinding(checkRules[check], c, f, v.asCheckFinding(r))
		c.addRetractable(check, id)
	}
}

// takeRetractable gives what was found of a call under these rules, and forgets it.
func (x *details) takeRetractable(rules ...string) (list []findingRef) {
	x.retractable = slices.DeleteFunc(x.retractable, func(made findingRef) bool {
		is := slices.Contains(rules, made.rule)
		if is {
			list = append(list, made)
		}
		return is
	})
	if len(x.retractable) == 0 {
		x.retractable = nil
	}
	return list
}

// isFailOpen reports whether the publisher's fail mode let the call pass, and the
// log shows why: the admitter recorded the request, and no verdict came of it. The
// publisher's word alone would let it run whatever it likes without asking.
func (x *details) isFailOpen() bool { return x.failOpen && x.hasRequest }

// retractForFailMode takes back what was found of a call that ran without a verdict: its
// publisher's fail mode had let it pass, and said so late.
func (j *judge) retractForFailMode(s *session, f *fact.Fact) {
	sl := s.findGroup(f)
	if f.Kind != fact.KindFailOpen || sl == nil || f.CallKey.Id == "" {
		return
	}
	c := sl.latestClosed(func(c *call) bool { return c.hasPost && !c.failOpen && c.state != events.CallOrphaned })
	if c == nil {
		return
	}
	c.failOpen = true
	if !c.isFailOpen() {
		return
	}
	excused := []string{"AH-C-073", "AH-C-084"}
	if c.verdictClaim.Verdict == "" { // that a claimed verdict was not recorded, no fail mode excuses
		excused = append(excused, ExecutedWithoutVerdict)
	}
	for _, x := range c.takeRetractable(excused...) {
		back := findingFrom(c.firstEvent(), f.EventID).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).retracting(x.id)
		if x.rule == ExecutedWithoutVerdict {
			j.findings.reportRule(ruleWithoutVerdict, c, f, back)
			j.findings.reportRule(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), c.postEvent).withCase(caseFailOpen).withSeverity(events.SeverityInfo))
			continue
		}
		j.findings.emitFinding(checkRules[x.rule], c, f, back.withText("the fail mode had let it pass"))
	}
	j.findings.emitCall(c)
}
