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

// approvals holds the status of each approval workflow on record, and what decisions opened it
// for. maxApprovals bounds both tables.
type approvals struct {
	opts      *engineOptions `snapshot:"-"` // not part of a snapshot
	findings  *findings      `snapshot:"-"` // another part
	statuses  *tables.Shared[fact.Sum, approvalStatus]
	workflows *tables.Shared[fact.Sum, *workflow]
}

func newApprovals(o *engineOptions, fs *findings) *approvals {
	return &approvals{opts: o, findings: fs, statuses: tables.NewShared[fact.Sum, approvalStatus](maxApprovals), workflows: tables.NewShared[fact.Sum, *workflow](maxApprovals)}
}

// approvalStatus is the status of a workflow, and the broker's time since which it has that
// status.
type approvalStatus struct {
	status string
	at     time.Time
}

// recordApprovalStatus records the status of a workflow.
func (ap *approvals) recordApprovalStatus(tenant string, workflow fact.Sum, status string, at time.Time) {
	if w, known := ap.statuses.Get(tenant, workflow); !known || w.status != status {
		ap.statuses.Put(tenant, workflow, approvalStatus{status, at})
	}
}

// checkApprovalEvent compares an approval event with the record of its workflow (AH-C-111).
func (ap *approvals) checkApprovalEvent(w *protocolSession, f *fact.Fact) {
	if f.Kind != fact.KindApproval || f.Approval.ValueOrZero().Workflow == "" {
		return
	}
	recorded, known := ap.statuses.Get(f.Key.Tenant, fact.SumOf(f.Approval.Workflow))
	if known && isGranted(recorded.status) != f.Approval.HasStatus(fact.StatusApproved) {
		ap.findings.ReportSessionFinding(f, *w.origin, fact.SingleEventFinding("AH-C-111", "", f))
	}
}

// approvalSteps maps the acts of approval records to timeline steps. A vote that does not
// settle a workflow is no step. An approval is used up by a decision, which is a step of its
// own.
var approvalSteps = map[string]step{
	"open": stepAsked, "join": stepAsked, "approve": stepApproved, "deny": stepRefused, "cancel": stepCancelled, "expire": stepExpired,
}

// recordApprovalStep adds a record of an approval to the timelines of its calls. It emits no
// record of a call: the decision that follows will.
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

// A call that needs a person's approval must not be allowed without one (AH-C-042). After a
// recorded allow, the recorded approvals count. Without one, and in recordings, which have no
// approval records, the claims of the call's events count.

// checkAnnouncedApproval checks a call at its announcement.
func (ap *approvals) checkAnnouncedApproval(c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre || !f.NeedsHuman || f.VerdictClaim.Verdict != events.Allow || f.Approval.HasStatus(fact.StatusApproved) || ap.isApprovedOnRecord(c) {
		return
	}
	if d := c.directVerdict().recorded; ap.opts.fromRecording || d == nil || d.Verdict != events.Allow {
		ap.findings.reportCheck("AH-C-042", c, f, findingFrom(f.EventID))
	}
}

// checkExecutedApproval checks the execution of an allowed call.
func (ap *approvals) checkExecutedApproval(c *call, f *fact.Fact, verdict effectiveVerdict) {
	if c.needsHuman && !ap.opts.fromRecording && verdict.recorded != nil && !ap.isApprovedOnRecord(c) {
		ap.findings.reportCheck("AH-C-042", c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(verdict).withText("no approval is on record"))
	}
}

// isApprovedOnRecord reports whether an approval on record stands behind a decision on the
// call, given before it or since. For a call without decisions, the decisions on the call that
// it retries count.
func (ap *approvals) isApprovedOnRecord(c *call) bool {
	return slices.ContainsFunc(c.nearestOnRecord().decisions, func(d fact.RecordedVerdict) bool {
		if d.Approval == nil {
			return false
		}
		w, _ := ap.statuses.Get(c.session.Key.Tenant, fact.SumOf(d.Approval.Workflow))
		return isGranted(d.Approval.Status) || isGranted(w.status)
	})
}

// openRequest is the status on record of the approval that a call waits for which has not begun;
// "" if it waits for none.
func (ap *approvals) openRequest(c *call) string {
	verdict := c.effectiveVerdict()
	if verdict.recorded == nil || nativeVerdict(verdict.verdict) != events.Ask || c.hasPost || c.invokedEvent != "" {
		return ""
	}
	w, _ := ap.statuses.Get(c.session.Key.Tenant, fact.SumOf(verdict.recorded.Approval.ValueOrZero().Workflow))
	return w.status
}

// isOver reports whether a workflow has expired (AH-C-103) or was cancelled.
func (ap *approvals) isOver(tenant string, a fact.Approval, now time.Time) bool {
	w, _ := ap.statuses.Get(tenant, fact.SumOf(a.Workflow))
	return w.status == fact.StatusExpired || w.status == fact.StatusCancelled || !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt)
}

// isGranted reports whether the status means that the approval was given.
func isGranted(status string) bool {
	return status == fact.StatusApproved || status == fact.StatusConsumed
}

// checkIgnoredApproval reports a decision to wait for an approval that was on record well
// before the request came (AH-C-051). A request that crosses the reviewer's decision is no
// finding.
func (ap *approvals) checkIgnoredApproval(f *fact.Fact) {
	if !rowOf(f.Protocol).resumesByRule {
		return
	}
	waits := f.Decision.Approval.ValueOrZero()
	if waits.Workflow == "" || waits.Status != fact.StatusPending || f.DecisionExtras == nil || f.DecisionExtras.Received.IsZero() {
		return
	}
	w, known := ap.statuses.Get(f.Key.Tenant, fact.SumOf(waits.Workflow))
	if known && w.status == fact.StatusApproved && f.DecisionExtras.Received.After(w.at.Add(fact.RecommendedVerdictWait)) {
		ap.findings.ReportSessionFinding(f, f.Origin, fact.SingleEventFinding("AH-C-051", "", f))
	}
}

// judgeApprovalClaim compares a claimed approval with the workflows on record. The call must
// wait for the claimed workflow, or have been allowed by it (AH-C-104, AH-C-105). The workflow
// is approved if a decision or its own record says so (AH-C-105).
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

// judgeStrangeWorkflow judges a claimed workflow that is not the call's own.
func (ap *approvals) judgeStrangeWorkflow(c *call, f *fact.Fact, a *fact.Approval) {
	w := ap.findWorkflow(c.session.Key.Tenant, a.Workflow)
	spec := findingFrom(c.firstEvent(), f.EventID)
	digest := ""
	if d := c.lastDecision(); d != nil {
		spec.withVerdict(effectiveVerdict{recorded: d})
		digest = d.ArgsDigest
	}
	if w == nil {
		_, recorded := ap.statuses.Get(c.session.Key.Tenant, fact.SumOf(a.Workflow))
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

// isWorkflowApproved reports whether the claimed workflow is approved on record.
func (ap *approvals) isWorkflowApproved(tenant string, a *fact.Approval) bool {
	recorded, _ := ap.statuses.Get(tenant, fact.SumOf(a.Workflow))
	if isGranted(recorded.status) {
		return true
	}
	w := ap.findWorkflow(tenant, a.Workflow)
	return w != nil && w.usedBy != 0
}

// checkUnnamedApproval reports a completion after an approval that does not name its workflow,
// or not the decision that used it up (AH-C-081). An ask or defer that a better request ended without an
// approval leaves nothing to name.
func (ap *approvals) checkUnnamedApproval(c *call, f *fact.Fact) {
	if !rowOf(f.Protocol).resumesByRule {
		return
	}
	for _, d := range c.decisions {
		a := d.Approval.ValueOrZero()
		used := d.Verdict == events.Allow && isGranted(a.Status)
		switch {
		case a.Workflow == "" || !isGranted(a.Status) && !ap.isWorkflowApproved(c.session.Key.Tenant, &a):
		case f.Approval.ValueOrZero().Workflow == "":
			ap.findings.reportCheck("AH-C-081", c, f, findingFrom(c.firstEvent(), f.EventID))
			return
		case used && d.ID != "" && f.DecisionRef == "" && f.ReceiptDecisionID == "":
			ap.findings.reportCheck("AH-C-081", c, f, findingFrom(c.firstEvent(), f.EventID).withText("decision_ref is missing"))
			return
		}
	}
}

// checkResumePolicy reports a deferred call that was not resumed as its resume policy says
// (AH-C-106).
func (ap *approvals) checkResumePolicy(c *call, f *fact.Fact) {
	if f.Kind != fact.KindDecision || f.EventID == "" || !rowOf(f.Protocol).resumesByRule {
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

// checkApprovalBypass reports a call that was allowed although the same call, under another id
// or name, waits for an approval or was denied (AH-C-077, H-09).
func (j *judge) checkApprovalBypass(s *session, c *call, f *fact.Fact) {
	if f.Kind == fact.KindRequest || f.Approval.HasStatus(fact.StatusApproved) {
		return
	}
	if (len(s.open) < 2 || !s.sawAsk) && !s.sawDenial {
		return
	}
	// A verdict that rests on an approval says so, and uses it up.
	if c.directVerdict().verdict != events.Allow || f.Decision != nil && (f.Decision.Approval.HasStatus(fact.StatusApproved) || f.Decision.Approval.HasStatus(fact.StatusConsumed)) {
		return
	}
	if earlier := s.findOpen(func(o *call) bool { return o.awaitsApproval(j.approvals, f.At) && o.isEquivalent(c) }); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent()).withEventsOf(earlier))
		return
	}
	if earlier := s.findOpen(func(o *call) bool {
		return o.awaitsApproval(j.approvals, f.At) && o.hasOtherIdentity(c) && o.targetSum == c.targetSum && c.targetSum != (fact.Sum{})
	}); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent()).withEventsOf(earlier).withCase(caseSameTarget).withText("it is the same action on the same resource"))
		return
	}
	if earlier := s.findDeniedEquivalent(c); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent()).withEventsOf(earlier).withCase(caseDenied).
			withText("it had been denied, and was allowed under another id or name").withSeverity(events.SeverityLow))
	}
}

// checkDeniedBypass reports a call that ran without a verdict, and was denied under another id
// or name.
func (j *judge) checkDeniedBypass(c *call, f *fact.Fact) {
	if !rowOf(f.Protocol).resumesByRule {
		return
	}
	if earlier := c.session.findDeniedEquivalent(c); earlier != nil {
		j.findings.reportCheck("AH-C-077", c, f, findingFrom(earlier.firstEvent(), c.firstEvent(), f.EventID).withEventsOf(earlier).withCase(caseDeniedRan).
			withText("it had been denied, and ran under another id or name without a verdict"))
	}
}

// findDeniedEquivalent is the youngest denied call before c that is equivalent to it.
func (s *session) findDeniedEquivalent(c *call) *call {
	if !s.sawDenial {
		return nil
	}
	return s.findCall(func(o *call) bool { return o.order < c.order && o != c.retriedCall && o.directlyDenied() },
		func(o *call) bool { return o.isEquivalent(c) })
}

// awaitsApproval reports whether the call still waits for an approval at a time. What is denied waits until its
// time is over, as at the admitter.
func (c *call) awaitsApproval(record *approvals, now time.Time) bool {
	verdict := c.effectiveVerdict()
	if verdict.verdict != events.Ask && verdict.verdict != events.Defer {
		return false
	}
	awaited, approved := c.awaitedApproval(), c.eventApproval.HasStatus(fact.StatusApproved)
	if verdict.recorded != nil {
		awaited, approved = verdict.recorded.Approval.ValueOrZero(), record.isApprovedOnRecord(c)
	}
	return !approved && !record.isOver(c.session.Key.Tenant, awaited, now)
}

// hasOtherIdentity reports whether o is another call, under another id or with another tool.
func (c *call) hasOtherIdentity(o *call) bool {
	return c != o && (c.group != o.group || c.tool != o.tool)
}

// isEquivalent reports whether o has another id or name, and the same tool and arguments (the
// strict key of H-09).
func (c *call) isEquivalent(o *call) bool {
	return c.hasOtherIdentity(o) && c.hasSameTool(o) && fact.CompareArguments(&c.args, &o.args) == fact.ArgsEqual
}

// hasSameTool reports whether two tool names mean one tool: their canonical names are equal,
// or they differ only in case and punctuation.
func (x *details) hasSameTool(o *call) bool {
	return x.tool == o.tool || (x.canonicalTool != "" && x.canonicalTool == o.canonicalTool) ||
		(strings.EqualFold(x.tool, o.tool) || normaliseToolName(x.tool) == normaliseToolName(o.tool))
}

// normaliseToolName is a tool's name in lower case, without punctuation.
func normaliseToolName(tool string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, tool)
}

// waitsForWorkflow reports whether a decision on the call, or on a call that it retries, names
// a workflow.
func (c *call) waitsForWorkflow(workflow string) bool {
	for depth := 0; c != nil && depth < maxRetryChain; depth++ {
		if slices.ContainsFunc(c.expand().decisions, func(d fact.RecordedVerdict) bool { return d.Approval.ValueOrZero().Workflow == workflow }) {
			return true
		}
		c = c.retriedCall
	}
	return false
}

// waitsForUnnamed reports whether the recorded verdict waits for an approval without naming a
// workflow. Decisions in recordings may.
func (x *details) waitsForUnnamed() bool {
	d := x.lastDecision()
	return d != nil && nativeVerdict(d.Verdict) == events.Ask && d.Approval.ValueOrZero().Workflow == ""
}

// Cases of AH-C-105.
const (
	caseNoWorkflow = "workflow"
	caseNoDecision = "decision"
)

// missingRecordField is what the record of a resolved approval lacks (AH-C-108); "" if it is
// complete. A record without a step number is not the admitter's.
func missingRecordField(a events.Approval) string {
	if a.Step == 0 || a.Refused != "" || (a.Status != fact.StatusApproved && a.Status != fact.StatusDenied) {
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
	f := fact.EnvelopeFact(m, p)
	f.Origin = fact.OriginOf(a.Tenant, a.Source, a.Session)
	c.engine.calls.recordApprovalStep(f, a)
	if what := missingRecordField(a); what != "" {
		c.engine.findings.emitFinding(checkRules["AH-C-108"], nil, f, findingFrom().withContent(f.ContentSum).withCase(what).withText("it does not say "+what))
	}
}

// applyApproval applies an approval record. As with a decision, a vouched key must have signed it and
// its subject must match; otherwise it is a finding and has no other effect. It changes no verdict: an
// approved call is decided again, and that decision counts.
func (c *Correlator) applyApproval(m events.LogMessage, p subject.Parsed) {
	a, err := events.DecodeRecord[events.Approval](m.Body)
	if err != nil {
		c.engine.findings.reportInvalid(fact.EnvelopeFact(m, p), fact.DecodeErrorText(err))
		return
	}
	what := c.signatureDefect(&m, fact.VerifiedSignature{})
	if what == "" && (fact.TokenOf(p.Tenant) != subject.Escape(a.Tenant) || p.State != a.Status || fact.TokenOf(p.Workflow) != subject.Escape(a.WorkflowID)) {
		what = "tenant, status or workflow of its subject differ"
	}
	if what != "" {
		f := fact.EnvelopeFact(m, p)
		f.Source, f.Key.Source, f.Session, f.Key.Session = fact.BoundID(a.Source), subject.Escape(a.Source), fact.BoundID(a.Session), subject.Escape(a.Session)
		c.reportForged(f, caseApproval, what)
		return
	}
	c.engine.approvals.recordApprovalStatus(fact.TokenOf(p.Tenant), fact.SumOf(a.WorkflowID), a.Status, m.Time)
	c.checkApprovalRecord(m, p, a)
}
