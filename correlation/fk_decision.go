package correlation

import (
	"crypto/ed25519"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
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
	decisionFact(f, &v.record, &v.decision, d.protocols)
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

// unverifiedFact is what a decision that does not count says as far as it is believed.
func (v *decodedDecision) unverifiedFact(m *events.LogMessage, p *subject.Parsed) *fact {
	f := unreadFact(*m, *p)
	if f.kind = kindDecision; v.err == nil {
		f.eventID = v.decision.EventID
		f.source, f.key.source = boundID(v.decision.Source), subject.Escape(v.decision.Source)
	}
	return f
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

// decisionFact reads a decision that counts; ledger is filled and becomes the fact's
// verdict. What a handoff is decided on is more
// than the arguments of the call that makes it, so its digest is not theirs.
func decisionFact(f *fact, ledger *recordedVerdict, d *events.Decision, protocols readings) {
	args := d.ArgsDigest
	protocol := protocols(d.Protocol)
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
	f.namesPolicies, f.decisionExtras = d.Policy != nil, decisionExtrasOf(d, protocols)
}

// requestFlags are what a request says that its verdict depends on.
type requestFlags uint8

const (
	flagReportsOnly     requestFlags = 1 << iota // it proposes nothing
	flagRuntimeRefused                           // its runtime is revoked, denied, expired or not compliant
	flagDeniedElsewhere                          // another subscriber denied it
	flagAskedElsewhere                           // another subscriber wants it asked for
	flagHooksTrusted                             // it names hooks and calls all of them trusted
)

// decisionExtras is what few decisions say.
type decisionExtras struct {
	received, decided time.Time // by the admitter: the request, and the verdict
	reasonsSaid
}

// decisionExtrasOf reads it, nil if it does not matter.
func decisionExtrasOf(d *events.Decision, protocols readings) *decisionExtras {
	said := readReasons(d.Reasons, protocols)
	if said == (reasonsSaid{}) && d.Approval == nil {
		return nil
	}
	return &decisionExtras{d.ReceivedAt.Time, d.DecidedAt.Time, said}
}

// mandateFlags is what a decision says of the mandate that it was made under, for
// good: no evidence can say otherwise.
type mandateFlags uint8

const (
	mandateExpired mandateFlags = 1 << iota
	mandateNotBegun
	mandateUnbounded
)

// reasonsSaid is what the reasons of a decision say that later events are held against.
type reasonsSaid struct {
	mandateFlags     mandateFlags
	otherFingerprint bool // see fingerprintReason
}

// readReasons reads the reasons that evaluators of protocols gave.
func readReasons(reasons []events.Reason, protocols readings) (x reasonsSaid) {
	for i := range reasons {
		if read := protocols(reasons[i].Evaluator).readReason; read != nil {
			said := read(&reasons[i])
			x.mandateFlags |= said.mandateFlags
			x.otherFingerprint = x.otherFingerprint || said.otherFingerprint
		}
	}
	return x
}
