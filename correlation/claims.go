package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// What a publisher's events say of a call's verdict and approval is a claim. It is
// held against what is recorded, whether or not the call ran: the verdict at once,
// the approval when the next decision is there or the call is over, as its record
// may come until then. Without any record there is nothing to compare, except that
// Options.RequireVerdict says that there must be one.

// callClaims is what the events of a call claim.
type callClaims struct {
	verdict       verdictClaim
	approval      *approval // nil: nothing
	namesDecision bool      // the event with the approval says by which decision it was given
	reported      claimKinds
}

// claimKinds are the kinds of claims that a finding was made of; one of each is
// enough for a call.
type claimKinds uint8

const (
	claimedVerdictKind claimKinds = 1 << iota
	unrecordedVerdictKind
	claimedApprovalKind
)

func (s *callClaims) markReportedIf(is bool, kind claimKinds) {
	if is {
		s.reported |= kind
	}
}

// reportOnce tells whether a kind of claim is to be reported now.
func (s *callClaims) reportOnce(kind claimKinds) bool {
	before := s.reported
	s.reported |= kind
	return before&kind == 0
}

// recordClaims takes the claims of an event. Requests are no claims about what was
// decided on them, and what stops a call claims no more than that.
func (s *callClaims) recordClaims(f *fact) {
	if f.kind != kindPre && f.kind != kindPost && f.kind != kindAdmissionReply {
		return
	}
	if f.verdictClaim.verdict != "" {
		s.verdict = f.verdictClaim
	}
	if f.approval != nil {
		s.approval, s.namesDecision = f.approval, f.decisionRef != ""
	}
}

// judgeCallClaims holds what a call's events have claimed so far against the record.
func (m *machine) judgeCallClaims(c *call, f *fact) {
	if c.claims == (callClaims{}) || c.state == events.CallOrphaned {
		return
	}
	if f.kind == kindDecision {
		m.retractUnrecordedClaim(c, f)
	}
	m.judgeVerdictClaim(c, f)
	if f.kind == kindDecision || !c.isOpen() {
		m.judgeUnrecorded(c, f)
		m.judgeApprovalClaim(c, f)
	}
}

// judgeVerdictClaim compares the claimed verdict with the recorded one; a claim
// may be stricter, never looser (AH-C-082).
func (m *machine) judgeVerdictClaim(c *call, f *fact) {
	said := c.claims.verdict
	d := c.decisionFor(said.seq)
	if d == nil || said.verdict == "" || said.verdict.Strictness() >= nativeVerdict(d.verdict).Strictness() || !c.claims.reportOnce(claimedVerdictKind) {
		return
	}
	detail := caseClaimNotRun
	if c.execSeq != 0 {
		detail = caseClaim
	}
	m.findings.reportRuleFinding(ruleForged, c, f, findingFrom(c.firstEvent(), f.eventID).withVerdict(effectiveVerdict{recorded: d}).withCase(detail))
}

// judgeUnrecorded: a call that did not run was over before any verdict on it was
// recorded, and its events claim one. What ran without one is executed_without_verdict.
func (m *machine) judgeUnrecorded(c *call, f *fact) {
	v := c.claims.verdict.verdict
	if !m.opts.RequireVerdict || c.execSeq != 0 || len(c.decisions) > 0 || v == "" || v == events.Deny || !c.claims.reportOnce(unrecordedVerdictKind) {
		return
	}
	m.findings.reportRetractable(ruleForged, c, f, findingFrom(c.firstEvent(), f.eventID).withCase(caseClaimAlone).withText(string(v)).withSeverity(events.SeverityHigh))
}

// retractUnrecordedClaim takes that back: the verdict was recorded later.
func (m *machine) retractUnrecordedClaim(c *call, f *fact) {
	if c.claims.reported&unrecordedVerdictKind == 0 || c.execSeq != 0 {
		return
	}
	for _, made := range c.takeRetractable(ForgedRecord, "AH-C-082") {
		back := findingFrom(c.firstEvent(), f.eventID).withSeq(f.seq).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).retracting(made.id)
		if made.rule == ForgedRecord {
			m.findings.reportRuleFinding(ruleForged, c, f, back)
			continue
		}
		m.findings.emitFinding(checkRules[made.rule], c, f, back.withText("the verdict was recorded later"))
	}
}

// judgeApprovalClaim compares the claimed approval with the workflows on record. A
// workflow must be one that the call waits for or was allowed by (AH-C-104,
// AH-C-105), and is approved when a decision or its own record says so (AH-C-105).
func (m *machine) judgeApprovalClaim(c *call, f *fact) {
	a := c.claims.approval
	if a == nil || len(c.decisions) == 0 && !m.opts.RequireVerdict {
		return
	}
	if a.workflow != "" && !c.waitsForWorkflow(a.workflow) {
		m.judgeStrangeWorkflow(c, f, a)
		return
	}
	st := c.effectiveVerdict()
	allowed := st.recorded != nil && st.recorded.verdict == events.Allow
	onlyReferred := a.workflow == "" && c.claims.namesDecision // see judgeReference
	if a.hasStatus(statusApproved) && !allowed && !onlyReferred && !m.isApprovedOnRecord(c) && c.claims.reportOnce(claimedApprovalKind) {
		m.findings.reportCheckFinding("AH-C-105", c, f, findingFrom(c.firstEvent(), f.eventID).withVerdict(st).withText("the verdict on record still waits for it"))
	}
}

// waitsForWorkflow tells whether a decision on the call, or on one that it tries again,
// names a workflow.
func (c *call) waitsForWorkflow(workflow string) bool {
	for depth := 0; c != nil && depth < maxRetryChain; depth++ {
		if slices.ContainsFunc(c.expand().decisions, func(d recordedVerdict) bool { return d.approval.valueOrZero().workflow == workflow }) {
			return true
		}
		c = c.retriedCall
	}
	return false
}

// judgeStrangeWorkflow: the claimed workflow is none of the call's own.
func (m *machine) judgeStrangeWorkflow(c *call, f *fact, a *approval) {
	w := m.findWorkflow(c.session.key.tenant, a.workflow)
	v := findingFrom(c.firstEvent(), f.eventID)
	digest := ""
	if d := c.lastDecision(); d != nil {
		v.withVerdict(effectiveVerdict{recorded: d})
		digest = d.argsDigest
	}
	if w == nil {
		_, recorded := m.approvalIndex.get(workflowKey{c.session.key.tenant, sumOf(a.workflow)})
		waits := a.hasStatus(statusPending) && c.waitsForUnnamed()
		if !recorded && !waits && c.claims.reportOnce(claimedApprovalKind) {
			m.findings.reportCheckFinding("AH-C-105", c, f, v.withCase(caseNoWorkflow).withText("it names a workflow that is not on record"))
		}
		return
	}
	caseOf, what := w.callMismatch(c, digest)
	if caseOf == "" && !w.coversCall(c) {
		caseOf, what = caseOtherCall, "it names the workflow of another call, which this one does not say to try again"
	}
	switch {
	case caseOf != "" && c.claims.reportOnce(claimedApprovalKind):
		m.findings.reportCheckFinding("AH-C-104", c, f, v.withSeq(w.seq).withCase(caseClaim+" "+caseOf).withText(what))
	case caseOf == "" && a.hasStatus(statusApproved) && !m.isWorkflowApproved(c.session.key.tenant, a) && c.claims.reportOnce(claimedApprovalKind):
		m.findings.reportCheckFinding("AH-C-105", c, f, v.withSeq(w.seq).withText("the verdict on record still waits for it"))
	}
}

// waitsForUnnamed tells whether the recorded verdict waits for an approval and does not
// say for which, as the decisions of recordings may.
func (c *call) waitsForUnnamed() bool {
	d := c.lastDecision()
	return d != nil && nativeVerdict(d.verdict) == events.Ask && d.approval.valueOrZero().workflow == ""
}

// Cases of AH-C-105.
const (
	caseNoWorkflow = "workflow"
	caseNoDecision = "decision"
)

// isWorkflowApproved tells whether the record of a workflow says that it was approved.
func (m *machine) isWorkflowApproved(tenant string, a *approval) bool {
	recorded, _ := m.approvalIndex.get(workflowKey{tenant, sumOf(a.workflow)})
	if isGranted(recorded.status) {
		return true
	}
	w := m.findWorkflow(tenant, a.workflow)
	return w != nil && w.usedBy != 0
}

// judgeReference: an event says by which decision its call was approved. That must
// be a decision on this call, or on one that it tries again.
func (m *machine) judgeReference(c *call, f *fact) {
	if f.kind != kindPre && f.kind != kindPost || f.decisionRef == "" || c.state == events.CallOrphaned {
		return
	}
	if len(c.decisions) == 0 && !m.opts.RequireVerdict || len(c.decisions) >= maxCallDecisions || c.hasDecision(f.decisionRef) {
		return
	}
	v := findingFrom(c.firstEvent(), f.eventID)
	made, known := m.receiptHolders.get(receiptKey(f.key.tenant, f.decisionRef))
	if o := c.session.callOfDecision(f.decisionRef); o != nil && o != c || known && made != receiptHolder(f.key, c.group.key) {
		if (f.kind != kindPost || f.effect == noEffect || !known) && c.claims.reportOnce(claimedApprovalKind) { // else it is receipt_reused
			m.findings.reportCheckFinding("AH-C-104", c, f, v.withCase(caseNoDecision).withText("it names a decision on another call"))
		}
		return
	}
	if !c.claims.reportOnce(claimedApprovalKind) {
		return
	}
	id := m.findings.reportCheckFinding("AH-C-105", c, f, v.withCase(caseNoDecision).withText("it names a decision that is not on record"))
	c.addRetractable(referenceRetraction+f.decisionRef, id)
}

// hasDecision tells whether a reference is to a decision on the call or on one that it
// tries again.
func (c *call) hasDecision(reference string) bool {
	for depth := 0; c != nil && depth < maxRetryChain; depth++ {
		if slices.ContainsFunc(c.expand().decisions, func(d recordedVerdict) bool { return d.id == reference || d.approvalRef == reference }) {
			return true
		}
		c = c.retriedCall
	}
	return false
}

// referenceRetraction begins the note of a finding that a decision was not on record.
const referenceRetraction = "AH-C-105 "

// retractUnknownReference takes that back when the decision is there.
func (m *machine) retractUnknownReference(c *call, f *fact) {
	for _, reference := range []string{f.decision.id, f.decision.approvalRef} {
		for _, made := range c.takeRetractable(referenceRetraction + reference) {
			c.claims.reported &^= claimedApprovalKind
			m.findings.reportCheckFinding("AH-C-105", c, f, findingFrom(c.firstEvent(), f.eventID).withSeq(f.seq).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).
				retracting(made.id).withText("the decision was recorded later"))
		}
	}
}
