package correlation

import (
	"github.com/countersign-dev/countersign/events"
)

// A receipt is good for one call and one execution of it (architecture 1.3). It
// is not on the log, for whoever reads the log must not be able to run anything
// with it; its decision is. An execution says which decision it rests on in its
// metadata.approval.decision_ref (AgentHook) or in the header
// Countersign-Decision-Id of its message. One that says nothing rests on what was
// allowed last under its id.

// maxReceipts bounds the decisions of which it is remembered which call their
// receipts were made for (about 100 B each); the oldest are forgotten.
const maxReceipts = 65_536

// Cases of receipt_reused.
const (
	detailReceiptAgain = ""
	detailReceiptOther = "other"
)

func receiptKey(tenant, decisionID string) sum { return sumOf("receipt", tenant, decisionID) }

// decidingSum is the receiptKey of the fact's own decision.
func (f *fact) decidingSum() sum {
	if f.deciding == (sum{}) {
		f.deciding = receiptKey(f.key.tenant, f.decisionID)
	}
	return f.deciding
}

// holder is the call that a receipt is made for, whatever its occurrence.
func holder(k sessionKey, s slotKey) sum { return sumOf(k.source, k.session, s.id, s.tool) }

// issue remembers which call the receipt of a decision was made for.
func (m *machine) issue(f *fact) {
	if f.decision.verdict == events.Allow {
		m.receipts.put(f.decidingSum(), holder(f.key, f.slot))
	}
}

// spend holds an execution against the receipts that other executions have used,
// and those that were made for other calls.
func (m *machine) spend(c *call, f *fact) {
	if f.ran == ranNo {
		return
	}
	if f.receiptOf != "" {
		made, known := m.receipts.get(receiptKey(f.key.tenant, f.receiptOf))
		if known && made != holder(f.key, c.slot.key) {
			m.report(ruleReceipt, c, f, about(c.firstEvent(), f.eventID).detail(detailReceiptOther).saying(quoted(show(f.receiptOf), "")))
			return
		}
	}
	if m.namesNothing(c, f) {
		m.report(ruleForged, c, f, about(c.firstEvent(), f.eventID).detail(detailClaimDecision).grade(events.SeverityHigh).saying(quoted(show(f.receiptOf), "")))
	}
	if o := c.spentBy(f); o != nil {
		v := about(o.postEvent, f.eventID).proof(standing{ledger: o.lastDecision()})
		v.seqs = append(v.seqs, o.execSeq)
		m.report(ruleReceipt, c, f, v)
	}
}

// namesNothing tells whether the header of an execution names a decision that is not
// on record. Decisions are, before anybody is told of them. What the body refers to is
// judged elsewhere: see judgeReference.
func (m *machine) namesNothing(c *call, f *fact) bool {
	if f.receiptOf == "" || f.receiptOf == f.reference || c.state == events.CallOrphaned || len(c.decisions) == 0 && !m.opts.RequireVerdict {
		return false
	}
	if len(c.decisions) >= maxDecisions || c.rulesOn(f.receiptOf) {
		return false
	}
	if _, known := m.receipts.get(receiptKey(f.key.tenant, f.receiptOf)); known {
		return false
	}
	s, there := m.sources.peek(f.key.publisher())
	return !there || s.seen.at(sumOf("decision", f.receiptOf)) == nil
}

// spentBy is the call that has used up what c runs on; nil if there is none.
func (c *call) spentBy(f *fact) *call {
	st, s := c.standing(), c.session
	switch {
	case st.verdict != "" && !st.inherited, f.slot.id == "" && !st.inherited:
		return nil
	case st.inherited:
		if o := s.decided(st.ledgerID()); o != nil && o != c && o.spent() {
			return o
		}
		return nil
	}
	return c.slot.latestLike(f, func(o *call) bool {
		return o != c && o.order < c.order && o.spent() && o.same(f) != different
	})
}

// spent tells whether a call ran on a receipt of its own.
func (c *call) spent() bool {
	d := c.lastDecision()
	return c.execSeq != 0 && d != nil && d.verdict == events.Allow && d.receipt
}

func (s standing) ledgerID() string {
	if s.ledger == nil {
		return ""
	}
	return s.ledger.id
}
