package correlation

import (
	"crypto/ed25519"
	"errors"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// verdict is what a message among the decisions says, before anything is known
// of the log.
type verdict struct {
	fact     fact // what the decision says, if it counts
	ledger   verdictRec
	decision events.Decision
	err      error // why it could not be read
	astray   bool  // it is not where its fields say that it belongs
	seal     seal
}

func (d *Decoder) decision(m events.LogMessage, p subject.Parsed, v *verdict) {
	f := &v.fact
	f.unread(&m, &p)
	if v.decision, v.err = d.decode(m.Body); v.err != nil {
		return
	}
	v.astray = !stands(p.Tenant, v.decision.Tenant) || !stands(p.Verdict, string(v.decision.Verdict)) || !stands(p.Session, v.decision.Session)
	v.seal = d.unseal(m)
	decisionFact(f, &v.ledger, &v.decision)
	f.idSum()
	f.whose()
	f.decidingSum()
	f.firstCall = callSum(f.key, f.slot, 1)
}

// stands tells whether the value of a subject's token is what its record says.
func stands(inSubject, inRecord string) bool {
	return tokenOf(inSubject) == subject.Escape(inRecord)
}

// decode reads a decision. Its texts do not hold on to the message.
func (d *Decoder) decode(body []byte) (r events.Decision, err error) {
	if d.longWay {
		return events.DecodeRecord[events.Decision](body)
	}
	r, err = events.DecodeRecordFlat[events.Decision](&d.flat, body)
	for _, again := range []*string{&r.Tenant, &r.Protocol, &r.Source, &r.Session, &r.Agent, &r.Tool, (*string)(&r.Verdict)} {
		*again = d.own(*again)
	}
	for _, once := range []*string{&r.DecisionID, &r.EventID, &r.ToolCallID, &r.ArgsDigest, &r.Trace} {
		*once = strings.Clone(*once)
	}
	if a := r.Approval; a != nil {
		a.Status, a.WorkflowID, a.ActionID = d.own(a.Status), strings.Clone(a.WorkflowID), strings.Clone(a.ActionID)
	}
	return r, err
}

// decision takes a message among the decisions. Only one that is signed by a
// vouched key and published where it belongs is a verdict; the others are
// findings and nothing else.
func (c *Correlator) decision(m *events.LogMessage, p *subject.Parsed, v *verdict) {
	if v.err != nil {
		c.forged(v.believed(m, p), detailUndecodable, reason(v.err))
		return
	}
	if what := c.unsigned(m, v.seal); what != "" {
		c.forged(v.believed(m, p), "", what)
		return
	}
	if v.astray {
		c.forged(v.believed(m, p), detailSubject, "tenant, verdict or session differ")
		return
	}
	if !v.decision.Verdict.Valid() {
		c.forged(v.believed(m, p), detailVerdict, "")
		return
	}
	c.m.expectTrace(&v.decision)
	c.m.step(&v.fact)
}

// believed is what a decision that does not count says as far as it is believed.
func (v *verdict) believed(m *events.LogMessage, p *subject.Parsed) *fact {
	f := unread(*m, *p)
	if f.kind = kindDecision; v.err == nil {
		f.eventID = v.decision.EventID
		f.source, f.key.source = show(v.decision.Source), subject.Escape(v.decision.Source)
	}
	return f
}

func (c *Correlator) forged(f *fact, caseOf, what string) {
	c.m.report(ruleForged, nil, f, about(f.eventID).distinct(f.content).detail(caseOf).saying(what))
}

// seal is that a message's signature was verified, and by which key. Whether that
// key counts is for the log to say.
type seal struct {
	kid string
	key ed25519.PublicKey // nil if nothing was verified
}

// unseal verifies the signature of a message with the keys that are known by
// now, if one of them is its key.
func (d *Decoder) unseal(m events.LogMessage) seal {
	token := m.HeaderValue(events.HeaderSignature)
	if d.shared == nil || token == "" {
		return seal{}
	}
	keys := d.shared.Load()
	if keys == nil {
		return seal{}
	}
	d.records.Keys = *keys
	kid, err := d.records.Verify(token, m.Body)
	if err != nil {
		return seal{}
	}
	return seal{kid, (*keys)[kid]}
}

// unsigned says what is wrong with a decision's signature, "" if nothing is.
func (c *Correlator) unsigned(m *events.LogMessage, s seal) string {
	token := m.HeaderValue(events.HeaderSignature)
	if token == "" {
		return "it has no signature"
	}
	kid, err := s.kid, error(nil)
	if s.key == nil || !s.key.Equal(c.keys[s.kid]) {
		kid, err = c.records.Verify(token, m.Body)
	}
	switch {
	case err == nil && c.retired[kid]:
		return "its key was retired before"
	case err == nil:
		return ""
	case errors.Is(err, signing.ErrUnknownKey):
		return "its key is not published, or nobody vouches for it"
	case errors.Is(err, signing.ErrBadSignature):
		return "its signature does not verify"
	}
	return "its signature cannot be read"
}

// decisionFact reads a decision that counts; ledger is filled and becomes the fact's
// verdict. What a handoff is decided on is more
// than the arguments of the call that makes it, so its digest is not theirs.
func decisionFact(f *fact, ledger *verdictRec, d *events.Decision) {
	args := d.ArgsDigest
	if d.Protocol == subject.ProtoHandoff {
		args = ""
	}
	f.kind, f.protocol, f.eventID, f.agent = kindDecision, d.Protocol, d.EventID, show(d.Agent)
	f.origin = originOf(d.Tenant, d.Source, d.Session)
	f.setCall(d.ToolCallID, d.Tool)
	f.lineage.trace = traceparent(d.Trace)
	f.decisionID, f.args = d.DecisionID, arguments{digest: args}
	f.core = f.content
	f.decision = ledger
	*ledger = verdictRec{
		id: show(d.DecisionID), seq: f.seq, at: f.at, verdict: d.Verdict, expires: d.ExpiresAt.Time,
		receipt: d.ReceiptHash != "", digest: args, eventID: d.EventID,
	}
	if a := d.Approval; a != nil {
		f.decision.pending = approval{
			status: a.Status, workflow: show(a.WorkflowID), action: show(a.ActionID), expiresAt: a.ExpiresAt.Time, resume: show(a.ResumePolicy),
		}.ifKnown()
	}
	f.notes, f.under = ledgerNotes(f, d), d.Mandate
	f.judgedBy, f.more = d.Policy != nil, moreOf(d)
}

// approval takes an approval record. Approvals do not change what stands: an
// approved call is decided again, and it is the decision that counts.
func (c *Correlator) approval(m events.LogMessage, p subject.Parsed) {
	a, err := events.DecodeRecord[events.Approval](m.Body)
	if err != nil {
		c.m.invalid(unread(m, p), reason(err))
		return
	}
	c.m.onRecord(workflowKey{tokenOf(p.Tenant), sumOf(a.WorkflowID)}, a.Status, m.Time)
	c.approvalRecord(m, p, a)
}

// What a receipt key must be.
const (
	keyUse       = "receipt"
	keyAlgorithm = "EdDSA"
)

// key takes a published verification key if the checkpoint key vouches for it.
func (c *Correlator) key(m events.LogMessage, p subject.Parsed) {
	if c.vouched == nil || (c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRecord](m.Body)
	if err == nil {
		pub, decodeErr := signing.DecodePublic(k.PublicKey)
		if decodeErr == nil && k.Use == keyUse && k.Algorithm == keyAlgorithm && signing.KeyID(pub) == k.KeyID && c.vouched(k) {
			c.learnKey(k.KeyID, pub)
			return
		}
	}
	c.forged(unread(m, subject.Parsed{}), detailKey, "")
}

// retire takes a key back if the checkpoint key says so. It stays retired, also
// when its record is published again.
func (c *Correlator) retire(m events.LogMessage, p subject.Parsed) {
	if c.retires == nil || (c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
	if err != nil || !c.retires(k) {
		c.forged(unread(m, subject.Parsed{}), detailKey, "")
		return
	}
	c.retired[k.KeyID] = true
}
