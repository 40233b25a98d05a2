package fact

import (
	"crypto/ed25519"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// DecodedDecision is a decoded message among the decisions.
type DecodedDecision struct {
	Fact      Fact // the decision's fact, if it counts
	record    RecordedVerdict
	Decision  events.Decision
	Err       error // decoding failed
	Misplaced bool  // its subject contradicts its fields
	Signature VerifiedSignature
}

func (d *Decoder) decodeDecision(m events.LogMessage, p subject.Parsed, v *DecodedDecision) {
	f := &v.Fact
	f.setUnread(&m, &p)
	if v.Decision, v.Err = d.decodeDecisionRecord(m.Body); v.Err != nil {
		return
	}
	v.Misplaced = !matchesToken(p.Tenant, v.Decision.Tenant) || !matchesToken(p.Verdict, string(v.Decision.Verdict)) || !matchesToken(p.Session, v.Decision.Session)
	v.Signature = d.verifySignature(m)
	ReadDecision(f, &v.record, &v.Decision, d.Protocols)
	f.IDSum()
	f.OwnReceiptKey()
	f.FirstCallSum = CallSum(f.Key, f.CallKey, 1)
}

// matchesToken reports whether a subject's token and a record's value are the same.
func matchesToken(inSubject, inRecord string) bool {
	return TokenOf(inSubject) == subject.Escape(inRecord)
}

// decodeDecisionRecord decodes a decision. Frequent texts share one copy.
func (d *Decoder) decodeDecisionRecord(body []byte) (r events.Decision, err error) {
	r, err = events.DecodeRecord[events.Decision](body)
	for _, again := range []*string{&r.Tenant, &r.Protocol, &r.Source, &r.Session, &r.Agent, &r.Tool, (*string)(&r.Verdict)} {
		*again = d.Intern(*again)
	}
	if a := r.Approval; a != nil {
		a.Status = d.Intern(a.Status)
	}
	return r, err
}

// UnverifiedFact is the fact of a decision that does not count. Only its event id and source
// are taken over.
func (v *DecodedDecision) UnverifiedFact(m *events.LogMessage, p *subject.Parsed) *Fact {
	f := EnvelopeFact(*m, *p)
	if f.Kind = KindDecision; v.Err == nil {
		f.EventID = v.Decision.EventID
		f.Source, f.Key.Source = BoundID(v.Decision.Source), subject.Escape(v.Decision.Source)
	}
	return f
}

// VerifiedSignature is a verified signature and its key. The Correlator decides whether that
// key counts.
type VerifiedSignature struct {
	Kid string
	Key ed25519.PublicKey // nil if no signature was verified
}

// verifySignature verifies a message's signature, if one of the keys known so far made it.
func (d *Decoder) verifySignature(m events.LogMessage) VerifiedSignature {
	token := m.HeaderValue(events.HeaderSignature)
	if d.sharedKeys == nil || token == "" {
		return VerifiedSignature{}
	}
	keys := d.sharedKeys.Load()
	if keys == nil {
		return VerifiedSignature{}
	}
	d.records.Keys = *keys
	kid, err := d.records.Verify(token, m.Body)
	if err != nil {
		return VerifiedSignature{}
	}
	return VerifiedSignature{kid, (*keys)[kid]}
}

// ReadDecision sets f to the fact of a decision that counts. It fills verdict and stores it in
// the fact. The decision on a handoff is about more than the arguments of its call, so its
// digest is not used.
func ReadDecision(f *Fact, verdict *RecordedVerdict, d *events.Decision, find FindProtocol) {
	args := d.ArgsDigest
	protocol := find(d.Protocol)
	if protocol.HandsOver {
		args = ""
	}
	f.Kind, f.Protocol, f.EventID, f.Agent = KindDecision, d.Protocol, d.EventID, BoundID(d.Agent)
	f.Origin = OriginOf(d.Tenant, d.Source, d.Session)
	f.SetCall(d.ToolCallID, d.Tool)
	f.LineageRefs.Trace = ValidTraceparent(d.Traceparent)
	f.DecisionID, f.Args = d.DecisionID, Arguments{DecisionDigest: args}
	f.CoreSum = f.ContentSum
	f.Decision = verdict
	*verdict = RecordedVerdict{
		ID: BoundID(d.DecisionID), Seq: f.Seq, At: f.At, Verdict: d.Verdict, Expires: d.ExpiresAt.Time,
		HasReceipt: d.ReceiptHash != "", ArgsDigest: args, EventID: d.EventID,
	}
	if a := d.Approval; a != nil {
		f.Decision.Approval = Approval{
			Status: a.Status, Workflow: BoundID(a.WorkflowID), Action: BoundID(a.ActionID), ExpiresAt: a.ExpiresAt.Time, ResumePolicy: BoundID(a.ResumePolicy),
		}.PointerOrNil()
	}
	f.MandateRef = d.Mandate
	if protocol.CheckDecision != nil {
		f.EventFindings = protocol.CheckDecision(f, d)
	}
	f.NamesPolicies, f.DecisionExtras = d.Policy != nil, decisionExtrasOf(d, find)
}

// RequestFlags are statements of a request that restrict its verdict.
type RequestFlags uint8

const (
	FlagReportsOnly     RequestFlags = 1 << iota // it proposes nothing
	FlagRuntimeRefused                           // its runtime is revoked, denied, expired or not compliant
	FlagDeniedElsewhere                          // another subscriber denied it
	FlagAskedElsewhere                           // another subscriber wants it asked for
	FlagHooksTrusted                             // it says that all hooks it names are trusted
)

// DecisionExtras are fields that few decisions need.
type DecisionExtras struct {
	Received, Decided time.Time // when the admitter received the request and decided on it
	ReasonsSaid
}

// decisionExtrasOf returns the extras of a decision, nil if they are not needed.
func decisionExtrasOf(d *events.Decision, find FindProtocol) *DecisionExtras {
	said := readReasons(d.Reasons, find)
	if said == (ReasonsSaid{}) && d.Approval == nil {
		return nil
	}
	return &DecisionExtras{d.ReceivedAt.Time, d.DecidedAt.Time, said}
}

// MandateFlags are final statements of a decision about its mandate. No later evidence changes
// them.
type MandateFlags uint8

const (
	MandateExpired MandateFlags = 1 << iota
	MandateNotBegun
	MandateUnbounded
)

// ReasonsSaid is what the reasons of a decision say and later events are compared with.
type ReasonsSaid struct {
	MandateFlags     MandateFlags
	OtherFingerprint bool // the fingerprint of a hook differs from the manifest's
}

// readReasons reads the reasons of the protocols' evaluators.
func readReasons(reasons []events.Reason, find FindProtocol) (x ReasonsSaid) {
	for i := range reasons {
		if read := find(reasons[i].Evaluator).ReadReason; read != nil {
			said := read(&reasons[i])
			x.MandateFlags |= said.MandateFlags
			x.OtherFingerprint = x.OtherFingerprint || said.OtherFingerprint
		}
	}
	return x
}
