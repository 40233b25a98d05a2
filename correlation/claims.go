package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// What a publisher's events say of a call's verdict and approval is a claim. It is
// held against what is recorded, whether or not the call ran: the verdict at once,
// the approval when the next decision is there or the call is over, as its record
// may come until then. Without any record there is nothing to compare, except that
// Options.RequireVerdict says that there must be one.

// callClaims is what the events of a call claim.
type callClaims struct {
	verdict       fact.VerdictClaim
	approval      *fact.Approval // nil: nothing
	namesDecision bool           // the event with the approval says by which decision it was given
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

func (claims *callClaims) markReportedIf(is bool, kind claimKinds) {
	if is {
		claims.reported |= kind
	}
}

// reportOnce reports whether a kind of claim is to be reported now.
func (claims *callClaims) reportOnce(kind claimKinds) bool {
	before := claims.reported
	claims.reported |= kind
	return before&kind == 0
}

// recordClaims takes the claims of an event. Requests are no claims about what was
// decided on them, and what stops a call claims no more than that.
func (claims *callClaims) recordClaims(f *fact.Fact) {
	if f.Kind != fact.KindPre && f.Kind != fact.KindPost && f.Kind != fact.KindAdmissionReply {
		return
	}
	if f.VerdictClaim.Verdict != "" {
		claims.verdict = f.VerdictClaim
	}
	if f.Approval != nil {
		claims.approval, claims.namesDecision = f.Approval, f.DecisionRef != ""
	}
}

// judgeCallClaims holds what a call's events have claimed so far against the record.
func (j *judge) judgeCallClaims(c *call, f *fact.Fact) {
	if c.claims == (callClaims{}) || c.state == events.CallOrphaned {
		return
	}
	if f.Kind == fact.KindDecision {
		j.retractUnrecordedClaim(c, f)
	}
	j.judgeVerdictClaim(c, f)
	if f.Kind == fact.KindDecision || !c.isOpen() {
		j.judgeUnrecorded(c, f)
		j.approvals.judgeApprovalClaim(c, f)
	}
}

// judgeVerdictClaim compares the claimed verdict with the recorded one; a claim
// may be stricter, never looser (AH-C-082).
func (j *judge) judgeVerdictClaim(c *call, f *fact.Fact) {
	said := c.claims.verdict
	d := c.decisionFor(said.Seq)
	if d == nil || said.Verdict == "" || said.Verdict.Strictness() >= nativeVerdict(d.Verdict).Strictness() || !c.claims.reportOnce(claimedVerdictKind) {
		return
	}
	detail := caseClaimNotRun
	if c.execSeq != 0 {
		detail = caseClaim
	}
	j.findings.reportRule(ruleForged, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(effectiveVerdict{recorded: d}).withCase(detail))
}

// judgeUnrecorded: a call that did not run was over before any verdict on it was
// recorded, and its events claim one. What ran without one is executed_without_verdict.
func (j *judge) judgeUnrecorded(c *call, f *fact.Fact) {
	v := c.claims.verdict.Verdict
	if !j.opts.RequireVerdict || c.execSeq != 0 || len(c.decisions) > 0 || v == "" || v == events.Deny || !c.claims.reportOnce(unrecordedVerdictKind) {
		return
	}
	j.findings.reportRetractable(ruleForged, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseClaimAlone).withText(string(v)).withSeverity(events.SeverityHigh))
}

// retractUnrecordedClaim takes that back: the verdict was recorded later.
func (j *judge) retractUnrecordedClaim(c *call, f *fact.Fact) {
	if c.claims.reported&unrecordedVerdictKind == 0 || c.execSeq != 0 {
		return
	}
	for _, made := range c.takeRetractable(ForgedRecord, "AH-C-082") {
		back := findingFrom(c.firstEvent(), f.EventID).withSeq(f.Seq).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).retracting(made.id)
		if made.rule == ForgedRecord {
			j.findings.reportRule(ruleForged, c, f, back)
			continue
		}
		j.findings.emitFinding(checkRules[made.rule], c, f, back.withText("the verdict was recorded later"))
	}
}
