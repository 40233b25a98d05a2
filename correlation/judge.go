package correlation

import (
	"cmp"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// judge compares what calls did with the recorded verdicts. It has no state: its findings are
// recorded on the call.
type judge struct {
	opts      *engineOptions `snapshot:"-"` // not part of a snapshot
	findings  *findings      `snapshot:"-"` // another part, as are the next four
	calls     *calls         `snapshot:"-"`
	approvals *approvals     `snapshot:"-"`
	receipts  *receipts      `snapshot:"-"`
	trackers  *trackers      `snapshot:"-"`
}

// judgeExecution compares an execution with the verdicts recorded before it.
func (j *judge) judgeExecution(c *call, f *fact.Fact) {
	if f.Effect == fact.NoEffect {
		return
	}
	verdict := c.effectiveVerdict()
	before := j.findings.made()
	switch {
	case verdict.verdict == "":
		j.judgeUnasked(c, f)
	case verdict.verdict == events.Deny && c.takeDeniedStart():
		j.findings.reportEquivalents(ruleDespiteDeny, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict))
	case f.Effect == fact.MaybeEffect && verdict.verdict == events.Deny:
		j.judgeDoubtful(c, f, verdict)
	case f.Effect == fact.MaybeEffect && verdict.verdict != events.Allow:
	case verdict.verdict == events.Deny:
		j.findings.reportRule(ruleDespiteDeny, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict))
	case verdict.verdict != events.Allow:
		j.judgeAsked(c, f, verdict)
	default:
		j.judgeAllowed(c, f, verdict)
	}
	if verdict.recorded == nil && verdict.verdict != "" && j.opts.RequireVerdict && j.findings.made() == before {
		j.findings.reportRetractable(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseOnlyClaimed))
	}
	if verdict.verdict != events.Deny {
		j.compareCallInput(c, f, verdict)
	}
	j.judgeVerdictClaim(c, f)
	j.receipts.checkReceiptUse(c, f)
}

// judgeDeniedStart reports a call that an announcement says to begin although it was denied. It reports at once, since
// its completion may never come, and judgeExecution does not report it again.
func (j *judge) judgeDeniedStart(c *call, f *fact.Fact) {
	verdict := c.effectiveVerdict()
	if c.invokedSeq != f.Seq || verdict.verdict != events.Deny || c.maxEffect == fact.HadEffect {
		return
	}
	c.noteDeniedStart()
	j.findings.reportRule(ruleDespiteDeny, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withCase(caseInvoked))
}

// judgeDoubtful judges the end of a denied call whose outcome does not say whether the call
// began (AAEP uses one word for both). A call invoked after its denial did begin. A call
// invoked before its denial may have been stopped, but it did not wait for its verdict.
func (j *judge) judgeDoubtful(c *call, f *fact.Fact, verdict effectiveVerdict) {
	denied := c.verdictClaim.Seq
	if verdict.recorded != nil {
		denied = verdict.recorded.Seq
	}
	switch {
	case c.invokedSeq == 0 || denied == 0 || c.maxEffect == fact.HadEffect: // another protocol's event says that it ran
	case c.invokedSeq > denied:
		c.confirmEffect()
		j.findings.reportRule(ruleDespiteDeny, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withSeq(c.invokedSeq))
	case verdict.recorded != nil:
		j.findings.reportRule(ruleBeforeVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withSeq(c.invokedSeq).withCase(caseInvokedFirst))
	}
}

func (j *judge) judgeUnasked(c *call, f *fact.Fact) {
	j.checkUnanswered(c, f)
	j.checkDeniedBypass(c, f)
	switch {
	case !j.opts.RequireVerdict:
	case c.isFailOpen():
		j.findings.reportRule(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseFailOpen).withSeverity(events.SeverityInfo))
	case c.failOpen:
		j.findings.reportRetractable(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseFailOpenClaimed))
		protocols.checkUngated(j.trackers, c, f)
	default:
		j.findings.reportRetractable(ruleWithoutVerdict, c, f, findingFrom(c.firstEvent(), f.EventID))
		protocols.checkUngated(j.trackers, c, f)
	}
}

// judgeAsked judges an execution whose verdict is ask or defer: it must have been approved.
// After a recorded ask, only a new decision is an approval (AH-C-105). After a claimed
// verdict, the approval that events claim counts.
func (j *judge) judgeAsked(c *call, f *fact.Fact, verdict effectiveVerdict) {
	granted := f.Approval.ValueOrZero()
	if granted.Status != fact.StatusApproved {
		granted = c.eventApproval.ValueOrZero()
	}
	if verdict.recorded != nil || !c.approvedBy(granted) {
		caseOf := approvalCase(c, granted)
		if caseOf != "" {
			c.claims.markReported(claimedApprovalKind)
		}
		j.findings.reportRule(rulePending, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withCase(caseOf))
		return
	}
	if !f.StartedAt.IsZero() && f.StartedAt.Add(j.opts.ClockSkew).Before(granted.DecidedAt) {
		j.findings.reportRule(rulePending, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict))
		return
	}
	until := c.awaitedApproval().ExpiresAt
	if until.IsZero() {
		until = granted.ExpiresAt
	}
	j.judgeExpiry(c, f, verdict, until, caseApprovalExpired, caseApprovalOver)
}

// judgeExpiry reports an execution that began after the end of its permission, by more than the
// clocks may differ. Where nothing says when it began, and it ended after that time, the finding is
// of the other case, and low.
func (j *judge) judgeExpiry(c *call, f *fact.Fact, verdict effectiveVerdict, until time.Time, begun, ended string) {
	start, known := c.executionStart(f)
	if until.IsZero() || !start.After(until.Add(j.opts.ClockSkew)) {
		return
	}
	spec := findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withCase(begun)
	if !known {
		spec.withCase(ended).withSeverity(events.SeverityLow)
	}
	j.findings.reportRule(ruleExpired, c, f, spec)
}

func (j *judge) judgeAllowed(c *call, f *fact.Fact, verdict effectiveVerdict) {
	j.approvals.checkUnnamedApproval(c, f)
	j.approvals.checkExecutedApproval(c, f, verdict)
	decided := verdict.decidedAt
	if verdict.recorded != nil {
		decided = verdict.recorded.At
		j.judgeExpiry(c, f, verdict, verdict.recorded.Expires, "", caseAllowOver)
	}
	if !f.StartedAt.IsZero() && !decided.IsZero() && f.StartedAt.Add(j.opts.ClockSkew).Before(decided) {
		j.findings.reportRule(ruleBeforeVerdict, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict))
	}
}

// reportDrift reports that a call ran with another tool or other arguments than its verdict,
// request or announcement names. A mutation reason is the publisher's own claim: it lowers the
// severity and excuses nothing.
func (j *judge) reportDrift(c *call, f *fact.Fact, verdict effectiveVerdict, reason bool, caseOf string) {
	grade := events.SeverityHigh
	switch {
	case reason:
		grade = events.SeverityMedium
	case verdict.recorded != nil && verdict.recorded.HasReceipt:
		grade = events.SeverityCritical
	}
	j.findings.reportRule(ruleDrift, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withCase(caseOf).withSeverity(grade).withText(c.admissionStage(verdict)))
}

// reportMissingCompletion reports a call without a completion. A denied call needs none, nor does
// one that waited for an approval which ended without a yes. A call that was only requested needs
// one, except in a protocol with endIsMust, where only announced calls do.
func (j *judge) reportMissingCompletion(c *call, f *fact.Fact) {
	grade, due := events.SeverityMedium, c.hasPre || c.hasRequest
	if c.announcingProtocol().endIsMust {
		grade, due = events.SeverityHigh, c.hasPre
	}
	if !due || c.replaced {
		return
	}
	switch j.approvals.openRequest(c) {
	case fact.StatusDenied, fact.StatusExpired, fact.StatusCancelled:
		return
	}
	caseOf := caseDeadline
	switch c.closeReason {
	case closedBySessionEnd:
		caseOf = caseSessionEnd
	case closedForRoom:
		caseOf = caseRoom
	}
	spec := findingFrom(c.firstEvent()).withCase(caseOf).withSeverity(grade)
	c.missingFinding = j.findings.reportRule(ruleMissing, c, f, spec)
	if check := c.missingRule(); check != nil {
		c.missingCheckFinding = j.findings.emitFinding(check, c, f, spec.asCheckFinding(ruleMissing))
	}
}

// retractMissingCompletion retracts a missing_completion that a late event disproves. In a
// protocol with endIsMust the finding stays if the session had ended before.
func (j *judge) retractMissingCompletion(c *call, f *fact.Fact) {
	tooLate := c.closeReason == closedBySessionEnd && c.announcingProtocol().endIsMust && !c.sessionEnd.hasOvertaken(f)
	if c.missingFinding == "" || tooLate {
		return
	}
	j.retractMissingFinding(c, f, caseRetracted, "the completion has arrived after all")
}

// retractMissingFinding retracts the missing_completion of a call and its check's finding. why
// is the reason that the check's finding shows.
func (j *judge) retractMissingFinding(c *call, f *fact.Fact, caseOf, why string) {
	back := findingFrom(c.firstEvent(), f.EventID).withCase(caseOf).withSeverity(events.SeverityInfo).retracting(c.missingFinding)
	j.findings.reportRule(ruleMissing, c, f, back)
	check := findingFrom(c.firstEvent(), f.EventID).withCase(caseOf).retracting(c.missingCheckFinding)
	if rule := c.missingRule(); rule != nil {
		j.findings.emitFinding(rule, c, f, check.withText(why).withSeverity(events.SeverityInfo))
	}
	c.missingFinding, c.missingCheckFinding = "", ""
}

// An approval may be used by another call than the one that waits for it: a retry under its
// own id, as docs/approvals.md permits. The waiting call then never runs and needs no
// completion. AH-C-104 and AH-C-106 judge whether the other call may use the approval.

// replaceWaitingCalls marks the calls that an allowed call replaces: the calls that it
// retries, and those that wait for its approval.
func (j *judge) replaceWaitingCalls(s *session, c *call, f *fact.Fact) {
	if c.directVerdict().verdict != events.Allow {
		return
	}
	before := c.retriedCall
	for range maxRetryChain {
		if before == nil {
			break
		}
		j.replaceCall(before.expand(), c, f)
		before = before.retriedCall
	}
	workflow := cmp.Or(c.awaitedApproval().Workflow, c.eventApproval.ValueOrZero().Workflow)
	if workflow == "" {
		return
	}
	s.findNamed(workflow, func(o *call) bool {
		if o.awaitedApproval().Workflow == workflow {
			j.replaceCall(o, c, f)
		}
		return false // to visit every waiting call
	})
}

// replaceCall marks a call whose approval another call uses. A call that AAEP reports as
// invoked must be completed nevertheless (AAEP-C-081).
func (j *judge) replaceCall(o, by *call, f *fact.Fact) {
	v := o.directVerdict().verdict
	waits := (v == events.Ask || v == events.Defer) && !o.hasPost && o.invokedEvent == ""
	if o == by || o.replaced || !waits {
		return
	}
	o.replaced = true
	if o.missingFinding != "" {
		j.retractMissingFinding(o, f, caseReplaced, "another call uses its approval")
		j.findings.emitCall(o)
	}
}

// checkRequestConflict reports a request and an event with one id whose contents differ in
// more than what admission adds (AH-C-050).
func (j *judge) checkRequestConflict(c *call, f *fact.Fact) {
	crossed := (f.Kind == fact.KindPre && c.frameKind == fact.KindRequest) || (f.Kind == fact.KindRequest && c.frameKind == fact.KindPre)
	if !crossed || f.EventID == "" || f.EventID != c.frameEvent {
		return
	}
	if f.FrameSum != c.frameSum || fact.CompareArguments(&c.args, &f.Args) == fact.ArgsDifferent {
		j.findings.reportRule(ruleConflict, nil, f, findingFrom(f.EventID).withContent(f.CoreSum).withEventsOf(c))
	}
}

// checkSecondInvocation reports a second AAEP invocation under one id in a session
// (AAEP-C-052).
func (j *judge) checkSecondInvocation(s *session, c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre || f.CallKey.ID == "" {
		return
	}
	first, isFirst := s.ensureGroup(f).recordInvocation(f.EventID)
	if !isFirst && first != f.EventID {
		spec := findingFrom(first, f.EventID)
		if o := s.findInGroup(f.CallKey, first, func(o *call) bool { return o.preEvent == first }); o != nil {
			spec.withEventsOf(o)
		}
		j.findings.reportRule(ruleReused, c, f, spec.withCase(caseReusedOnce))
	}
}

// checkUnanswered reports a call that ran although its request was never answered and no fail
// mode let it pass (AH-C-073).
func (j *judge) checkUnanswered(c *call, f *fact.Fact) {
	if c.hasRequest && !c.failOpen && rowOf(f.Protocol).mustBeAnswered {
		c.addRetractable("AH-C-073", j.findings.reportCheck("AH-C-073", c, f, findingFrom(c.firstEvent(), f.EventID)))
	}
}

// checkUnnamedEnd reports a completion without the id that its announcement had (AH-C-087).
func (j *judge) checkUnnamedEnd(c *call, f *fact.Fact, inferred bool) {
	if inferred && f.CallKey.ID == "" && rowOf(f.Protocol).endNamesBeginning && c.group.key.ID != "" {
		j.findings.reportCheck("AH-C-087", c, f, findingFrom(c.firstEvent(), f.EventID).withText("its end has no id"))
	}
}

// checkEffectFirst reports a call that began, by one protocol, before another protocol
// announced that it begins.
func (j *judge) checkEffectFirst(c *call, f *fact.Fact) {
	check := rowOf(f.Protocol).effectFirst
	if check == "" || f.Effect == fact.NoEffect || f.StartedAt.IsZero() || c.invokedAt.IsZero() {
		return
	}
	if f.StartedAt.Add(max(j.opts.ClockSkew, DefaultClockSkew)).Before(c.invokedAt) {
		j.findings.reportCheck(check, c, f, findingFrom(c.invokedEvent, f.EventID))
	}
}
