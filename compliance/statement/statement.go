// Package statement signs and checks the statement of a bundle: an in-toto Statement v1 over the digests
// of all other members, in a DSSE envelope (secure-systems-lab/dsse, protocol 1.0.2), signed with
// Ed25519. Package bundle calls Sign and Open.
//
// What a bundle proves does not rely on the statement, but on records, proofs and checkpoint. The
// statement says which key's holder handed out this very file, and it covers members that follow from
// the records only by a program's rules, such as the report. Begin with Statement and Sign.
package statement

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// The types of the envelope and of its content.
const (
	PayloadType   = "application/vnd.in-toto+json"
	Type          = "https://in-toto.io/Statement/v1"
	PredicateType = "https://schemas.countersign.dev/countersign/bundle-statement/v1"
)

// ErrStatement says that a member is not a readable statement, or that it does not verify.
var ErrStatement = errors.New("not a valid statement")

// statementLimits bound the input: a statement names a dozen members.
var statementLimits = strictjson.Limits{MaxBytes: 1 << 20, MaxDepth: 16}

// Statement is the payload.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"` // all members except this one, by name
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// Subject is one member and its digest.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"` // sha256, hex
}

// Predicate repeats what the bundle holds, so that a statement cannot be moved to another bundle, and
// names the signing key.
type Predicate struct {
	Format     string     `json:"format"`
	Tenant     string     `json:"tenant"`
	Session    string     `json:"session,omitempty"`
	From       string     `json:"from,omitempty"` // of a range
	To         string     `json:"to,omitempty"`
	Shard      string     `json:"shard"`
	Records    int        `json:"records"`
	Checkpoint Checkpoint `json:"checkpoint"`
	PublicKey  string     `json:"public_key"` // unpadded base64url
}

// Checkpoint is the size and root that the records lead to.
type Checkpoint struct {
	Size int64  `json:"size"`
	Root string `json:"root"`
}

// Envelope is the DSSE envelope.
type Envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"` // standard base64
	Signatures  []Signature `json:"signatures"`
}

// Signature is one signature over the pre-authentication encoding.
type Signature struct {
	KeyID string `json:"keyid"` // first 16 hex digits of the SHA-256 of the public key
	Sig   string `json:"sig"`   // standard base64
}

// preAuthEncoding is what is signed. No text that a note key signs begins like it.
func preAuthEncoding(payload []byte) []byte {
	head := "DSSEv1 " + strconv.Itoa(len(PayloadType)) + " " + PayloadType + " " + strconv.Itoa(len(payload)) + " "
	return append([]byte(head), payload...)
}

// The statement is a DSSE envelope {payload, payloadType, signatures: [{keyid, sig}]} in RFC 8785 form and
// LF: one Ed25519 signature over "DSSEv1 <length of type> <type> <length of payload> <payload>"; payload
// and signature in standard base64. payloadType is application/vnd.in-toto+json; the payload is an
// in-toto Statement v1 in RFC 8785 form: subject lists every other member, the manifest included,
// sorted by name, each with its sha256; predicateType is
// https://schemas.countersign.dev/countersign/bundle-statement/v1; predicate is {format, tenant,
// session?, from?, to?, shard, records, checkpoint: {size, root}, public_key}. keyid is the first 16
// hex digits of the SHA-256 of the public key. Whose key it is must be known from elsewhere.
//
// The predicate's public key is the signer's. The same members, predicate and key give the same bytes.
func Sign(key ed25519.PrivateKey, subjects []Subject, p Predicate) ([]byte, error) {
	public := key.Public().(ed25519.PublicKey)
	p.PublicKey = signing.EncodePublic(public)
	subjects = slices.Clone(subjects)
	slices.SortFunc(subjects, func(a, b Subject) int { return strings.Compare(a.Name, b.Name) })
	payload, err := canonicalJSON(Statement{Type: Type, Subject: subjects, PredicateType: PredicateType, Predicate: p})
	if err != nil {
		return nil, err
	}
	envelope, err := canonicalJSON(Envelope{PayloadType: PayloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []Signature{{KeyID: signing.KeyID(public), Sig: base64.StdEncoding.EncodeToString(ed25519.Sign(key, preAuthEncoding(payload)))}}})
	if err != nil {
		return nil, err
	}
	return append(envelope, '\n'), nil
}

func canonicalJSON(v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return strictjson.CanonicalBytes(plain)
}

// Opened is a statement with a valid signature by the key that it names.
type Opened struct {
	Statement
	Key ed25519.PublicKey
}

// KeyID is the id of the signing key.
func (o Opened) KeyID() string { return signing.KeyID(o.Key) }

// Open parses an envelope and checks its signature with the key that the statement names. The caller
// must check that this key is trusted.
func Open(raw []byte) (Opened, error) {
	var o Opened
	var env Envelope
	if err := decodeStrict(raw, &env); err != nil {
		return o, err
	}
	if env.PayloadType != PayloadType || len(env.Signatures) != 1 {
		return o, fmt.Errorf("%w: want one signature over %s", ErrStatement, PayloadType)
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(env.Payload)
	if err != nil {
		return o, fmt.Errorf("%w: the payload is not base64", ErrStatement)
	}
	if err := decodeStrict(payload, &o.Statement); err != nil {
		return o, err
	}
	if again, err := canonicalJSON(o.Statement); err != nil || string(again) != string(payload) {
		return o, fmt.Errorf("%w: the payload is not in the form of RFC 8785", ErrStatement)
	}
	if o.Type != Type || o.PredicateType != PredicateType {
		return o, fmt.Errorf("%w: type %.80q about %.80q; this program reads %s about %s", ErrStatement, o.Type, o.PredicateType, Type, PredicateType)
	}
	if o.Key, err = signing.DecodePublic(o.Predicate.PublicKey); err != nil {
		return o, fmt.Errorf("%w: it names no Ed25519 key", ErrStatement)
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(env.Signatures[0].Sig)
	if err != nil || env.Signatures[0].KeyID != signing.KeyID(o.Key) || !ed25519.Verify(o.Key, preAuthEncoding(payload), sig) {
		return o, fmt.Errorf("%w: the signature is not by key %s over this payload", ErrStatement, signing.KeyID(o.Key))
	}
	again, err := Envelope{PayloadType: PayloadType, Payload: env.Payload, Signatures: env.Signatures}.payloadBytes()
	if err != nil || string(again) != string(raw) {
		return o, fmt.Errorf("%w: the envelope is not in its one spelling", ErrStatement)
	}
	return o, nil
}

func (e Envelope) payloadBytes() ([]byte, error) {
	b, err := canonicalJSON(e)
	return append(b, '\n'), err
}

func decodeStrict(raw []byte, into any) error {
	if _, err := strictjson.Parse(raw, statementLimits); err != nil {
		return fmt.Errorf("%w: %w", ErrStatement, err)
	}
	if err := strictjson.Unmarshal(raw, into, strictjson.RejectUnknown); err != nil {
		return fmt.Errorf("%w: a member is unknown or has the wrong type", ErrStatement)
	}
	return nil
}

// Compare lists the differences between the statement and the given members and predicate; none if it
// agrees.
func (o Opened) Compare(members []Subject, p Predicate) (differences []string) {
	want := map[string]string{}
	for _, m := range members {
		want[m.Name] = m.Digest["sha256"]
	}
	seen := map[string]bool{}
	for _, s := range o.Subject {
		sum, there := want[s.Name]
		switch {
		case seen[s.Name]:
			differences = append(differences, fmt.Sprintf("%.80q is in it twice", s.Name))
		case !there:
			differences = append(differences, fmt.Sprintf("it speaks of %.80q, which is not here", s.Name))
		case len(s.Digest) != 1 || s.Digest["sha256"] != sum:
			differences = append(differences, fmt.Sprintf("%s is not the file that was signed", s.Name))
		}
		seen[s.Name] = true
	}
	for _, m := range members {
		if !seen[m.Name] {
			differences = append(differences, fmt.Sprintf("%s is not in it", m.Name))
		}
	}
	p.PublicKey = o.Predicate.PublicKey
	if p != o.Predicate {
		differences = append(differences, "it is about other evidence")
	}
	return differences
}
