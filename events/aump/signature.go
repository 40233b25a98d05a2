package aump

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Types of signatures that Verify supports. vc-sd-jwt is not supported.
const (
	signatureDetached = "jws-detached" // compact JWS without its payload (RFC 7515 appendix F)
	signatureJWS      = "jws"          // compact JWS with UnsignedForm as its payload
)

// SignatureState is the verification result of a mandate's signatures.
type SignatureState string

// The states. The zero state means: not checked.
const (
	SignatureNone         SignatureState = "none"
	SignatureVerified     SignatureState = "verified"     // one verifies, and none by a known key fails
	SignatureUnverifiable SignatureState = "unverifiable" // none is by a known key in a supported form
	SignatureInvalid      SignatureState = "invalid"      // one by a known key does not verify
)

// Bounds on what is verified: verification costs time.
const (
	maxSignatures     = 16
	maxSignatureValue = 512 << 10 // a jws holds the mandate
)

// ErrKeyConflict reports that two profiles publish different keys under one kid.
var ErrKeyConflict = errors.New("aump: two signing keys have the same kid")

// KeySet holds the keys that may sign mandates, by kid. The nil set trusts no key.
type KeySet map[string]key

// key is a public key with the one algorithm that it is used with, so that the verified
// document cannot choose the algorithm.
type key struct {
	algorithm jose.SignatureAlgorithm
	public    any
	raw       []byte // for comparing keys
}

// Add adds the signing keys of a profile. Keys that are incomplete, private, not for
// signatures, or neither Ed25519 nor P-256 are skipped: signatures by them cannot be verified.
// The error is ErrKeyConflict; the set is then unchanged.
func (ks KeySet) Add(p *Profile) error {
	found := KeySet{}
	for _, jwk := range p.SigningKeys {
		kid, k, ok := readKey(jwk)
		if !ok {
			continue
		}
		for _, set := range []KeySet{ks, found} {
			if old, there := set[kid]; there && !bytes.Equal(old.raw, k.raw) {
				return fmt.Errorf("%w: %.64q", ErrKeyConflict, kid)
			}
		}
		found[kid] = k
	}
	for kid, k := range found {
		ks[kid] = k
	}
	return nil
}

func readKey(tree map[string]any) (kid string, k key, ok bool) {
	raw, err := json.Marshal(tree)
	if err != nil {
		return "", key{}, false
	}
	var jwk jose.JSONWebKey
	if jwk.UnmarshalJSON(raw) != nil || !jwk.Valid() || jwk.KeyID == "" || jwk.Use != "" && jwk.Use != "sig" {
		return "", key{}, false
	}
	switch pub := jwk.Key.(type) { // private keys are of other types
	case ed25519.PublicKey:
		k = key{algorithm: jose.EdDSA, public: pub, raw: pub}
	case *ecdsa.PublicKey:
		if pub.Curve != elliptic.P256() {
			return "", key{}, false
		}
		point, err := pub.Bytes()
		if err != nil {
			return "", key{}, false
		}
		k = key{algorithm: jose.ES256, public: pub, raw: point}
	default:
		return "", key{}, false
	}
	return jwk.KeyID, k, jwk.Algorithm == "" || jwk.Algorithm == string(k.algorithm)
}

// Verify verifies the signatures on a mandate. They sign the bytes of UnsignedForm. AUMP lets
// several parties sign and does not state which must; signatures by unknown keys have no effect
// if one verifies.
func (ks KeySet) Verify(m *Mandate) SignatureState {
	if len(m.Signatures) == 0 {
		return SignatureNone
	}
	payload, err := UnsignedForm(m.Tree())
	if err != nil || len(m.Signatures) > maxSignatures {
		return SignatureInvalid
	}
	state := SignatureUnverifiable
	for _, s := range m.Signatures {
		k, known := ks[s.KeyID]
		if !known || s.Type != signatureDetached && s.Type != signatureJWS {
			continue
		}
		if !k.verifySignature(s, payload) {
			return SignatureInvalid
		}
		state = SignatureVerified
	}
	return state
}

func (k key) verifySignature(s Signature, payload []byte) bool {
	if s.Algorithm != string(k.algorithm) || len(s.Value) > maxSignatureValue || !isCompactJWS(s.Value) {
		return false
	}
	only := []jose.SignatureAlgorithm{k.algorithm}
	if s.Type == signatureDetached {
		obj, err := jose.ParseDetached(s.Value, payload, only)
		return err == nil && namesSameKey(obj, s) && obj.DetachedVerify(payload, k.public) == nil
	}
	obj, err := jose.ParseSignedCompact(s.Value, only)
	if err != nil || !namesSameKey(obj, s) {
		return false
	}
	signed, err := obj.Verify(k.public)
	return err == nil && bytes.Equal(signed, payload)
}

// namesSameKey reports whether the protected header names no other key than the mandate does.
func namesSameKey(obj *jose.JSONWebSignature, s Signature) bool {
	if len(obj.Signatures) != 1 {
		return false
	}
	kid := obj.Signatures[0].Protected.KeyID
	return kid == "" || kid == s.KeyID
}

// isCompactJWS reports whether a value is three parts of strict base64url: lenient decoders
// ignore line breaks and spare bits.
func isCompactJWS(value string) bool {
	parts := strings.Split(value, ".")
	for _, part := range parts {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return false
		}
	}
	return len(parts) == 3
}
