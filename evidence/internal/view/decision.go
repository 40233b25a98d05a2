package view

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
)

// Decision is the part of a decision that verification needs. The slices are parts of
// the text or of a copy of it.
type Decision struct {
	ID, Tenant, Session, Verdict, RequestDigest, ReceiptHash []byte
}

// ReadDecision decodes a decision that is in RFC 8785 form. It rejects what
// events.DecodeRecord rejects.
func ReadDecision(body []byte) (d Decision, ok bool) {
	if d, ok = scanDecision(body); ok {
		return d, true
	}
	full, err := events.DecodeRecord[events.Decision](body)
	return Decision{[]byte(full.DecisionID), []byte(full.Tenant), []byte(full.Session), []byte(full.Verdict),
		[]byte(full.RequestDigest), []byte(full.ReceiptHash)}, err == nil
}

// scanDecision decodes the common form of a decision. If ok is true, DecodeRecord gives the
// same result (FuzzScanDecision); if it is false, DecodeRecord has to decide.
func scanDecision(body []byte) (d Decision, ok bool) {
	if len(body) > strictjson.DefaultLimits.MaxBytes {
		return d, false
	}
	s := &canonical.Scanner{Text: body}
	ok = s.ScanStruct(decisionShape, func(key, value []byte) {
		for _, want := range [...]struct {
			name string
			into *[]byte
		}{{"decision_id", &d.ID}, {"tenant", &d.Tenant}, {"session", &d.Session}, {"verdict", &d.Verdict},
			{"request_digest", &d.RequestDigest}, {"receipt_hash", &d.ReceiptHash}} {
			if string(key) == want.name {
				*want.into = value[1 : len(value)-1] // scanStruct rejects escapes
			}
		}
	})
	return d, ok && s.AtEnd()
}

var decisionShape = canonical.ShapeFor[events.Decision](nil)
