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

// stated is what the events of a call claim.
type stated struct {
	verdict  claim
	approval *approval // nil: nothing
	referred bool      // the event with the approval says by which decision it was given
	reported reportedClaims
}

// reportedClaims are the kinds of claims that a finding was made of; one of each is
// enough for a call.
type reportedClaims uint8

const (
	reportedVerdict reportedClaims = 1 << iota
	reportedUnrecorded
	reportedApproval
)

func (s *stated) reportedIf(is bool, kind reportedClaims) {
	if is {
		s.reported |= kind
	}
}

// first tells whether a kind of claim is to be reported now.
func (s *stated) first(kind reportedClaims) bool {
	before := s.reported
	s.reported |= kind
	return before&kind == 0
}

// note takes the claims of an event. Requests are no claims about what was
// decided on them, and what stops a call claims no more than that.
func (s *stated) note(f *fact) {
	if f.kind != kindPre && f.kind != kindPost && f.kind != kindReply {
		return
	}
	if f.claim.verdict != "" {
		s.verdict = f.claim
	}
	if f.approval != nil {
		s.approval, s.referred = f.approval, f.reference != ""
	}
}

// judgeClaims holds what a call's events have claimed so far against the record.
func (m *machine) judgeClaims(c *call, f *fact) {
	if c.stated == (stated{}) || c.state == events.CallOrphaned {
		return
	}
	if f.kind == kindDecision {
		m.recordedAfterAll(c, f)
	}
	m.judgeVerdictClaim(c, f)
	if f.kind == kindDecision || !c.open() {
		m.judgeUnrecorded(c, f)
		m.judgeApprovalClaim(c, f)
	}
}

// judgeVerdictClaim compares the claimed verdict with the recorded one; a claim
// may be stricter, never looser (AH-C-082).
func (m *machine) judgeVerdictClaim(c *call, f *fact) {
	said := c.stated.verdict
	d := c.decisionFor(said.seq)
	if d == nil || said.verdict == "" || said.verdict.Strictness() >= native(d.verdict).Strictness() || !c.stated.first(reportedVerdict) {
		return
	}
	detail := detailClaimNotRun
	if c.execSeq != 0 {
		detail = detailClaim
	}
	m.report(ruleForged, c, f, about(c.firstEvent(), f.eventID).proof(standing{ledger: d}).detail(detail))
}

// judgeUnrecorded: a call that did not run was over before any verdict on it was
// recorded, and its events claim one. What ran without one is executed_without_verdict.
func (m *machine) judgeUnrecorded(c *call, f *fact) {
	v := c.stated.verdict.verdict
	if !m.opts.RequireVerdict || c.execSeq != 0 || len(c.decisions) > 0 || v == "" || v == events.Deny || !c.stated.first(reportedUnrecorded) {
		return
	}
	m.excusably(ruleForged, c, f, about(c.firstEvent(), f.eventID).detail(detailClaimAlone).saying(string(v)).grade(events.SeverityHigh))
}

// recordedAfterAll takes that back: the verdict was recorded later.
func (m *machine) recordedAfterAll(c *call, f *fact) {
	if c.stated.reported&reportedUnrecorded == 0 || c.execSeq != 0 {
		return
	}
	for _, made := range c.taken(ForgedRecord, "AH-C-082") {
		back := about(c.firstEvent(), f.eventID).proven(f.seq).detail(detailWithdrawn).grade(events.SeverityInfo).withdrawing(made.id)
		if made.rule == ForgedRecord {
			m.report(ruleForged, c, f, back)
			continue
		}
		m.finding(checkRules[made.rule], c, f, back.saying("the verdict was recorded later"))
	}
}

// judgeApprovalClaim compares the claimed approval with the workflows on record. A
// workflow must be one that the call waits for or was allowed by (AH-C-104,
// AH-C-105), and is approved when a decision or its own record says so (AH-C-105).
func (m *machine) judgeApprovalClaim(c *call, f *fact) {
	a := c.stated.approval
	if a == nil || len(c.decisions) == 0 && !m.opts.RequireVerdict {
		return
	}
	if a.workflow != "" && !c.waitsFor(a.workflow) {
		m.judgeStrangeWorkflow(c, f, a)
		return
	}
	st := c.standing()
	allowed := st.ledger != nil && st.ledger.verdict == events.Allow
	onlyReferred := a.workflow == "" && c.stated.referred // see judgeReference
	if a.is(statusApproved) && !allowed && !onlyReferred && !m.approvedOnRecord(c) && c.stated.first(reportedApproval) {
		m.check("AH-C-105", c, f, about(c.firstEvent(), f.eventID).proof(st).saying("the verdict on record still waits for it"))
	}
}

// waitsFor tells whether a decision on the call, or on one that it tries again,
// names a workflow.
func (c *call) waitsFor(workflow string) bool {
	for depth := 0; c != nil && depth < maxChain; depth++ {
		if slices.ContainsFunc(c.unfold().decisions, func(d verdictRec) bool { return d.pending.value().workflow == workflow }) {
			return true
		}
		c = c.previous
	}
	return false
}

// judgeStrangeWorkflow: the claimed workflow is none of the call's own.
func (m *machine) judgeStrangeWorkflow(c *call, f *fact, a *approval) {
	w := m.workflow(c.session.key.tenant, a.workflow)
	v := about(c.firstEvent(), f.eventID)
	digest := ""
	if d := c.lastDecision(); d != nil {
		v.proof(standing{ledger: d})
		digest = d.digest
	}
	if w == nil {
		_, recorded := m.ledger.get(workflowKey{c.session.key.tenant, sumOf(a.workflow)})
		waits := a.is(statusPending) && c.waitsUnnamed()
		if !recorded && !waits && c.stated.first(reportedApproval) {
			m.check("AH-C-105", c, f, v.detail(detailNoWorkflow).saying("it names a workflow that is not on record"))
		}
		return
	}
	caseOf, what := w.unlike(c, digest)
	if caseOf == "" && !w.covers(c) {
		caseOf, what = detailOtherCall, "it names the workflow of another call, which this one does not say to try again"
	}
	switch {
	case caseOf != "" && c.stated.first(reportedApproval):
		m.check("AH-C-104", c, f, v.proven(w.seq).detail(detailClaim+" "+caseOf).saying(what))
	case caseOf == "" && a.is(statusApproved) && !m.grantedOnRecord(c.session.key.tenant, a) && c.stated.first(reportedApproval):
		m.check("AH-C-105", c, f, v.proven(w.seq).saying("the verdict on record still waits for it"))
	}
}

// waitsUnnamed tells whether the recorded verdict waits for an approval and does not
// say for which, as the decisions of recordings may.
func (c *call) waitsUnnamed() bool {
	d := c.lastDecision()
	return d != nil && native(d.verdict) == events.Ask && d.pending.value().workflow == ""
}

// Cases of AH-C-105.
const (
	detailNoWorkflow = "workflow"
	detailNoDecision = "decision"
)

// grantedOnRecord tells whether the record of a workflow says that it was approved.
func (m *machine) grantedOnRecord(tenant string, a *approval) bool {
	recorded, _ := m.ledger.get(workflowKey{tenant, sumOf(a.workflow)})
	if granted(recorded.status) {
		return true
	}
	w := m.workflow(tenant, a.workflow)
	return w != nil && w.usedBy != 0
}

// judgeReference: an event says by which decision its call was approved. That must
// be a decision on this call, or on one that it tries again.
func (m *machine) judgeReference(c *call, f *fact) {
	if f.kind != kindPre && f.kind != kindPost || f.reference == "" || c.state == events.CallOrphaned {
		return
	}
	if len(c.decisions) == 0 && !m.opts.RequireVerdict || len(c.decisions) >= maxDecisions || c.rulesOn(f.reference) {
		return
	}
	v := about(c.firstEvent(), f.eventID)
	made, known := m.receipts.get(receiptKey(f.key.tenant, f.reference))
	if o := c.session.decided(f.reference); o != nil && o != c || known && made != holder(f.key, c.slot.key) {
		if (f.kind != kindPost || f.ran == ranNo || !known) && c.stated.first(reportedApproval) { // else it is receipt_reused
			m.check("AH-C-104", c, f, v.detail(detailNoDecision).saying("it names a decision on another call"))
		}
		return
	}
	if !c.stated.first(reportedApproval) {
		return
	}
	id := m.check("AH-C-105", c, f, v.detail(detailNoDecision).saying("it names a decision that is not on record"))
	c.excusable(referenceExcuse+f.reference, id)
}

// rulesOn tells whether a reference is to a decision on the call or on one that it
// tries again.
func (c *call) rulesOn(reference string) bool {
	for depth := 0; c != nil && depth < maxChain; depth++ {
		if slices.ContainsFunc(c.unfold().decisions, func(d verdictRec) bool { return d.id == reference || d.ref == reference }) {
			return true
		}
		c = c.previous
	}
	return false
}

// referenceExcuse begins the note of a finding that a decision was not on record.
const referenceExcuse = "AH-C-105 "

// referredAfterAll takes that back when the decision is there.
func (m *machine) referredAfterAll(c *call, f *fact) {
	for _, reference := range []string{f.decision.id, f.decision.ref} {
		for _, made := range c.taken(referenceExcuse + reference) {
			c.stated.reported &^= reportedApproval
			m.check("AH-C-105", c, f, about(c.firstEvent(), f.eventID).proven(f.seq).detail(detailWithdrawn).grade(events.SeverityInfo).
				withdrawing(made.id).saying("the decision was recorded later"))
		}
	}
}
