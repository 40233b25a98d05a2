package evidence

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// decisionView is the part of a decision that verification needs. The slices are parts of
// the text or of a copy of it.
type decisionView struct {
	id, tenant, session, verdict, requestDigest, receiptHash []byte
}

// readDecision decodes a decision that is in RFC 8785 form. It rejects what
// events.DecodeRecord rejects.
func readDecision(body []byte) (d decisionView, ok bool) {
	if d, ok = scanDecision(body); ok {
		return d, true
	}
	full, err := events.DecodeRecord[events.Decision](body)
	return decisionView{[]byte(full.DecisionID), []byte(full.Tenant), []byte(full.Session), []byte(full.Verdict),
		[]byte(full.RequestDigest), []byte(full.ReceiptHash)}, err == nil
}

// scanDecision decodes the common form of a decision. If ok is true, DecodeRecord gives the
// same result (FuzzScanDecision); if it is false, DecodeRecord has to decide.
func scanDecision(body []byte) (d decisionView, ok bool) {
	if len(body) > strictjson.DefaultLimits.MaxBytes {
		return d, false
	}
	s := &canonicalScanner{Text: body}
	ok = s.scanStruct(decisionShape, func(key, value []byte) {
		for _, want := range [...]struct {
			name string
			into *[]byte
		}{{"decision_id", &d.id}, {"tenant", &d.tenant}, {"session", &d.session}, {"verdict", &d.verdict},
			{"request_digest", &d.requestDigest}, {"receipt_hash", &d.receiptHash}} {
			if string(key) == want.name {
				*want.into = value[1 : len(value)-1] // scanStruct rejects escapes
			}
		}
	})
	return d, ok && s.atEnd()
}

var decisionShape = shapeFor[events.Decision](nil)
