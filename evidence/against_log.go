package evidence

import (
	"bytes"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// CompareLog compares the row that was examined with the log's own message of
// its sequence. Decisions and approvals are kept byte for byte, so they must be
// the same to the letter; of others, what was not redacted has the same digest.
func (x *Examined) CompareLog(r Row, m events.LogMessage) {
	differs := func(field, format string, args ...any) {
		x.problems = append(x.problems, problemOf(CodeLog, x.seq, field, format, args...))
	}
	x.compared = true
	if m.Subject != r.Subject {
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
		if !bytes.Equal(m.Body, rec.Body) {
			differs("body", "the log has another %s at this sequence, first at byte %d", rec.Kind, firstDifference(m.Body, rec.Body))
		}
		if m.HeaderValue(events.HeaderSignature) != headerValue(rec.Headers, events.HeaderSignature) {
			differs(signatureField, "the log has another signature on this %s", rec.Kind)
		}
	case len(rec.Redactions) == 0 && rec.Reason == "" && rec.BodyDigest != digest.Plain(m.Body):
		differs("body_digest", "the log has a body with digest %.24s at this sequence, the record says %.24s", digest.Plain(m.Body), rec.BodyDigest)
	}
}
