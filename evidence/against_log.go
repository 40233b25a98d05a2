package evidence

import (
	"bytes"
	"errors"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
)

// CompareLog compares the row that was examined with the log's own message of
// its sequence. Decisions and approvals must be the same to the letter, credentials
// in names apart: those are taken out of the log's message once more, and its
// signature is judged by the log's bytes. Of other records, what was not redacted
// has the same digest.
func (x *Examined) CompareLog(r Row, m events.LogMessage) {
	differs := func(field, format string, args ...any) {
		x.findings = append(x.findings, newFinding(CodeLog, x.seq, field, format, args...))
	}
	x.comparedWithLog = true
	if !sameSubject(m.Subject, r.Subject) {
		differs("subject", "the log has subject %.120q, the record %.120q", m.Subject, r.Subject)
	}
	if !m.Time.Equal(r.BrokerTime) {
		differs("broker_time", "the log says %s, the record %s", events.At(m.Time), events.At(r.BrokerTime))
	}
	if r.Expired() {
		return // nothing else is left to compare
	}
	rec, err := ParseRecord([]byte(r.Record))
	if err != nil {
		return // reported already
	}
	switch {
	case rec.Kind == KindDecision || rec.Kind == KindApproval:
		masked := bodyRedacted(rec.Redactions)
		if masked && !sameServiceRecord(rec.Kind, m.Body, rec.Body) || !masked && !bytes.Equal(m.Body, rec.Body) {
			differs("body", "the log has another %s at this sequence, first at byte %d", rec.Kind, firstDifference(m.Body, rec.Body))
		}
		if m.HeaderValue(events.HeaderSignature) != headerValue(rec.Headers, events.HeaderSignature) {
			differs(signatureField, "the log has another signature on this %s", rec.Kind)
		}
		if x.fact.signature.masked {
			x.fact.signature.fillFromLog(m)
		}
	case len(rec.Redactions) == 0 && rec.Reason == "" && rec.BodyDigest != digest.Plain(m.Body):
		differs("body_digest", "the log has a body with digest %.24s at this sequence, the record says %.24s", digest.Plain(m.Body), rec.BodyDigest)
	}
}

// NotInLog says that the log has no message of the row's sequence, of a row that
// nothing signed proves.
func (x *Examined) NotInLog() {
	x.findings = append(x.findings, newFinding(CodeLog, x.seq, "", "the log has no message at this sequence, and no checkpoint covers the record"))
}

// fillFromLog gives a claim about a text that the evidence does not hold the log's text.
func (c *signatureClaim) fillFromLog(m events.LogMessage) {
	value := m.HeaderValue(events.HeaderSignature)
	kid, err := (&signing.RecordVerifier{}).Verify(value, m.Body)
	if errors.Is(err, signing.ErrUnknownKey) { // it knows none
		c.masked, c.keyID, c.value, c.body = false, kid, value, bytes.Clone(m.Body)
	}
}
