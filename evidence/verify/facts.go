package verify

import (
	"bytes"
	"crypto/ed25519"
	"errors"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/scope"
	"github.com/countersign-dev/countersign/evidence/internal/view"
)

// recordFact is what a record contributes to the checks of other records.
type recordFact struct {
	kind      factKind
	id        string       // of the decision
	digest    secretDigest // of the request: as recorded, or as the decision states it
	keyed     bool         // digest is a keyed one
	signature signatureClaim
	receipt   []byte // the decision, if a receipt that was handed in names it
	hash      string // of that receipt
	body      []byte // of a key record or a retirement
}

type factKind uint8

const (
	factNone factKind = iota
	factRequest
	factDecision
	factApproval
	factKey
	factRetired
)

// signatureClaim is a signature on a record. If pub is set, valid is the result of the check
// under that key. Otherwise value and body hold what a later check needs.
type signatureClaim struct {
	seq     uint64
	seconds int64 // broker time
	kind    factKind
	keyID   string
	pub     ed25519.PublicKey
	valid   bool
	masked  bool // it covers a text that the evidence does not hold
	value   string
	body    []byte
}

// collectFacts sets the record's fact, and checks of decisions and approvals what can be
// checked alone.
func (e *Examiner) collectFacts(v *view.Record, sc scope.Scope) {
	kind := string(v.Kind)
	f := &e.result.fact
	switch {
	case sc.Kind == evidence.KindRequest:
		if len(v.DecisionID) > 0 {
			f.kind, f.id = factRequest, string(v.DecisionID)
			f.digest, f.keyed = keyedDigest(v.BodyDigest)
		}
	case kind == evidence.KindDecision:
		e.checkDecision(v, sc)
	case sc.Kind == evidence.KindDecision:
		e.addFinding(CodeDecisionRecord, "kind", "what stands on a subject of decisions could not be parsed")
	case kind == evidence.KindApproval:
		e.checkApproval(v, sc)
	case sc.Kind == evidence.KindApproval:
		e.addFinding(CodeApprovalRecord, "kind", "what stands on a subject of approvals could not be parsed")
	case kind == evidence.KindControl && sc.ControlKind == events.ControlKey:
		f.kind, f.body = factKey, bytes.Clone(v.Body)
	case kind == evidence.KindControl && sc.ControlKind == events.ControlKeyRetired:
		f.kind, f.body = factRetired, bytes.Clone(v.Body)
	}
}

func (e *Examiner) checkDecision(v *view.Record, sc scope.Scope) {
	f := &e.result.fact
	f.kind = factDecision
	d, err := events.DecodeRecord[events.Decision](v.Body)
	if err != nil {
		f.kind = factNone
		e.addFinding(CodeDecisionRecord, "body", "not a decision record")
		return
	}
	f.id = d.DecisionID
	f.digest, f.keyed = keyedDigest([]byte(d.RequestDigest))
	named := sameToken(d.Session, v.Session) || redactedAt(v.Redactions, "/body/session")
	if !sameToken(d.Tenant, v.Tenant) || !named || string(d.Verdict) != sc.State {
		e.addFinding(CodeDecisionRecord, "body", "tenant, session or verdict are not those of its subject")
	}
	f.signature = e.checkSignature(factDecision, v)
	if _, named := e.wantedReceipts[d.ReceiptHash]; named {
		f.receipt, f.hash = bytes.Clone(v.Body), d.ReceiptHash
	}
}

func (e *Examiner) checkApproval(v *view.Record, sc scope.Scope) {
	f := &e.result.fact
	f.kind = factApproval
	a := approvalOf(v.Body)
	if !sameToken(a.Tenant, v.Tenant) || a.Status != sc.State || scope.RecordName(a.WorkflowID) != sc.Workflow {
		e.addFinding(CodeApprovalRecord, "body", "tenant, status or workflow are not those of its subject")
	}
	f.signature = e.checkSignature(factApproval, v)
}

// sameToken reports whether a name in a body is the one that the subject gives.
func sameToken(name string, fromSubject []byte) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return scope.RecordName(name) == string(fromSubject)
		}
	}
	if name == "" || len(name) > 64 {
		return scope.RecordName(name) == string(fromSubject)
	}
	return name == string(fromSubject)
}

// checkSignature checks the signature of a record. A missing or unreadable signature is a
// finding here. Whether the key is trusted is decided later, in the order of the log.
func (e *Examiner) checkSignature(what factKind, v *view.Record) signatureClaim {
	c := signatureClaim{seq: e.result.seq, seconds: v.BrokerTime.Unix(), kind: what}
	if e.noKeys {
		return c
	}
	if len(v.Signature) == 0 {
		e.addFinding(signatureCodes[what].unsigned, signatureField, "the %s has no signature", signatureCodes[what].name)
		return c
	}
	value := string(v.Signature)
	if bodyRedacted(v.Redactions) { // the signature covers text that was redacted: only the log can prove it
		if c.masked = signerOf(value, v.Body) != ""; !c.masked {
			e.addUnreadable(what)
		}
		return c
	}
	kid, err := e.recordVerifier.Verify(value, v.Body)
	c.keyID = kid
	switch {
	case errors.Is(err, signing.ErrUnknownKey):
		c.value, c.body = value, bytes.Clone(v.Body)
	case kid == "":
		e.addUnreadable(what)
	default:
		if c.pub, c.valid = e.recordVerifier.Keys[kid], err == nil; len(c.pub) == 0 { // two keys of one id
			c.pub, c.value, c.body = nil, value, bytes.Clone(v.Body)
		}
	}
	return c
}

func (e *Examiner) addUnreadable(what factKind) {
	e.addFinding(signatureCodes[what].forged, signatureField, "the %s has no signature that can be read", signatureCodes[what].name)
}

// signerOf returns the id of the key that a signature names, "" if the signature cannot be read. It
// checks the form alone, which does not depend on the body.
func signerOf(value string, body []byte) string {
	kid, _ := (&signing.RecordVerifier{}).Verify(value, body)
	return kid
}

const signatureField = "headers/" + events.HeaderSignature

// signatureCodes are the codes of findings about the signatures of a kind of record.
var signatureCodes = map[factKind]struct {
	name                               string
	unsigned, forged, unknown, retired Code
}{
	factDecision: {"decision", CodeDecisionUnsigned, CodeDecisionSignature, CodeDecisionKey, CodeDecisionRetired},
	factApproval: {"approval", CodeApprovalUnsigned, CodeApprovalSignature, CodeApprovalKey, CodeApprovalRetired},
}

// severityOf decodes the severity of a finding; "" if it cannot be decoded.
func severityOf(body []byte) string {
	var f struct {
		Severity string `json:"severity"`
	}
	_ = strictjson.Unmarshal(body, &f)
	return f.Severity
}

// approvalOf decodes what an approval record says of its subject. Members that cannot be
// decoded are empty, and match no subject.
func approvalOf(body []byte) (a struct {
	Tenant     string `json:"tenant"`
	Status     string `json:"status"`
	Session    string `json:"session"`
	WorkflowID string `json:"workflow_id"`
}) {
	_ = strictjson.Unmarshal(body, &a)
	return a
}
