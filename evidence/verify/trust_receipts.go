package verify

import (
	"encoding/json"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/internal/names"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// checkRequest checks that the decision's request precedes it in the log, with no other
// decision in between, and, if both digests use the same key, that the request is the
// one that was decided.
func (t *trustChecker) checkRequest(x *Examined) {
	f, key := &x.fact, decisionKey{x.key.Tenant, x.fact.id}
	generation := t.requests[0]
	got, ok := generation[key]
	if !ok {
		generation = t.requests[1]
		got, ok = generation[key]
	}
	switch {
	case !ok && x.seq < t.requestsFrom:
		return
	case !ok:
		t.rep.addFinding(CodeDecisionRequest, x.seq, "body/decision_id", "no request before it names decision %.40q", f.id)
		return
	case got.decided:
		t.rep.addFinding(CodeDecisionRepeated, x.seq, "body/decision_id", "decision %.40q stands in the log before, and was not asked for again", f.id)
	case got.keyed && f.keyed && got.digest.key == f.digest.key && got.digest.sum != f.digest.sum:
		t.rep.addFinding(CodeRequestDigest, x.seq, "body/request_digest", "the recorded request of decision %.40q has another digest", f.id)
	}
	got.decided = true
	generation[key] = got
}

// checkReceipt checks a handed-in receipt against the decision that names it.
func (t *trustChecker) checkReceipt(seq uint64, f *recordFact) {
	token, wanted := t.receipts[f.hash]
	if !wanted {
		return
	}
	delete(t.receipts, f.hash)
	d, err := events.DecodeRecord[events.Decision](f.receipt)
	payload, kid, signErr := t.vouchedKeys.Verify(signing.TypeReceipt, token)
	if err != nil || signErr != nil {
		t.rep.addFinding(CodeReceipt, seq, "receipt", "the receipt does not verify with key %.32q", kid)
		return
	}
	if r, retired := t.retired[kid]; retired && r.isBefore(seq, f.signature.seconds) {
		t.rep.addFinding(CodeReceipt, seq, "receipt", "the receipt is signed with key %.32q, which was retired before, %s", kid, r)
		return
	}
	var claims receiptClaims
	if json.Unmarshal(payload, &claims) != nil || !claims.matchesDecision(d) {
		t.rep.addFinding(CodeReceipt, seq, "receipt", "the receipt is for another decision, tenant, verdict or call")
	}
}

// receiptClaims are the claims of a receipt that its decision states too. Only the first
// three are required; another member that the receipt omits is not compared.
type receiptClaims struct {
	DecisionID string         `json:"decision_id"`
	Tenant     string         `json:"tenant"`
	Verdict    events.Verdict `json:"verdict"`
	Source     *string        `json:"source"`
	Session    *string        `json:"session"`
	ToolCallID *string        `json:"tool_call_id"`
	Tool       *string        `json:"tool"`
}

func (c receiptClaims) matchesDecision(d events.Decision) bool {
	same := func(claim *string, value string) bool {
		return claim == nil || *claim == value || redact.HoldsToken(value) && names.WithoutTokens(names.Mask(*claim, nil)) == names.WithoutTokens(value)
	}
	return c.DecisionID == d.DecisionID && c.Tenant == d.Tenant && c.Verdict == d.Verdict &&
		same(c.Source, d.Source) && same(c.Session, d.Session) && same(c.ToolCallID, d.ToolCallID) && same(c.Tool, d.Tool)
}
