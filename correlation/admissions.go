package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// What the copies of requests and the decisions on them say of admission itself:
// the verdicts must be those that the requests allow.

// Bounds of what is remembered of requests and decisions (about 100 B each).
const (
	maxFlaggedRequests = 4096   // requests without their decision, which follows at once
	maxNamedDecisions  = 65_536 // decisions that events name and that are not on the log yet
)

// flaggedRequest is a request with a verdict that is awaited.
type flaggedRequest struct {
	flags fact.RequestFlags
	seq   uint64
}

// admissions are the requests and decisions that the log holds against each other.
type admissions struct {
	findings        *findings
	history         *history
	flaggedRequests *tables.FIFO[fact.Sum, flaggedRequest] // by decision
	namedDecisions  *tables.FIFO[fact.Sum, namedDecision]  // decisions that events named first
}

func newAdmissions(fs *findings, h *history) *admissions {
	return &admissions{
		findings: fs, history: h,
		flaggedRequests: tables.NewFIFO[fact.Sum, flaggedRequest](maxFlaggedRequests),
		namedDecisions:  tables.NewFIFO[fact.Sum, namedDecision](maxNamedDecisions),
	}
}

// recordFlaggedRequest records a request that does not allow every verdict.
func (ad *admissions) recordFlaggedRequest(f *fact.Fact) {
	if f.RequestFlags != 0 && f.DecisionID != "" {
		ad.flaggedRequests.Put(f.OwnReceiptKey(), flaggedRequest{f.RequestFlags, f.Seq})
	}
}

// checkAdmissionDecision holds a decision against its request and against what was on record
// when the request came.
func (ad *admissions) checkAdmissionDecision(f *fact.Fact) {
	if !rowOf(f.Protocol).rulesApprovals {
		return
	}
	if r := ad.flaggedRequests.Lookup(f.OwnReceiptKey()); r != nil {
		ad.checkFlaggedVerdict(f, *r)
	}
	ad.checkEarlyVerdict(f)
}

func (ad *admissions) checkFlaggedVerdict(f *fact.Fact, r flaggedRequest) {
	v := f.Decision.Verdict
	say := func(check, what string) {
		b := fact.SingleEventFinding(check, what, f)
		b.Seqs = append([]uint64{r.seq}, b.Seqs...)
		ad.findings.ReportSessionFinding(f, f.Origin, b)
	}
	if r.flags&fact.FlagReportsOnly != 0 && (f.NamesPolicies || v == events.Ask || v == events.Defer) {
		say("AH-C-085", "policies were asked about it")
	}
	if r.flags&fact.FlagRuntimeRefused != 0 && v == events.Allow {
		say("AH-C-134", "")
	}
	if r.flags&fact.FlagHooksTrusted != 0 && f.DecisionExtras != nil && f.DecisionExtras.OtherFingerprint {
		say("AH-C-129", "its manifest expects another fingerprint")
	}
	approved := isGranted(f.Decision.Approval.ValueOrZero().Status)
	switch {
	case r.flags&fact.FlagDeniedElsewhere != 0 && v != events.Deny:
		say("AH-C-086", "another subscriber had denied the request")
	case r.flags&fact.FlagAskedElsewhere != 0 && v == events.Allow && !approved:
		say("AH-C-086", "another subscriber had asked for an approval")
	}
}

// namedDecision is the first event that named a decision.
type namedDecision struct {
	event string
	seq   uint64
}

// recordNamedDecision records that an event names a decision that is not on record: its
// publisher was told of the verdict before.
func (ad *admissions) recordNamedDecision(f *fact.Fact) {
	if f.Kind == fact.KindRequest {
		return
	}
	if ad.history.hasDecision(f.Key.Publisher(), f.ReceiptDecisionID) {
		return
	}
	if k := fact.ReceiptKey(f.Key.Tenant, f.ReceiptDecisionID); ad.namedDecisions.Lookup(k) == nil {
		ad.namedDecisions.Put(k, namedDecision{f.EventID, f.Seq})
	}
}

// checkEarlyVerdict: a verdict was known before its record was on the log (AH-C-071).
func (ad *admissions) checkEarlyVerdict(f *fact.Fact) {
	n := ad.namedDecisions.Lookup(f.OwnReceiptKey())
	if n == nil || f.DecisionID == "" {
		return
	}
	b := fact.SingleEventFinding("AH-C-071", "an event that is recorded before it names it", f)
	b.Seqs = append([]uint64{n.seq}, b.Seqs...)
	b.Events = slices.DeleteFunc([]string{n.event, f.EventID}, func(id string) bool { return id == "" })
	ad.findings.ReportSessionFinding(f, f.Origin, b)
}

// A receipt allows one execution of one call (architecture 1.3). The log holds its
// decision and not the receipt itself: a reader of the log must not be able to run a
// call with it. An execution names the decision that it rests on in its
// metadata.approval.decision_ref (AgentHook) or in the header Countersign-Decision-Id of
// its message. An execution that names none rests on what was allowed last under its id.

// maxReceipts bounds the decisions of which it is remembered which call their
// receipts were made for (about 100 B each); the oldest are forgotten.
const maxReceipts = 65_536

// Cases of receipt_reused.
const (
	caseReceiptAgain = ""
	caseReceiptOther = "other"
)

// receiptHolder is the call that a receipt is made for, whatever its occurrence.
func receiptHolder(k fact.SourceSession, s fact.CallKey) fact.Sum {
	return fact.SumOf(k.Source, k.Session, s.Id, s.Tool)
}

// receipts are the decisions with receipts that allow a call, and the call that each receipt
// was made for. A receipt allows one execution.
type receipts struct {
	opts     *engineOptions `snapshot:"-"` // given anew
	findings *findings
	history  *history
	holders  *tables.FIFO[fact.Sum, fact.Sum] // by receiptKey; see receiptHolder
}

func newReceipts(fs *findings, h *history) *receipts {
	return &receipts{findings: fs, history: h, holders: tables.NewFIFO[fact.Sum, fact.Sum](maxReceipts)}
}

// holderOf is the call that the receipt of a decision was made for.
func (rs *receipts) holderOf(tenant, decisionID string) (holder fact.Sum, known bool) {
	return rs.holders.Get(fact.ReceiptKey(tenant, decisionID))
}

// recordReceipt remembers which call the receipt of a decision was made for.
func (rs *receipts) recordReceipt(f *fact.Fact) {
	if f.Decision.Verdict == events.Allow {
		rs.holders.Put(f.OwnReceiptKey(), receiptHolder(f.Key, f.CallKey))
	}
}

// checkReceiptUse holds an execution against the receipts that other executions have used,
// and those that were made for other calls.
func (rs *receipts) checkReceiptUse(c *call, f *fact.Fact) {
	if f.Effect == fact.NoEffect {
		return
	}
	if f.ReceiptDecisionID != "" {
		made, known := rs.holderOf(f.Key.Tenant, f.ReceiptDecisionID)
		if known && made != receiptHolder(f.Key, c.group.key) {
			rs.findings.reportRule(ruleReceipt, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseReceiptOther).withText(quoteName(fact.BoundID(f.ReceiptDecisionID), "")))
			return
		}
	}
	if rs.namesNothing(c, f) {
		rs.findings.reportRule(ruleForged, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(detailClaimDecision).withSeverity(events.SeverityHigh).withText(quoteName(fact.BoundID(f.ReceiptDecisionID), "")))
	}
	if o := c.findReceiptUser(f); o != nil {
		v := findingFrom(o.postEvent, f.EventID).withVerdict(effectiveVerdict{recorded: o.lastDecision()})
		v.seqs = append(v.seqs, o.execSeq)
		rs.findings.reportRule(ruleReceipt, c, f, v)
	}
}

// namesNothing reports whether the header of an execution names a decision that is not
// on record. A decision is on the log before its verdict is given out. judgeReference
// judges the reference in the body.
func (rs *receipts) namesNothing(c *call, f *fact.Fact) bool {
	if f.ReceiptDecisionID == "" || f.ReceiptDecisionID == f.DecisionRef || c.state == events.CallOrphaned || len(c.decisions) == 0 && !rs.opts.RequireVerdict {
		return false
	}
	if len(c.decisions) >= maxCallDecisions || c.hasDecision(f.ReceiptDecisionID) {
		return false
	}
	if _, known := rs.holderOf(f.Key.Tenant, f.ReceiptDecisionID); known {
		return false
	}
	return !rs.history.hasDecision(f.Key.Publisher(), f.ReceiptDecisionID)
}

// findReceiptUser is the call that has used up what c runs on; nil if there is none.
func (c *call) findReceiptUser(f *fact.Fact) *call {
	st, s := c.effectiveVerdict(), c.session
	switch {
	case st.verdict != "" && !st.inherited, f.CallKey.Id == "" && !st.inherited:
		return nil
	case st.inherited:
		if o := s.callOfDecision(st.decisionID()); o != nil && o != c && o.usedReceipt() {
			return o
		}
		return nil
	}
	return c.group.latestClosedLike(f, func(o *call) bool {
		return o != c && o.order < c.order && o.usedReceipt() && o.compareFact(f) != fact.ArgsDifferent
	})
}

// usedReceipt reports whether a call ran on a receipt of its own.
func (x *details) usedReceipt() bool {
	d := x.lastDecision()
	return x.execSeq != 0 && d != nil && d.Verdict == events.Allow && d.HasReceipt
}

func (s effectiveVerdict) decisionID() string {
	if s.recorded == nil {
		return ""
	}
	return s.recorded.Id
}

// judgeReference: an event says by which decision its call was approved. That must
// be a decision on this call, or on one that it tries again.
func (rs *receipts) judgeReference(c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre && f.Kind != fact.KindPost || f.DecisionRef == "" || c.state == events.CallOrphaned {
		return
	}
	if len(c.decisions) == 0 && !rs.opts.RequireVerdict || len(c.decisions) >= maxCallDecisions || c.hasDecision(f.DecisionRef) {
		return
	}
	v := findingFrom(c.firstEvent(), f.EventID)
	made, known := rs.holderOf(f.Key.Tenant, f.DecisionRef)
	if o := c.session.callOfDecision(f.DecisionRef); o != nil && o != c || known && made != receiptHolder(f.Key, c.group.key) {
		if (f.Kind != fact.KindPost || f.Effect == fact.NoEffect || !known) && c.claims.reportOnce(claimedApprovalKind) { // else it is receipt_reused
			rs.findings.reportCheck("AH-C-104", c, f, v.withCase(caseNoDecision).withText("it names a decision on another call"))
		}
		return
	}
	if !c.claims.reportOnce(claimedApprovalKind) {
		return
	}
	id := rs.findings.reportCheck("AH-C-105", c, f, v.withCase(caseNoDecision).withText("it names a decision that is not on record"))
	c.addRetractable(referenceRetraction+f.DecisionRef, id)
}

// referenceRetraction begins the note of a finding that a decision was not on record.
const referenceRetraction = "AH-C-105 "

// retractUnknownReference takes that back when the decision is there.
func (rs *receipts) retractUnknownReference(c *call, f *fact.Fact) {
	for _, reference := range []string{f.Decision.Id, f.Decision.ApprovalRef} {
		for _, made := range c.takeRetractable(referenceRetraction + reference) {
			c.claims.reported &^= claimedApprovalKind
			rs.findings.reportCheck("AH-C-105", c, f, findingFrom(c.firstEvent(), f.EventID).withSeq(f.Seq).withCase(caseWithdrawn).withSeverity(events.SeverityInfo).
				retracting(made.id).withText("the decision was recorded later"))
		}
	}
}

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

func (s *callClaims) markReportedIf(is bool, kind claimKinds) {
	if is {
		s.reported |= kind
	}
}

// reportOnce reports whether a kind of claim is to be reported now.
func (s *callClaims) reportOnce(kind claimKinds) bool {
	before := s.reported
	s.reported |= kind
	return before&kind == 0
}

// recordClaims takes the claims of an event. Requests are no claims about what was
// decided on them, and what stops a call claims no more than that.
func (s *callClaims) recordClaims(f *fact.Fact) {
	if f.Kind != fact.KindPre && f.Kind != fact.KindPost && f.Kind != fact.KindAdmissionReply {
		return
	}
	if f.VerdictClaim.Verdict != "" {
		s.verdict = f.VerdictClaim
	}
	if f.Approval != nil {
		s.approval, s.namesDecision = f.Approval, f.DecisionRef != ""
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

// hasDecision reports whether a reference is to a decision on the call or on one that it
// tries again.
func (c *call) hasDecision(reference string) bool {
	for depth := 0; c != nil && depth < maxRetryChain; depth++ {
		if slices.ContainsFunc(c.expand().decisions, func(d fact.RecordedVerdict) bool { return d.Id == reference || d.ApprovalRef == reference }) {
			return true
		}
		c = c.retriedCall
	}
	return false
}

// Of so many sessions it is remembered which agents have handed over, and of each
// session so many agents; the oldest are forgotten. It outlives what else is known
// of a session: an agent does not get its turn back by waiting.
const (
	maxHandoffs   = 16_384
	maxHandedOver = 16
)

// handedOverAgent is an agent after its handoff was accepted. It must not act in the session
// from there on, until another agent hands back to it.
//
// What counts is the signed decision on a proposal of a handoff (protocolRow.isHandoffTo;
// aioc's, RFC-0002): its agent hands over, and the tool name of the handoff says to whom. AAEP's
// handoff.requested only asks, and AgentHook's AgentHandoff does not say which
// agent goes on; nor that the one which it is from stops: its work may go on
// beside a child session's (AH-C-060).
type handedOverAgent struct {
	agent string
	seq   uint64 // of the decision
}

// handoffs are the agents that have handed over, by session.
type handoffs struct {
	findings  *findings
	bySession *tables.FIFO[fact.SourceSession, []handedOverAgent]
}

func newHandoffs(fs *findings) *handoffs {
	return &handoffs{findings: fs, bySession: tables.NewFIFO[fact.SourceSession, []handedOverAgent](maxHandoffs)}
}

// isEmpty reports whether no agent has handed over.
func (hs *handoffs) isEmpty() bool { return hs.bySession.Len() == 0 }

// trackHandoff takes an accepted handoff, and looks whether a call was made by an
// agent that had handed over before.
func (hs *handoffs) trackHandoff(s *session, c *call, f *fact.Fact) {
	list, _ := hs.bySession.Get(s.Key)
	if len(list) > 0 || c.handoffFinding.finding != "" {
		hs.checkCallAfterHandoff(list, c, f)
	}
	if f.Kind == fact.KindDecision && f.Decision.Verdict == events.Allow && f.Agent != "" && rowOf(f.Protocol).isHandoffTo != nil && !c.hasWeakScope() {
		hs.bySession.Put(s.Key, addHandoff(list, f))
	}
}

// addHandoff are the agents that have handed over after one more handoff.
func addHandoff(list []handedOverAgent, f *fact.Fact) []handedOverAgent {
	isHandoffTo := rowOf(f.Protocol).isHandoffTo
	list = slices.DeleteFunc(list, func(h handedOverAgent) bool {
		return h.agent == f.Agent || isHandoffTo(f.Tool, h.agent)
	})
	if isHandoffTo(f.Tool, f.Agent) {
		return list // to itself
	}
	if len(list) == maxHandedOver {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, handedOverAgent{f.Agent, f.Seq})
}

// handoffFinding is that a call was found to be made by an agent that had handed over.
type handoffFinding struct{ agent, finding string }

// checkCallAfterHandoff: what the call's own messages say of its agent may change, as a
// later one is better informed; then so does what was found.
func (hs *handoffs) checkCallAfterHandoff(list []handedOverAgent, c *call, f *fact.Fact) {
	if found := c.handoffFinding; found != (handoffFinding{}) {
		if c.agent != found.agent {
			hs.findings.reportRule(ruleAfterHandoff, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseWithdrawn).
				withSeverity(events.SeverityInfo).retracting(found.finding))
			c.handoffFinding = handoffFinding{}
		}
		return
	}
	begun := c.firstOwnSeq()
	if c.agent == "" || begun == 0 {
		return
	}
	for _, h := range list {
		if h.agent == c.agent && begun > h.seq {
			v := findingFrom(c.firstEvent(), f.EventID)
			v.seqs = append(v.seqs, h.seq, begun)
			c.handoffFinding = handoffFinding{c.agent, hs.findings.reportRule(ruleAfterHandoff, c, f, v)}
			return
		}
	}
}
