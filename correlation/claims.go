package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// An event claims what the verdict and the approval of its call are. Claims are compared with
// the record, whether or not the call ran: the verdict at once, the approval with the next
// decision or at the end of the call, because its record may come until then. If nothing is
// recorded, there is nothing to compare, unless Options.RequireVerdict demands a record.

// callClaims are the claims of a call's events.
type callClaims struct {
	verdict       fact.VerdictClaim
	approval      *fact.Approval // nil if none is claimed
	namesDecision bool           // the event that claims the approval names its decision
	reported      claimKinds
}

// claimKinds are the kinds of claims that were reported; each is reported once for a call.
type claimKinds uint8

const (
	claimedVerdictKind claimKinds = 1 << iota
	unrecordedVerdictKind
	claimedApprovalKind
)

func (claims *callClaims) markReported(kind claimKinds) { claims.reported |= kind }

// reportOnce reports whether a kind of claim was not reported before, and marks it as
// reported.
func (claims *callClaims) reportOnce(kind claimKinds) bool {
	before := claims.reported
	claims.reported |= kind
	return before&kind == 0
}

// forgetReported lets a kind of claim be reported again.
func (claims *callClaims) forgetReported(kind claimKinds) { claims.reported &^= kind }

// recordClaims records the claims of an event. A request, and an event that stops a call,
// claims nothing.
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

// judgeCallClaims compares a call's claims so far with the record.
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

// judgeVerdictClaim compares the claimed verdict with the recorded one. A claim may be
// stricter, never looser (AH-C-082).
func (j *judge) judgeVerdictClaim(c *call, f *fact.Fact) {
	said := c.claims.verdict
	d := c.decisionFor(said.Seq)
	if d == nil || said.Verdict == "" || said.Verdict.Strictness() >= nativeVerdict(d.Verdict).Strictness() || !c.claims.reportOnce(claimedVerdictKind) {
		return
	}
	caseOf := caseClaimNotRun
	if c.execSeq != 0 {
		caseOf = caseClaim
	}
	j.findings.reportRule(ruleForged, c, f, findingFrom(c.firstEvent(), f.EventID).withVerdict(effectiveVerdict{recorded: d}).withCase(caseOf))
}

// judgeUnrecorded reports a claimed verdict of a call that closed without running and without
// a recorded verdict. A call that ran without one is executed_without_verdict.
func (j *judge) judgeUnrecorded(c *call, f *fact.Fact) {
	v := c.claims.verdict.Verdict
	if !j.opts.RequireVerdict || c.execSeq != 0 || len(c.decisions) > 0 || v == "" || v == events.Deny || !c.claims.reportOnce(unrecordedVerdictKind) {
		return
	}
	j.findings.reportRetractable(ruleForged, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseClaimAlone).withText(string(v)).withSeverity(events.SeverityHigh))
}

// retractUnrecordedClaim retracts that finding when the verdict is recorded later.
func (j *judge) retractUnrecordedClaim(c *call, f *fact.Fact) {
	if c.claims.reported&unrecordedVerdictKind == 0 || c.execSeq != 0 {
		return
	}
	for _, made := range c.takeRetractable(ForgedRecord, "AH-C-082") {
		back := findingFrom(c.firstEvent(), f.EventID).withSeq(f.Seq).withCase(caseRetracted)
		j.findings.retract(made, ruleForged, c, f, back, "the verdict was recorded later")
	}
}
