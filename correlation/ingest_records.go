package correlation

import (
	"crypto/ed25519"
	"errors"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// decodedDecision is what a message among the decisions says, before anything is known
// of the log.
type decodedDecision struct {
	fact      fact // what the decision says, if it counts
	record    recordedVerdict
	decision  events.Decision
	err       error // why it could not be read
	misplaced bool  // it is not where its fields say that it belongs
	signature verifiedSignature
}

func (d *Decoder) decodeDecision(m events.LogMessage, p subject.Parsed, v *decodedDecision) {
	f := &v.fact
	f.setUnread(&m, &p)
	if v.decision, v.err = d.decodeDecisionRecord(m.Body); v.err != nil {
		return
	}
	v.misplaced = !matchesToken(p.Tenant, v.decision.Tenant) || !matchesToken(p.Verdict, string(v.decision.Verdict)) || !matchesToken(p.Session, v.decision.Session)
	v.signature = d.verifySignature(m)
	decisionFact(f, &v.record, &v.decision)
	f.idSum()
	f.originHashes()
	f.ownReceiptKey()
	f.firstCallSum = callSum(f.key, f.callKey, 1)
}

// matchesToken reports whether the value of a subject's token is what its record says.
func matchesToken(inSubject, inRecord string) bool {
	return tokenOf(inSubject) == subject.Escape(inRecord)
}

// decodeDecisionRecord reads a decision. Its texts do not hold on to the message.
func (d *Decoder) decodeDecisionRecord(body []byte) (r events.Decision, err error) {
	r, err = events.DecodeRecord[events.Decision](body)
	for _, again := range []*string{&r.Tenant, &r.Protocol, &r.Source, &r.Session, &r.Agent, &r.Tool, (*string)(&r.Verdict)} {
		*again = d.intern(*again)
	}
	for _, once := range []*string{&r.DecisionID, &r.EventID, &r.ToolCallID, &r.ArgsDigest, &r.Trace} {
		*once = strings.Clone(*once)
	}
	if a := r.Approval; a != nil {
		a.Status, a.WorkflowID, a.ActionID = d.intern(a.Status), strings.Clone(a.WorkflowID), strings.Clone(a.ActionID)
	}
	return r, err
}

// applyDecision takes a message among the decisions. Only one that is signed by a
// vouched key and published where it belongs is a verdict; the others are
// findings and nothing else.
func (c *Correlator) applyDecision(m *events.LogMessage, p *subject.Parsed, v *decodedDecision) {
	if v.err != nil {
		c.reportForged(v.unverifiedFact(m, p), caseUndecodable, decodeErrorText(v.err))
		return
	}
	if what := c.signatureDefect(m, v.signature); what != "" {
		c.reportForged(v.unverifiedFact(m, p), "", what)
		return
	}
	if v.misplaced {
		c.reportForged(v.unverifiedFact(m, p), caseSubject, "tenant, verdict or session differ")
		return
	}
	if !v.decision.Verdict.Valid() {
		c.reportForged(v.unverifiedFact(m, p), caseVerdict, "")
		return
	}
	c.engine.admissions.expectTrace(&v.decision)
	c.engine.processFact(&v.fact)
}

// unverifiedFact is what a decision that does not count says as far as it is believed.
func (v *decodedDecision) unverifiedFact(m *events.LogMessage, p *subject.Parsed) *fact {
	f := unreadFact(*m, *p)
	if f.kind = kindDecision; v.err == nil {
		f.eventID = v.decision.EventID
		f.source, f.key.source = boundID(v.decision.Source), subject.Escape(v.decision.Source)
	}
	return f
}

func (c *Correlator) reportForged(f *fact, caseOf, what string) {
	c.engine.findings.reportRule(ruleForged, nil, f, findingFrom(f.eventID).withContent(f.contentSum).withCase(caseOf).withText(what))
}

// verifiedSignature is that a message's signature was verified, and by which key. Whether that
// key counts is for the log to say.
type verifiedSignature struct {
	kid string
	key ed25519.PublicKey // nil if nothing was verified
}

// verifySignature verifies the signature of a message with the keys that are known by
// now, if one of them is its key.
func (d *Decoder) verifySignature(m events.LogMessage) verifiedSignature {
	token := m.HeaderValue(events.HeaderSignature)
	if d.sharedKeys == nil || token == "" {
		return verifiedSignature{}
	}
	keys := d.sharedKeys.Load()
	if keys == nil {
		return verifiedSignature{}
	}
	d.records.Keys = *keys
	kid, err := d.records.Verify(token, m.Body)
	if err != nil {
		return verifiedSignature{}
	}
	return verifiedSignature{kid, (*keys)[kid]}
}

// signatureDefect says what is wrong with a decision's signature, "" if nothing is.
func (c *Correlator) signatureDefect(m *events.LogMessage, s verifiedSignature) string {
	token := m.HeaderValue(events.HeaderSignature)
	if token == "" {
		return "it has no signature"
	}
	kid, err := s.kid, error(nil)
	if s.key == nil || !s.key.Equal(c.keys[s.kid]) {
		kid, err = c.records.Verify(token, m.Body)
	}
	switch {
	case err == nil && c.retiredKeys[kid]:
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
func decisionFact(f *fact, ledger *recordedVerdict, d *events.Decision) {
	args := d.ArgsDigest
	protocol := rowOf(d.Protocol)
	if protocol.handsOver {
		args = ""
	}
	f.kind, f.protocol, f.eventID, f.agent = kindDecision, d.Protocol, d.EventID, boundID(d.Agent)
	f.origin = originOf(d.Tenant, d.Source, d.Session)
	f.setCall(d.ToolCallID, d.Tool)
	f.lineageRefs.trace = validTraceparent(d.Trace)
	f.decisionID, f.args = d.DecisionID, arguments{decisionDigest: args}
	f.coreSum = f.contentSum
	f.decision = ledger
	*ledger = recordedVerdict{
		id: boundID(d.DecisionID), seq: f.seq, at: f.at, verdict: d.Verdict, expires: d.ExpiresAt.Time,
		hasReceipt: d.ReceiptHash != "", argsDigest: args, eventID: d.EventID,
	}
	if a := d.Approval; a != nil {
		f.decision.approval = approval{
			status: a.Status, workflow: boundID(a.WorkflowID), action: boundID(a.ActionID), expiresAt: a.ExpiresAt.Time, resumePolicy: boundID(a.ResumePolicy),
		}.pointerOrNil()
	}
	f.mandateRef = d.Mandate
	if protocol.checkDecision != nil {
		f.eventFindings = protocol.checkDecision(f, d)
	}
	f.namesPolicies, f.decisionExtras = d.Policy != nil, decisionExtrasOf(d)
}

// applyApproval takes an approval record. Approvals do not change what stands: an
// approved call is decided again, and it is the decision that counts.
func (c *Correlator) applyApproval(m events.LogMessage, p subject.Parsed) {
	a, err := events.DecodeRecord[events.Approval](m.Body)
	if err != nil {
		c.engine.findings.reportInvalid(unreadFact(m, p), decodeErrorText(err))
		return
	}
	c.engine.approvals.recordApprovalStatus(workflowKey{tokenOf(p.Tenant), sumOf(a.WorkflowID)}, a.Status, m.Time)
	c.checkApprovalRecord(m, p, a)
}

// What a receipt key must be.
const (
	keyUse       = "receipt"
	keyAlgorithm = "EdDSA"
)

// applyKeyRecord takes a published verification key if the checkpoint key vouches for it.
func (c *Correlator) applyKeyRecord(m events.LogMessage, p subject.Parsed) {
	if c.vouchForKey == nil || (c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRecord](m.Body)
	if err == nil {
		pub, decodeErr := signing.DecodePublic(k.PublicKey)
		if decodeErr == nil && k.Use == keyUse && k.Algorithm == keyAlgorithm && signing.KeyID(pub) == k.KeyID && c.vouchForKey(k) {
			c.addKey(k.KeyID, pub)
			return
		}
	}
	c.reportForged(unreadFact(m, subject.Parsed{}), caseKey, "")
}

// retireKey takes a key back if the checkpoint key says so. It stays retired, also
// when its record is published again.
func (c *Correlator) retireKey(m events.LogMessage, p subject.Parsed) {
	if c.vouchForRetirement == nil || (c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
	if err != nil || !c.vouchForRetirement(k) {
		c.reportForged(unreadFact(m, subject.Parsed{}), caseKey, "")
		return
	}
	c.retiredKeys[k.KeyID] = true
}
