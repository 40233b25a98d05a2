package correlation

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// approvals are the approval workflows on record: the status of each, and what decisions
// opened it for. Both are bounded by maxApprovals; the oldest are forgotten.
type approvals struct {
	opts      *engineOptions `snapshot:"-"` // given anew
	findings  *findings
	statuses  *tables.FIFO[workflowKey, approvalStatus]
	workflows *tables.FIFO[workflowKey, *workflow]
}

func newApprovals(fs *findings) *approvals {
	return &approvals{findings: fs, statuses: tables.NewFIFO[workflowKey, approvalStatus](maxApprovals), workflows: tables.NewFIFO[workflowKey, *workflow](maxApprovals)}
}

// approvalStatus is where an approval workflow stands, and since when it does by
// the broker's clock.
type approvalStatus struct {
	status string
	at     time.Time
}

// recordApprovalStatus notes the status of an approval workflow.
func (ap *approvals) recordApprovalStatus(k workflowKey, status string, at time.Time) {
	if w, known := ap.statuses.Get(k); !known || w.status != status {
		ap.statuses.Put(k, approvalStatus{status, at})
	}
}

// checkApprovalEvent compares what an event tells of an approval with its record
// (AH-C-111).
func (ap *approvals) checkApprovalEvent(w *protocolSession, f *fact.Fact) {
	if f.Kind != fact.KindApproval || f.Approval.ValueOrZero().Workflow == "" {
		return
	}
	recorded, known := ap.statuses.Get(workflowKey{f.Key.Tenant, fact.SumOf(f.Approval.Workflow)})
	if known && isGranted(recorded.status) != f.Approval.HasStatus(fact.StatusApproved) {
		ap.findings.ReportSessionFinding(f, *w.origin, fact.SingleEventFinding("AH-C-111", "", f))
	}
}

// approvalSteps are what the acts on a workflow are to the calls that wait for
// it. A vote that does not settle it is none, and what uses an approval up is the
// decision.
var approvalSteps = map[string]step{
	"open": stepAsked, "join": stepAsked, "approve": stepApproved, "deny": stepRefused, "cancel": stepCancelled, "expire": stepExpired,
}

// recordApprovalStep notes a record of an approval in the timelines of the calls that it is
// about. It is no news of them: what they come to shows in the decision that
// follows.
func (cs *calls) recordApprovalStep(f *fact.Fact, a events.Approval) {
	now := approvalSteps[a.Act]
	s := cs.find(f.Key)
	if now == noStep || a.Refused != "" || s == nil {
		return
	}
	if c := s.callOfDecision(a.DecisionID); now == stepAsked && c != nil {
		c.addStep(now, f)
		return
	}
	workflow := fact.BoundID(a.WorkflowID)
	for _, c := range s.open {
		if workflow != "" && c.awaitedApproval().Workflow == workflow && (now != stepAsked || !c.hasStep(now)) {
			c.addStep(now, f)
		}
	}
}

// A call that needs a person's approval must not be allowed without one
// (AH-C-042). What stands behind a recorded allow is on record, too; where there is
// no recorded allow, and in recordings, which have no record of approvals, what the
// call's events claim counts.

// checkAnnouncedApproval judges the announcement of a call.
func (ap *approvals) checkAnnouncedApproval(c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre || !f.NeedsHuman || f.VerdictClaim.Verdict != events.Allow || f.Approval.HasStatus(fact.StatusApproved) || ap.isApprovedOnRecord(c) {
		return
	}
	if d := c.directVerdict().recorded; ap.opts.fromRecording || d == nil || d.Verdict != events.Allow {
		ap.findings.reportCheck("AH-C-042", c, f, findingFrom(f.EventID))
	}
}

// checkExecutedApproval judges the execution of a call that had been allowed.
func (ap *approvals) checkExecutedApproval(c *call, f *fact.Fact, verdict effectiveVerdict) {
	if c.needsHuman && !ap.opts.fromRecording && verdict.recorded != nil && !ap.isApprovedOnRecord(c) {
		ap.findings.reportCheck("AH-C-042", c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withText("no approval is on record"))
	}
}

// isApprovedOnRecord reports whether one of the recorded verdicts on a call rests on an
// approval, or waited for one that was given since. A call without any is judged by
// those on the one that it tries again.
func (ap *approvals) isApprovedOnRecord(c *call) bool {
	for depth := 0; len(c.decisions) == 0 && c.retriedCall != nil && depth < maxRetryChain; depth++ {
		c = c.retriedCall.expand()
	}
	return slices.ContainsFunc(c.decisions, func(d fact.RecordedVerdict) bool {
		if d.Approval == nil {
			return false
		}
		w, _ := ap.statuses.Get(workflowKey{c.session.Key.Tenant, fact.SumOf(d.Approval.Workflow)})
		return isGranted(d.Approval.Status) || isGranted(w.status)
	})
}

// isGranted reports whether an approval of a status was given.
func isGranted(status string) bool {
	return status == fact.StatusApproved || status == fact.StatusConsumed
}

// checkIgnoredApproval: a request came when its approval had been on record for long, and
// was told to wait for that very approval (AH-C-051). What is asked for again
// while a reviewer decides may cross the decision.
func (ap *approvals) checkIgnoredApproval(f *fact.Fact) {
	if !rowOf(f.Protocol).rulesApprovals {
		return
	}
	waits := f.Decision.Approval.ValueOrZero()
	if waits.Workflow == "" || waits.Status != fact.StatusPending || f.DecisionExtras == nil || f.DecisionExtras.Received.IsZero() {
		return
	}
	w, known := ap.statuses.Get(workflowKey{f.Key.Tenant, fact.SumOf(waits.Workflow)})
	if known && w.status == fact.StatusApproved && f.DecisionExtras.Received.After(w.at.Add(fact.RecommendedVerdictWait)) {
		ap.findings.ReportSessionFinding(f, f.Origin, fact.SingleEventFinding("AH-C-051", "", f))
	}
}

// judgeApprovalClaim compares the claimed approval with the workflows on record. A
// workflow must be one that the call waits for or was allowed by (AH-C-104,
// AH-C-105), and is approved when a decision or its own record says so (AH-C-105).
func (ap *approvals) judgeApprovalClaim(c *call, f *fact.Fact) {
	a := c.claims.approval
	if a == nil || len(c.decisions) == 0 && !ap.opts.RequireVerdict {
		return
	}
	if a.Workflow != "" && !c.waitsForWorkflow(a.Workflow) {
		ap.judgeStrangeWorkflow(c, f, a)
		return
	}
	verdict := c.effectiveVerdict()
	allowed := verdict.recorded != nil && verdict.recorded.Verdict == events.Allow
	onlyReferred := a.Workflow == "" && c.claims.namesDecision // see judgeReference
	if a.HasStatus(fact.StatusApproved) && !allowed && !onlyReferred && !ap.isApprovedOnRecord(c) && c.claims.reportOnce(claimedApprovalKind) {
		ap.findings.reportCheck("AH-C-105", c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withText("the verdict on record still waits for it"))
	}
}

// judgeStrangeWorkflow: the claimed workflow is none of the call's own.
func (ap *approvals) judgeStrangeWorkflow(c *call, f *fact.Fact, a *fact.Approval) {
	w := ap.findWorkflow(c.session.Key.Tenant, a.Workflow)
	spec := findingFrom(c.firstEvent(), f.EventID)
	digest := ""
	if d := c.lastDecision(); d != nil {
		spec.withVerdict(effectiveVerdict{recorded: d})
		digest = d.ArgsDigest
	}
	if w == nil {
		_, recorded := ap.statuses.Get(workflowKey{c.session.Key.Tenant, fact.SumOf(a.Workflow)})
		waits := a.HasStatus(fact.StatusPending) && c.waitsForUnnamed()
		if !recorded && !waits && c.claims.reportOnce(claimedApprovalKind) {
			ap.findings.reportCheck("AH-C-105", c, f, spec.withCase(caseNoWorkflow).withText("it names a workflow that is not on record"))
		}
		return
	}
	caseOf, what := w.callMismatch(c, digest)
	if caseOf == "" && !w.coversCall(c) {
		caseOf, what = caseOtherCall, "it names the workflow of another call, which this one does not say to try again"
	}
	switch {
	case caseOf != "" && c.claims.reportOnce(claimedApprovalKind):
		ap.findings.reportCheck("AH-C-104", c, f, spec.withSeq(w.seq).withCase(caseClaim+" "+caseOf).withText(what))
	case caseOf == "" && a.HasStatus(fact.StatusApproved) && !ap.isWorkflowApproved(c.session.Key.Tenant, a) && c.claims.reportOnce(claimedApprovalKind):
		ap.findings.reportCheck("AH-C-105", c, f, spec.withSeq(w.seq).withText("the verdict on record still waits for it"))
	}
}

// isWorkflowApproved reports whether the record of a workflow says that it was approved.
func (ap *approvals) isWorkflowApproved(tenant string, a *fact.Approval) bool {
	recorded, _ := ap.statuses.Get(workflowKey{tenant, fact.SumOf(a.Workflow)})
	if isGranted(recorded.status) {
		return true
	}
	w := ap.findWorkflow(tenant, a.Workflow)
	return w != nil && w.usedBy != 0
}

// checkUnnamedApproval: what ran after an approval must say which: the workflow and,
// where a decision used it up, that decision (AH-C-081).
func (ap *approvals) checkUnnamedApproval(c *call, f *fact.Fact) {
	if !rowOf(f.Protocol).rulesApprovals {
		return
	}
	for _, d := range c.decisions {
		a := d.Approval.ValueOrZero()
		used := d.Verdict == events.Allow && isGranted(a.Status)
		switch {
		case a.Workflow == "":
		case f.Approval.ValueOrZero().Workflow == "":
			ap.findings.reportCheck("AH-C-081", c, f, findingFrom(c.firstEvent(), f.EventID))
			return
		case used && d.Id != "" && f.DecisionRef == "" && f.ReceiptDecisionID == "":
			ap.findings.reportCheck("AH-C-081", c, f, findingFrom(c.firstEvent(), f.EventID).withText("decision_ref is missing"))
			return
		}
	}
}

// checkResumePolicy: a call that was put off must come back as its resume policy says
// (AH-C-106).
func (ap *approvals) checkResumePolicy(c *call, f *fact.Fact) {
	if f.Kind != fact.KindDecision || f.EventID == "" || !rowOf(f.Protocol).rulesApprovals {
		return
	}
	workflow := f.Decision.Approval.ValueOrZero().Workflow
	if workflow == "" {
		return
	}
	for _, d := range c.decisions {
		p := d.Approval.ValueOrZero()
		if p.ResumePolicy == resumeSameEvent && p.Workflow == workflow && d.EventID != "" && d.EventID != f.EventID {
			ap.findings.reportCheck("AH-C-106", c, f, findingFrom(d.EventID, f.EventID).withVerdict(effectiveVerdict{recorded: &d}).withText("it came back as another event"))
			return
		}
	}
}

// Cases of AH-C-077.
const (
	caseSameTarget = "target"
	caseDenied     = "denied"
	caseDeniedRan  = "ran"
)

// checkApprovalBypass: what waits for an approval, or was denied, must not be let through
// under another id or another name (AH-C-077, H-09).
func (j *judge) checkApprovalBypass(s *session, c *call, f *fact.Fact) {
	if f.Kind == fact.KindRequest || f.Approval.HasStatus(fact.StatusApproved) {
		return
	}
	if (len(s.open) < 2 || !s.sawAsk) && !s.sawDenial {
		return
	}
	// The verdict itself says when it rests on an approval, which it uses up.
	if c.directVerdict().verdict != events.Allow || f.Decision != nil && (f.Decision.Approval.HasStatus(fact.StatusApproved) || f.Decision.Approval.HasStatus(fact.StatusConsumed)) {
		return
	}
	if earlier := s.findOpen(func(o *call) bool { return o.awaitsApproval(j.approvals) && o.isEquivalent(c) }); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent()).withEventsOf(earlier))
		return
	}
	if earlier := s.findOpen(func(o *call) bool {
		return o.awaitsApproval(j.approvals) && o.hasOtherIdentity(c) && o.targetSum == c.targetSum && c.targetSum != (fact.Sum{})
	}); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent()).withEventsOf(earlier).withCase(caseSameTarget).withText("it is the same action on the same resource"))
		return
	}
	if earlier := s.findDeniedEquivalent(c); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent()).withEventsOf(earlier).withCase(caseDenied).
			withText("it had been denied, and was allowed under another id or name").withSeverity(events.SeverityLow))
	}
}

// checkDeniedBypass: what ran without a verdict had been denied under another id or
// name.
func (j *judge) checkDeniedBypass(c *call, f *fact.Fact) {
	if !rowOf(f.Protocol).rulesApprovals {
		return
	}
	if earlier := c.session.findDeniedEquivalent(c); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent(), f.EventID).withEventsOf(earlier).withCase(caseDeniedRan).
			withText("it had been denied, and ran under another id or name without a verdict"))
	}
}

// findDeniedEquivalent is the youngest call before c that is equivalent to it and was denied.
func (s *session) findDeniedEquivalent(c *call) *call {
	if !s.sawDenial {
		return nil
	}
	return s.findCall(func(o *call) bool { return o.order < c.order && o != c.retriedCall && o.directlyDenied() },
		func(o *call) bool { return o.isEquivalent(c) })
}

// awaitsApproval reports whether a call still waits for an approval.
func (c *call) awaitsApproval(record *approvals) bool {
	verdict := c.effectiveVerdict()
	if verdict.verdict != events.Ask && verdict.verdict != events.Defer {
		return false
	}
	if verdict.recorded != nil {
		return !record.isApprovedOnRecord(c)
	}
	return !c.eventApproval.HasStatus(fact.StatusApproved)
}

// hasOtherIdentity tells calls apart that go by different ids or tools.
func (c *call) hasOtherIdentity(o *call) bool {
	return c != o && (c.group != o.group || c.tool != o.tool)
}

// isEquivalent reports whether two calls under different ids or names are the same
// tool with the same arguments (the strict key of H-09).
func (c *call) isEquivalent(o *call) bool {
	return c.hasOtherIdentity(o) && c.hasSameTool(o) && fact.CompareArguments(&c.args, &o.args) == fact.ArgsEqual
}

// hasSameTool: two names are one tool if its canonical name says so, or if they
// differ in nothing but case and punctuation.
func (x *details) hasSameTool(o *call) bool {
	return x.tool == o.tool || (x.canonicalTool != "" && x.canonicalTool == o.canonicalTool) ||
		(strings.EqualFold(x.tool, o.tool) || normaliseToolName(x.tool) == normaliseToolName(o.tool))
}

// normaliseToolName is a tool's name without what the same name may be written with.
func normaliseToolName(tool string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, tool)
}

// waitsForWorkflow reports whether a decision on the call, or on one that it tries again,
// names a workflow.
func (c *call) waitsForWorkflow(workflow string) bool {
	for depth := 0; c != nil && depth < maxRetryChain; depth++ {
		if slices.ContainsFunc(c.expand().decisions, func(d fact.RecordedVerdict) bool { return d.Approval.ValueOrZero().Workflow == workflow }) {
			return true
		}
		c = c.retriedCall
	}
	return false
}

// waitsForUnnamed reports whether the recorded verdict waits for an approval and does not
// say for which, as the decisions of recordings may.
func (x *details) waitsForUnnamed() bool {
	d := x.lastDecision()
	return d != nil && nativeVerdict(d.Verdict) == events.Ask && d.Approval.ValueOrZero().Workflow == ""
}

// Cases of AH-C-105.
const (
	caseNoWorkflow = "workflow"
	caseNoDecision = "decision"
)

// missingRecordField says what the record of a resolved approval lacks (AH-C-108), "" if
// nothing. Records that do not count their steps are not the admitter's.
func missingRecordField(a events.Approval) string {
	if a.Step == 0 || a.Refused != "" || (a.Status != fact.StatusApproved && a.Status != "denied") {
		return ""
	}
	switch {
	case a.Approver == "" && len(a.Approvers) == 0:
		return "who"
	case a.DecidedAt.IsZero():
		return "when"
	case a.Reason == "":
		return "why"
	case a.ActionID == "" && a.ActionDigest == "":
		return "what"
	}
	return ""
}

func (c *Correlator) checkApprovalRecord(m events.LogMessage, p subject.Parsed, a events.Approval) {
	f := fact.Unread(m, p)
	f.Origin = fact.OriginOf(a.Tenant, a.Source, a.Session)
	c.engine.calls.recordApprovalStep(f, a)
	if what := missingRecordField(a); what != "" {
		c.engine.findings.emitFinding(checkRules["AH-C-108"], nil, f, findingFrom().withContent(f.ContentSum).withCase(what).withText("it does not say "+what))
	}
}

// applyApproval takes an approval record. Approvals do not change what stands: an
// approved call is decided again, and it is the decision that counts.
func (c *Correlator) applyApproval(m events.LogMessage, p subject.Parsed) {
	a, err := events.DecodeRecord[events.Approval](m.Body)
	if err != nil {
		c.engine.findings.reportInvalid(fact.Unread(m, p), fact.DecodeErrorText(err))
		return
	}
	c.engine.approvals.recordApprovalStatus(workflowKey{fact.TokenOf(p.Tenant), fact.SumOf(a.WorkflowID)}, a.Status, m.Time)
	c.checkApprovalRecord(m, p, a)
}
