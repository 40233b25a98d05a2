package correlation

import (
	"errors"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// applyDecision takes a message among the decisions. Only one that is signed by a
// vouched key and published where it belongs is a verdict; the others are
// findings and nothing else.
func (c *Correlator) applyDecision(m *events.LogMessage, p *subject.Parsed, v *fact.DecodedDecision) {
	if v.Err != nil {
		c.reportForged(v.UnverifiedFact(m, p), caseUndecodable, fact.DecodeErrorText(v.Err))
		return
	}
	if what := c.signatureDefect(m, v.Signature); what != "" {
		c.reportForged(v.UnverifiedFact(m, p), "", what)
		return
	}
	if v.Misplaced {
		c.reportForged(v.UnverifiedFact(m, p), caseSubject, "tenant, verdict or session differ")
		return
	}
	if !v.Decision.Verdict.Valid() {
		c.reportForged(v.UnverifiedFact(m, p), caseVerdict, "")
		return
	}
	c.engine.traces.Expect(&v.Decision)
	c.engine.processFact(&v.Fact)
}

func (c *Correlator) reportForged(f *fact.Fact, caseOf, what string) {
	c.engine.findings.reportRule(ruleForged, nil, f, findingFrom(f.EventID).withContent(f.ContentSum).withCase(caseOf).withText(what))
}

// signatureDefect says what is wrong with a decision's signature, "" if nothing is.
func (c *Correlator) signatureDefect(m *events.LogMessage, s fact.VerifiedSignature) string {
	token := m.HeaderValue(events.HeaderSignature)
	if token == "" {
		return "it has no signature"
	}
	kid, err := s.Kid, error(nil)
	if s.Key == nil || !s.Key.Equal(c.keys[s.Kid]) {
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

// applyApproval takes an approval record. Approvals do not change what stands: an
// approved call is decided again, and it is the decision that counts.
func (c *Correlator) applyApproval(m events.LogMessage, p subject.Parsed) {
	a, err := events.DecodeRecord[events.Approval](m.Body)
	if err != nil {
		c.engine.findings.reportInvalid(fact.Unread(m, p), fact.DecodeErrorText(err))
		return
	}
	c.engine.approvals.recordApprovalStatus(workflowKey{fact.TokenOf(p.Tenant), fact.SumOf(a.WorkflowID)}, a.Status, m.Time)
	c.checkApprovalRecord(m, p, a)
}

// What a receipt key must be.
const (
	keyUse       = "receipt"
	keyAlgorithm = "EdDSA"
)

// applyKeyRecord takes a published verification key if the checkpoint key vouches for it.
func (c *Correlator) applyKeyRecord(m events.LogMessage, p subject.Parsed) {
	if c.vouchForKey == nil || (c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard)) {
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
	c.reportForged(fact.Unread(m, subject.Parsed{}), caseKey, "")
}

// retireKey takes a key back if the checkpoint key says so. It stays retired, also
// when its record is published again.
func (c *Correlator) retireKey(m events.LogMessage, p subject.Parsed) {
	if c.vouchForRetirement == nil || (c.shard != "" && fact.TokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
	if err != nil || !c.vouchForRetirement(k) {
		c.reportForged(fact.Unread(m, subject.Parsed{}), caseKey, "")
		return
	}
	c.retiredKeys[k.KeyID] = true
}
