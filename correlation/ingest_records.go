package correlation

import (
	"errors"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

// decision takes a message among the decisions. Only one that is signed by a
// vouched key and published where it belongs is a verdict; the others are
// findings and nothing else.
func (c *Correlator) decision(m events.LogMessage, p subject.Parsed) {
	f := envelope(m, p)
	f.kind = kindDecision
	d, err := events.DecodeRecord[events.Decision](m.Body)
	if err != nil {
		c.forged(f, detailUndecodable, reason(err))
		return
	}
	f.eventID = d.EventID
	f.source, f.key.source = show(d.Source), subject.Escape(d.Source)
	if what := c.unsigned(m); what != "" {
		c.forged(f, "", what)
		return
	}
	if c.space.Decision(d.Tenant, string(d.Verdict), d.Session) != m.Subject {
		c.forged(f, detailSubject, "tenant, verdict or session differ")
		return
	}
	if !d.Verdict.Valid() {
		c.forged(f, detailVerdict, "")
		return
	}
	decisionFact(f, d)
	c.m.expectTrace(d)
	c.m.step(f)
}

func (c *Correlator) forged(f *fact, caseOf, what string) {
	c.m.report(ruleForged, nil, f, about(f.eventID).distinct(f.content).detail(caseOf).saying(what))
}

// unsigned says what is wrong with a decision's signature, "" if nothing is.
func (c *Correlator) unsigned(m events.LogMessage) string {
	token := m.HeaderValue(events.HeaderSignature)
	if token == "" {
		return "it has no signature"
	}
	kid, err := c.records.Verify(token, m.Body)
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

// decisionFact reads a decision that counts. What a handoff is decided on is more
// than the arguments of the call that makes it, so its digest is not theirs.
func decisionFact(f *fact, d events.Decision) {
	if d.Protocol == subject.ProtoHandoff {
		d.ArgsDigest = ""
	}
	f.kind, f.protocol, f.eventID, f.agent = kindDecision, d.Protocol, d.EventID, show(d.Agent)
	f.origin = originOf(d.Tenant, d.Source, d.Session)
	f.setCall(d.ToolCallID, d.Tool)
	f.decisionID, f.args = d.DecisionID, arguments{digest: d.ArgsDigest}
	f.core = f.content
	f.decision = verdictRec{
		id: show(d.DecisionID), seq: f.seq, at: f.at, verdict: d.Verdict, expires: d.ExpiresAt.Time,
		receipt: d.ReceiptHash != "", args: f.args, eventID: d.EventID,
	}
	if a := d.Approval; a != nil {
		f.decision.pending = approval{
			status: a.Status, workflow: show(a.WorkflowID), action: show(a.ActionID), expiresAt: a.ExpiresAt.Time,
		}
	}
}

// approval takes an approval record. Approvals do not change what stands: an
// approved call is decided again, and it is the decision that counts.
func (c *Correlator) approval(m events.LogMessage, p subject.Parsed) {
	a, err := events.DecodeRecord[events.Approval](m.Body)
	if err != nil {
		c.m.invalid(envelope(m, p), reason(err))
		return
	}
	c.m.ledger.put(workflowKey{tokenOf(p.Tenant), sumOf(a.WorkflowID)}, a.Status)
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
			c.keys[k.KeyID] = pub
			return
		}
	}
	f := envelope(m, subject.Parsed{})
	c.forged(f, detailKey, "")
}

// retire takes a key back if the checkpoint key says so. It stays retired, also
// when its record is published again.
func (c *Correlator) retire(m events.LogMessage, p subject.Parsed) {
	if c.retires == nil || (c.shard != "" && tokenOf(p.Shard) != subject.Escape(c.shard)) {
		return
	}
	k, err := events.DecodeRecord[events.KeyRetirement](m.Body)
	if err != nil || !c.retires(k) {
		c.forged(envelope(m, subject.Parsed{}), detailKey, "")
		return
	}
	c.retired[k.KeyID] = true
}
