package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

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
		spec := findingFrom(o.postEvent, f.EventID).withVerdict(effectiveVerdict{recorded: o.lastDecision()})
		spec.seqs = append(spec.seqs, o.execSeq)
		rs.findings.reportRule(ruleReceipt, c, f, spec)
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
	verdict, s := c.effectiveVerdict(), c.session
	switch {
	case verdict.verdict != "" && !verdict.inherited, f.CallKey.Id == "" && !verdict.inherited:
		return nil
	case verdict.inherited:
		if o := s.callOfDecision(verdict.decisionID()); o != nil && o != c && o.usedReceipt() {
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

// judgeReference: an event says by which decision its call was approved. That must
// be a decision on this call, or on one that it tries again.
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
		if (f.Kind != fact.KindPost || f.Effect == fact.NoEffect || !known) && c.claims.reportOnce(claimedApprovalKind) { // else it is receipt_reused
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
