package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// handleCallUpdate applies what a producer reports of a call beside its announcement and
// completion. An update that ends an unknown call is buffered, and is no finding.
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
	c.recordStop(f)
	if c.isOpen() || c.state == events.CallAbandoned {
		e.judge.retractMissingCompletion(c, f)
		e.calls.closeCall(c, state, why)
		e.judge.judgeCallClaims(c, f)
	}
}

// maxEarlyUpdates bounds the buffered updates of a session; the oldest is forgotten.
const maxEarlyUpdates = 64

// earlyUpdate is an update, about a call's end or fail mode, that came before the call's
// announcement. Events may overtake each other, and the same events must give the same
// findings.
type earlyUpdate struct {
	kind              fact.Kind
	seq               uint64
	at                time.Time
	callKey           fact.CallKey
	protocol, eventID string
	outcome           string
	verdictClaim      fact.VerdictClaim
	approval          *fact.Approval
	happenedAt        time.Time // by its producer's clock
}

// bufferEarlyUpdate buffers an update that ends a call, if the session does not know the
// call's id. Under a known id, an update that fits no call is about one that is closed.
func (e *engine) bufferEarlyUpdate(f *fact.Fact) {
	if !f.EndsCall() || f.CallKey.ID == "" {
		return
	}
	s := e.ensureSession(f)
	if s.findGroup(f) != nil {
		return
	}
	s.bufferUpdate(earlyUpdate{
		kind: f.Kind, seq: f.Seq, at: f.At, callKey: f.CallKey, protocol: f.Protocol, eventID: f.EventID,
		outcome: f.Outcome, verdictClaim: f.VerdictClaim, approval: f.Approval, happenedAt: f.ProducerTimes.HappenedAt,
	})
}

// applyEarlyUpdates applies the buffered updates of a call that is announced now.
func (e *engine) applyEarlyUpdates(s *session, c *call) {
	for _, r := range s.takeUpdates(c.group.key) {
		f := &fact.Fact{Kind: r.kind, Seq: r.seq, At: r.at, CallKey: r.callKey, Origin: *s.Origin, Protocol: r.protocol, EventID: r.eventID,
			Outcome: r.outcome, VerdictClaim: r.verdictClaim, Approval: r.approval, ProducerTimes: fact.ProducerTimes{HappenedAt: r.happenedAt}}
		e.applyCallUpdate(c, f)
	}
}

// applyCallUpdate applies an update to its call.
func (e *engine) applyCallUpdate(c *call, f *fact.Fact) {
	c.applyClaims(f)
	switch f.Kind {
	case fact.KindFailOpen:
		c.noteFailOpen()
	case fact.KindStopped:
		e.stopCall(c, f, events.CallDenied, closedByStop)
	case fact.KindError:
		e.stopCall(c, f, events.CallFailed, closedByError)
	case fact.KindAdmissionReply:
		e.settleVerdict(c, f)
	}
}

// isFailOpen reports whether the publisher's fail mode let the call pass, and the log proves
// it: the admitter recorded the request and no verdict. The publisher's claim alone does not
// count; it would let a call run without asking.
func (x *details) isFailOpen() bool { return x.failOpen && x.hasRequest }

// retractForFailMode retracts the findings of a call that ran without a verdict, when its
// publisher reports late that its fail mode let the call pass.
func (j *judge) retractForFailMode(s *session, f *fact.Fact) {
	group := s.findGroup(f)
	if f.Kind != fact.KindFailOpen || group == nil || f.CallKey.ID == "" {
		return
	}
	c := group.latestClosed(func(c *call) bool { return c.hasPost && !c.failOpen && c.state != events.CallOrphaned })
	if c == nil {
		return
	}
	c.noteFailOpen()
	if !c.isFailOpen() {
		return
	}
	excused := []string{"AH-C-073", "AH-C-084"}
	if c.verdictClaim.Verdict == "" { // no fail mode excuses a claimed verdict that was not recorded
		excused = append(excused, ExecutedWithoutVerdict)
	}
	for _, x := range c.takeRetractable(excused...) {
		j.findings.retract(x, ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseRetracted), "the fail mode had let it pass")
		if x.rule == ExecutedWithoutVerdict {
			j.findings.reportRule(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), c.postEvent).withCase(caseFailOpen).withSeverity(events.SeverityInfo))
		}
	}
	j.findings.emitCall(c)
}

// attachLateAnnouncement attaches an announcement to a completed call. Its arguments and
// verdict count if they were unknown.
func (e *engine) attachLateAnnouncement(c *call, f *fact.Fact) {
	end, before := c.completionFact(), c.effectiveVerdict()
	c.attachFact(f)
	if c.state != events.CallOrphaned {
		e.judge.rejudgeLateVerdict(c, end, before)
		if verdict := c.effectiveVerdict(); end.Effect == fact.MaybeEffect && verdict.verdict == events.Deny {
			e.judge.judgeDoubtful(c, end, verdict)
		}
		if verdict := c.effectiveVerdict(); c.match == matchInconclusive && end.Args.Known && verdict.verdict != events.Deny {
			e.judge.compareCallInput(c, end, verdict)
		}
		return
	}
	tried := c.session.findRetriedCall(f)
	c.recordLateAnnouncement(end)
	e.judge.retractOrphan(c, f)
	if tried != nil && tried.order < c.order && c.retriedCall == nil { // the retried call counts, even if it is named late
		c.recordRetried(tried)
		e.calls.linkRetry(c, tried)
	}
	if f.Kind == fact.KindPre && f.PreCommit && f.CallKey.ID != "" {
		e.findings.reportCheck("AH-C-083", c, f, findingFrom(c.postEvent, f.EventID).withText("its end was reported before it was announced"))
	}
	switch verdict := c.effectiveVerdict(); {
	case verdict.verdict != "" || e.opts.RequireVerdict: // an announcement is no verdict
		e.judge.judgeExecution(c, end)
	case end.Effect != fact.NoEffect:
		e.judge.compareCallInput(c, end, verdict)
	}
}

// judgeLateVerdict judges a first verdict that was recorded after the execution.
func (j *judge) judgeLateVerdict(c *call, f *fact.Fact) {
	if c.execSeq == 0 {
		return
	}
	late := findingFrom(c.firstEvent(), c.postEvent).withCase(caseRecordedLate)
	if f.Decision.Verdict == events.Deny {
		late.withCase(caseDeniedLate)
	}
	if j.opts.RequireVerdict && !c.isFailOpen() {
		late.withSeverity(ruleWithoutVerdict.Severity) // a later verdict does not lower the severity
	}
	var wrong []findingRef
	if c.verdictClaim.Verdict == "" || c.verdictClaim.Verdict.Strictness() >= nativeVerdict(f.Decision.Verdict).Strictness() {
		wrong = c.takeRetractable(ExecutedWithoutVerdict, "AH-C-073", "AH-C-082")
	}
	for _, made := range wrong {
		back := findingFrom(c.firstEvent(), f.EventID).withSeq(f.Seq).withCase(caseRecordedLate)
		j.findings.retract(made, ruleWithoutVerdict, c, f, back, "the verdict was recorded later")
	}
	j.findings.reportRule(ruleBeforeVerdict, c, f, late)
}

// rejudgeLateVerdict judges an execution again if its verdict is now deny, ask or defer.
func (j *judge) rejudgeLateVerdict(c *call, end *fact.Fact, before effectiveVerdict) {
	verdict := c.effectiveVerdict()
	if !c.hasPost || verdict.recorded != nil || verdict.verdict == "" || verdict.verdict == events.Allow || verdict.verdict == before.verdict {
		return
	}
	j.judgeExecution(c, end)
}

// retractOrphan retracts the orphan findings of a call that was announced late. The findings
// for the wrong order (low) replace them.
func (j *judge) retractOrphan(c *call, f *fact.Fact) {
	for _, made := range c.takeRetractable(orphanRules...) {
		j.findings.retract(made, ruleOrphan, c, f, findingFrom(c.postEvent, f.EventID).withCase(caseRetracted), "what announces the call came later")
		if made.rule != OrphanCompletion {
			j.findings.reportCheck(made.rule, c, f, findingFrom(c.postEvent, f.EventID).withCase(caseOvertaken).withSeverity(events.SeverityLow).withText("its end overtook what announces it"))
		}
	}
}

// earlierEnd is the event of a completion that came before its call's announcement, and the id
// of the finding about that.
type earlierEnd struct{ event, finding string }

// checkEarlierEnd reports a call that claims to have asked first, but whose completion was
// reported before its announcement (AH-C-083). retractEarlierEnd retracts the finding if the
// call completes once more: the earlier completion was then another call's.
func (j *judge) checkEarlierEnd(group *callGroup, c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre || !f.PreCommit || f.CallKey.ID == "" {
		return
	}
	for _, o := range group.calls {
		if o.state == events.CallOrphaned && !o.hasOtherArguments(f) && o.expand().compareFact(f) != fact.ArgsDifferent {
			c.earlierEnd = earlierEnd{o.postEvent, j.findings.reportCheck("AH-C-083", c, f, findingFrom(o.postEvent, f.EventID).withEventsOf(o).withText("its end was reported before it was announced"))}
			return
		}
	}
}

// retractEarlierEnd retracts the finding of checkEarlierEnd.
func (j *judge) retractEarlierEnd(c *call, f *fact.Fact) {
	if c.earlierEnd.finding == "" {
		return
	}
	j.findings.reportCheck("AH-C-083", c, f, findingFrom(c.earlierEnd.event, c.firstEvent(), f.EventID).withCase(caseRetracted).
		withSeverity(events.SeverityInfo).retracting(c.earlierEnd.finding).withText("its own end came later"))
	c.earlierEnd = earlierEnd{}
}
