package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// A receipt allows one execution of one call (docs/adr/0006). The log holds the decision
// and not the receipt, so that a reader of the log cannot run a call. An execution names its
// decision in metadata.approval.decision_ref (AgentHook) or in the header
// Countersign-Decision-Id. An execution without a reference rests on the last allow under its
// id.

// maxReceipts bounds the decisions whose call is remembered (about 100 B each).
const maxReceipts = 65_536

// Cases of receipt_reused.
const (
	caseReceiptAgain = ""
	caseReceiptOther = "other"
)

// receiptHolder identifies the call that a receipt was made for, in any occurrence.
func receiptHolder(k fact.SourceSession, s fact.CallKey) fact.Sum {
	return fact.SumOf(k.Source, k.Session, s.ID, s.Tool)
}

// receipts holds the allow decisions with receipts, and the call that each receipt was made
// for.
type receipts struct {
	opts     *engineOptions                     `snapshot:"-"` // not part of a snapshot
	findings *findings                          `snapshot:"-"` // another part, as is the next
	history  *history                           `snapshot:"-"`
	holders  *tables.Shared[fact.Sum, fact.Sum] // by fact.ReceiptKey; the value is a receiptHolder
}

func newReceipts(o *engineOptions, fs *findings, h *history) *receipts {
	return &receipts{opts: o, findings: fs, history: h, holders: tables.NewShared[fact.Sum, fact.Sum](maxReceipts)}
}

// holderOf returns the receiptHolder of a decision's receipt.
func (rs *receipts) holderOf(tenant, decisionID string) (holder fact.Sum, known bool) {
	return rs.holders.Get(tenant, fact.ReceiptKey(tenant, decisionID))
}

// recordReceipt records the call that a decision's receipt was made for.
func (rs *receipts) recordReceipt(f *fact.Fact) {
	if f.Decision.Verdict == events.Allow {
		rs.holders.Put(f.Key.Tenant, f.OwnReceiptKey(), receiptHolder(f.Key, f.CallKey))
	}
}

// checkReceiptUse reports an execution on a receipt that was made for another call, or that
// another execution used.
func (rs *receipts) checkReceiptUse(c *call, f *fact.Fact) {
	if f.Effect == fact.NoEffect {
		return
	}
	defer rs.recordRetryUse(c, f)
	if f.ReceiptDecisionID != "" {
		made, known := rs.holderOf(f.Key.Tenant, f.ReceiptDecisionID)
		if known && made != receiptHolder(f.Key, c.group.key) {
			rs.findings.reportRule(ruleReceipt, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseReceiptOther).withText(quoteName(fact.BoundID(f.ReceiptDecisionID), "")))
			return
		}
	}
	if rs.namesNothing(c, f) {
		rs.findings.reportRule(ruleForged, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseClaimDecision).withSeverity(events.SeverityHigh).withText(quoteName(fact.BoundID(f.ReceiptDecisionID), "")))
	}
	if holder, use := rs.findUse(c, f); use != (receiptUse{}) {
		spec := findingFrom(use.event, f.EventID).withVerdict(effectiveVerdict{recorded: holder.lastDecision()})
		spec.seqs = append(spec.seqs, use.seq)
		rs.findings.reportRule(ruleReceipt, c, f, spec)
	}
}

// namesNothing reports whether an execution's header names a decision that is not on record.
// Decisions are recorded before they are given out. judgeReference judges the reference in the
// body.
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

// receiptUse is an execution on a receipt. The zero receiptUse is none.
type receiptUse struct {
	decision string // whose receipt it is
	order    uint64 // of the call that ran
	event    string // that reported it
	seq      uint64 // of the execution
}

// findUse returns the first execution of another call on the receipt of c, and the call that the
// receipt was made for. One allow permits one execution: of its call, or of one retry under another id that
// was not asked about (AHP-013 links an execution by previous_tool_call_id), and not of both.
func (rs *receipts) findUse(c *call, f *fact.Fact) (holder *call, use receiptUse) {
	verdict := c.effectiveVerdict()
	switch {
	case verdict.inherited:
		if holder = c.session.callOfDecision(verdict.decisionID()); holder != nil {
			use = rs.firstUse(holder, verdict.decisionID())
		}
	case verdict.verdict != "":
		holder, use = c, rs.firstUse(c, verdict.decisionID())
	case f.CallKey.ID != "":
		holder = c.group.latestClosedWhich(f, (*call).mayHaveUsedReceipt, func(o *call) bool {
			return o != c && o.order < c.order && o.usedReceipt() && o.compareFact(f) != fact.ArgsDifferent
		})
		if holder != nil {
			use = ownUse(holder)
		}
	}
	if use.order == c.order {
		return nil, receiptUse{}
	}
	return holder, use
}

// firstUse is the first execution on the receipt of one of a call's decisions.
func (rs *receipts) firstUse(c *call, decision string) receiptUse {
	switch {
	case c.retryUse.decision == decision:
		return c.retryUse
	case c.usedReceipt():
		return ownUse(c)
	}
	return receiptUse{}
}

// ownUse is the execution of the call itself.
func ownUse(c *call) receiptUse {
	return receiptUse{c.lastDecision().ID, c.order, c.postEvent, c.execSeq}
}

// recordRetryUse records that a retry ran on the receipt of the call whose allow it inherits, if it is the
// first to run on it.
func (rs *receipts) recordRetryUse(c *call, f *fact.Fact) {
	v := c.effectiveVerdict()
	if !v.inherited || v.verdict != events.Allow || v.recorded == nil || !v.recorded.HasReceipt {
		return
	}
	if o := c.session.callOfDecision(v.decisionID()); o != nil && rs.firstUse(o, v.decisionID()) == (receiptUse{}) {
		o.retryUse = receiptUse{v.decisionID(), c.order, f.EventID, f.Seq}
	}
}

// usedReceipt reports whether the call ran on its own receipt.
func (x *details) usedReceipt() bool {
	d := x.lastDecision()
	return x.execSeq != 0 && d != nil && d.Verdict == events.Allow && d.HasReceipt
}

// judgeReference checks the decision that an event names as its approval. It must be a
// decision on the call, or on a call that it retries.
func (rs *receipts) judgeReference(c *call, f *fact.Fact) {
	if f.Kind != fact.KindPre && f.Kind != fact.KindPost || f.DecisionRef == "" || c.state == events.CallOrphaned {
		return
	}
	if len(c.decisions) == 0 && !rs.opts.RequireVerdict || len(c.decisions) >= maxCallDecisions || c.hasDecision(f.DecisionRef) {
		return
	}
	spec := findingFrom(c.firstEvent(), f.EventID)
	made, known := rs.holderOf(f.Key.Tenant, f.DecisionRef)
	if o := c.session.callOfDecision(f.DecisionRef); o != nil && o != c || known && made != receiptHolder(f.Key, c.group.key) {
		if (f.Kind != fact.KindPost || f.Effect == fact.NoEffect || !known) && c.claims.reportOnce(claimedApprovalKind) { // otherwise checkReceiptUse reports it
			rs.findings.reportCheck("AH-C-104", c, f, spec.withCase(caseNoDecision).withText("it names a decision on another call"))
		}
		return
	}
	if !c.claims.reportOnce(claimedApprovalKind) {
		return
	}
	id := rs.findings.reportCheck("AH-C-105", c, f, spec.withCase(caseNoDecision).withText("it names a decision that is not on record"))
	c.addRetractable(referenceRetraction+f.DecisionRef, id)
}

// referenceRetraction, with the decision's id, is the name of the retractable finding that a
// decision is not on record.
const referenceRetraction = "AH-C-105 "

// retractUnknownReference retracts that finding when the decision is recorded.
func (rs *receipts) retractUnknownReference(c *call, f *fact.Fact) {
	for _, reference := range []string{f.Decision.ID, f.Decision.ApprovalRef} {
		for _, made := range c.takeRetractable(referenceRetraction + reference) {
			c.claims.forgetReported(claimedApprovalKind)
			rs.findings.reportCheck("AH-C-105", c, f, findingFrom(c.firstEvent(), f.EventID).withSeq(f.Seq).withCase(caseRetracted).withSeverity(events.SeverityInfo).
				retracting(made.id).withText("the decision was recorded later"))
		}
	}
}

// hasDecision reports whether the call, or a call that it retries, has the decision that a
// reference names.
func (c *call) hasDecision(reference string) bool {
	for depth := 0; c != nil && depth < maxRetryChain; depth++ {
		if slices.ContainsFunc(c.expand().decisions, func(d fact.RecordedVerdict) bool { return d.ID == reference || d.ApprovalRef == reference }) {
			return true
		}
		c = c.retriedCall
	}
	return false
}
