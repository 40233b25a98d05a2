package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
)

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

// attachLateAnnouncement takes the announcement of a call whose end is known. What it adds
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
