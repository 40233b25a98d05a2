package verify

import (
	"bytes"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/names"
	"github.com/countersign-dev/countersign/evidence/internal/view"
)

// CompareLog compares the examined row with the log's own message at its sequence.
// A decision or an approval must be identical to it, except for redacted credentials in
// names: CompareLog redacts the log's message again to compare it, and the signature is
// checked over the log's bytes. Any other record that has no redactions must have the
// digest of the log's body.
func (x *Examined) CompareLog(r evidence.Row, m events.LogMessage) {
	differs := func(field, format string, args ...any) {
		x.findings = append(x.findings, newFinding(CodeLog, x.seq, field, format, args...))
	}
	x.comparedWithLog = true
	if !names.SameSubject(m.Subject, r.Subject) {
		differs("subject", "the log has subject %.120q, the record %.120q", m.Subject, r.Subject)
	}
	if !m.Time.Equal(r.BrokerTime) {
		differs("broker_time", "the log says %s, the record %s", events.At(m.Time), events.At(r.BrokerTime))
	}
	if r.Expired() {
		return // an expired row has nothing else to compare
	}
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		return // reported already
	}
	switch {
	case rec.Kind == evidence.KindDecision || rec.Kind == evidence.KindApproval:
		masked := bodyRedacted(rec.Redactions)
		if masked && !names.SameServiceRecord(rec.Kind, m.Body, rec.Body) || !masked && !bytes.Equal(m.Body, rec.Body) {
			differs("body", "the log has another %s at this sequence, first at byte %d", rec.Kind, canonical.FirstDifference(m.Body, rec.Body))
		}
		if m.HeaderValue(events.HeaderSignature) != view.HeaderValue(rec.Headers, events.HeaderSignature) {
			differs(signatureField, "the log has another signature on this %s", rec.Kind)
		}
		if x.fact.signature.masked {
			x.fact.signature.fillFromLog(m)
		}
	case len(rec.Redactions) == 0 && rec.Reason == "" && rec.BodyDigest != digest.Plain(m.Body):
		differs("body_digest", "the log has a body with digest %.24s at this sequence, the record says %.24s", digest.Plain(m.Body), rec.BodyDigest)
	}
}

// NotInLog reports that the log has no message at the row's sequence. The caller calls it
// for a row that no checkpoint covers.
func (x *Examined) NotInLog() {
	x.findings = append(x.findings, newFinding(CodeLog, x.seq, "", "the log has no message at this sequence, and no checkpoint covers the record"))
}

// SignatureMasked reports whether the row's signature covers a text that the evidence does not hold: only
// CompareLog can check it.
func (x *Examined) SignatureMasked() bool { return x.fact.signature.masked }

// DemandCompared reports that fewer than the newest want decisions and approvals were to be compared
// with the log, although the rows have as many. The caller calls it before Finish.
func (v *Verifier) DemandCompared(want, have int) {
	if want = min(want, v.rep.Decisions+v.rep.Approvals); have < want {
		v.rep.addFinding(CodeLog, 0, "", "only %d of the newest %d decisions and approvals were compared with the log: the database names a later one as the first of them than its rows show", have, want)
	}
}

// fillFromLog takes value and body of a masked signature claim from the log's message.
func (c *signatureClaim) fillFromLog(m events.LogMessage) {
	value := m.HeaderValue(events.HeaderSignature)
	if kid := signerOf(value, m.Body); kid != "" {
		c.masked, c.keyID, c.value, c.body = false, kid, value, bytes.Clone(m.Body)
	}
}
