package fact

import (
	"crypto/ed25519"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// DecodedDecision is what a message among the decisions says, before anything is known
// of the log.
type DecodedDecision struct {
	Fact      Fact // what the decision says, if it counts
	record    RecordedVerdict
	Decision  events.Decision
	Err       error // why it could not be read
	Misplaced bool  // it is not where its fields say that it belongs
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
	f.IdSum()
	f.OriginHashes()
	f.OwnReceiptKey()
	f.FirstCallSum = CallSum(f.Key, f.CallKey, 1)
}

// matchesToken reports whether the value of a subject's token is what its record says.
func matchesToken(inSubject, inRecord string) bool {
	return TokenOf(inSubject) == subject.Escape(inRecord)
}

// decodeDecisionRecord reads a decision. Its texts do not hold on to the message.
func (d *Decoder) decodeDecisionRecord(body []byte) (r events.Decision, err error) {
	r, err = events.DecodeRecord[events.Decision](body)
	for _, again := range []*string{&r.Tenant, &r.Protocol, &r.Source, &r.Session, &r.Agent, &r.Tool, (*string)(&r.Verdict)} {
		*again = d.Intern(*again)
	}
	for _, once := range []*string{&r.DecisionID, &r.EventID, &r.ToolCallID, &r.ArgsDigest, &r.Traceparent} {
		*once = strings.Clone(*once)
	}
	if a := r.Approval; a != nil {
		a.Status, a.WorkflowID, a.ActionID = d.Intern(a.Status), strings.Clone(a.WorkflowID), strings.Clone(a.ActionID)
	}
	return r, err
}

// UnverifiedFact is what a decision that does not count says as far as it is believed.
func (v *DecodedDecision) UnverifiedFact(m *events.LogMessage, p *subject.Parsed) *Fact {
	f := Unread(*m, *p)
	if f.Kind = KindDecision; v.Err == nil {
		f.EventID = v.Decision.EventID
		f.Source, f.Key.Source = BoundID(v.Decision.Source), subject.Escape(v.Decision.Source)
	}
	return f
}

// VerifiedSignature is that a message's signature was verified, and by which key. Whether that
// key counts is for the log to say.
type VerifiedSignature struct {
	Kid string
	Key ed25519.PublicKey // nil if nothing was verified
}

// verifySignature verifies the signature of a message with the keys that are known by
// now, if one of them is its key.
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

// ReadDecision reads a decision that counts; ledger is filled and becomes the fact's
// verdict. What a handoff is decided on is more
// than the arguments of the call that makes it, so its digest is not theirs.
func ReadDecision(f *Fact, ledger *RecordedVerdict, d *events.Decision, protocols Protocols) {
	args := d.ArgsDigest
	protocol := protocols(d.Protocol)
	if protocol.HandsOver {
		args = ""
	}
	f.Kind, f.Protocol, f.EventID, f.Agent = KindDecision, d.Protocol, d.EventID, BoundID(d.Agent)
	f.Origin = OriginOf(d.Tenant, d.Source, d.Session)
	f.SetCall(d.ToolCallID, d.Tool)
	f.LineageRefs.Trace = ValidTraceparent(d.Traceparent)
	f.DecisionID, f.Args = d.DecisionID, Arguments{DecisionDigest: args}
	f.CoreSum = f.ContentSum
	f.Decision = ledger
	*ledger = RecordedVerdict{
		Id: BoundID(d.DecisionID), Seq: f.Seq, At: f.At, Verdict: d.Verdict, Expires: d.ExpiresAt.Time,
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
	f.NamesPolicies, f.DecisionExtras = d.Policy != nil, decisionExtrasOf(d, protocols)
}

// RequestFlags are what a request says that its verdict depends on.
type RequestFlags uint8

const (
	FlagReportsOnly     RequestFlags = 1 << iota // it proposes nothing
	FlagRuntimeRefused                           // its runtime is revoked, denied, expired or not compliant
	FlagDeniedElsewhere                          // another subscriber denied it
	FlagAskedElsewhere                           // another subscriber wants it asked for
	FlagHooksTrusted                             // it names hooks and calls all of them trusted
)

// DecisionExtras is what few decisions say.
type DecisionExtras struct {
	Received, Decided time.Time // by the admitter: the request, and the verdict
	ReasonsSaid
}

// decisionExtrasOf reads it, nil if it does not matter.
func decisionExtrasOf(d *events.Decision, protocols Protocols) *DecisionExtras {
	said := readReasons(d.Reasons, protocols)
	if said == (ReasonsSaid{}) && d.Approval == nil {
		return nil
	}
	return &DecisionExtras{d.ReceivedAt.Time, d.DecidedAt.Time, said}
}

// MandateFlags is what a decision says of the mandate that it was made under, for
// good: no evidence can say otherwise.
type MandateFlags uint8

const (
	MandateExpired MandateFlags = 1 << iota
	MandateNotBegun
	MandateUnbounded
)

// ReasonsSaid is what the reasons of a decision say that later events are held against.
type ReasonsSaid struct {
	MandateFlags     MandateFlags
	OtherFingerprint bool // see fingerprintReason
}

// readReasons reads the reasons that evaluators of protocols gave.
func readReasons(reasons []events.Reason, protocols Protocols) (x ReasonsSaid) {
	for i := range reasons {
		if read := protocols(reasons[i].Evaluator).ReadReason; read != nil {
			said := read(&reasons[i])
			x.MandateFlags |= said.MandateFlags
			x.OtherFingerprint = x.OtherFingerprint || said.OtherFingerprint
		}
	}
	return x
}
