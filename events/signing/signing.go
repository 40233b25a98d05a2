// Package signing makes and checks the compact JWS (EdDSA over Ed25519, RFC
// 7515 and 8037) that Countersign puts on receipts and decision records. One
// algorithm, no negotiation, and a type that must match: a signature made for
// one purpose cannot be used for another.
package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Types of signed things (the JWS "typ" header).
const (
	TypeReceipt = "countersign-receipt+jwt"
	TypeRecord  = "countersign-record+jws"
)

// Errors that callers decide on.
var (
	ErrUnknownKey   = errors.New("signing: signed with a key that is not published")
	ErrBadSignature = errors.New("signing: the signature does not verify")
	ErrMalformed    = errors.New("signing: not a compact EdDSA JWS of the expected type")
)

// PrivateKey signs. Its ID is derived from its public half.
type PrivateKey struct {
	ID string
	// A function, because fmt asks no method of an unexported field: it would
	// print the bytes of a struct that has a PrivateKey in one.
	key func() ed25519.PrivateKey
}

// NewPrivateKey makes the signing key of a 32-byte Ed25519 seed.
func NewPrivateKey(seed []byte) (PrivateKey, error) {
	if len(seed) != ed25519.SeedSize {
		return PrivateKey{}, fmt.Errorf("signing: an Ed25519 seed has %d bytes, not %d", ed25519.SeedSize, len(seed))
	}
	k := ed25519.NewKeyFromSeed(seed)
	return PrivateKey{ID: KeyID(k.Public().(ed25519.PublicKey)), key: func() ed25519.PrivateKey { return k }}, nil
}

// Public is the verification half.
func (k PrivateKey) Public() ed25519.PublicKey { return k.key().Public().(ed25519.PublicKey) }

// String keeps the key out of logs.
func (k PrivateKey) String() string { return "signing.PrivateKey(" + k.ID + ")" }

// GoString keeps the key out of %#v.
func (k PrivateKey) GoString() string { return k.String() }

// KeyID names a public key: the first 16 hex digits of its SHA-256.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pub)
	return hex.EncodeToString(sum[:8])
}

// EncodePublic and DecodePublic give the text form of a public key: base64url
// of its 32 bytes, unpadded.
func EncodePublic(pub ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(pub) }

// DecodePublic is the inverse of EncodePublic.
func DecodePublic(s string) (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("signing: not a base64url Ed25519 public key")
	}
	return b, nil
}

// Sign gives the compact JWS of payload.
func (k PrivateKey) Sign(typ string, payload []byte) (string, error) {
	obj, err := k.sign(typ, payload)
	if err != nil {
		return "", err
	}
	return obj.CompactSerialize()
}

// SignDetached gives the compact JWS of payload without the payload in it
// (RFC 7515 appendix F).
func (k PrivateKey) SignDetached(typ string, payload []byte) (string, error) {
	obj, err := k.sign(typ, payload)
	if err != nil {
		return "", err
	}
	return obj.DetachedCompactSerialize()
}

func (k PrivateKey) sign(typ string, payload []byte) (*jose.JSONWebSignature, error) {
	if k.key == nil {
		return nil, errors.New("signing: the zero PrivateKey cannot sign")
	}
	opts := (&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", k.ID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: k.key()}, opts)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return signer.Sign(payload)
}

// KeySet holds the published verification keys by key id. The nil set trusts
// nobody.
type KeySet map[string]ed25519.PublicKey

// Verify checks a compact JWS and returns its payload and key id.
func (ks KeySet) Verify(typ, token string) (payload []byte, kid string, err error) {
	if !canonical(token) {
		return nil, "", ErrMalformed
	}
	obj, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, "", ErrMalformed
	}
	return ks.verify(typ, obj, nil)
}

// VerifyDetached checks a detached compact JWS over payload and returns its key
// id.
func (ks KeySet) VerifyDetached(typ, token string, payload []byte) (kid string, err error) {
	if !canonical(token) {
		return "", ErrMalformed
	}
	obj, err := jose.ParseDetached(token, payload, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return "", ErrMalformed
	}
	_, kid, err = ks.verify(typ, obj, payload)
	return kid, err
}

// canonical reports whether a token is the one way to write what it says.
// Base64 decoders skip line breaks and spare bits; a token changed there would
// verify and yet have another hash than the one that was recorded.
func canonical(token string) bool {
	for part := range strings.SplitSeq(token, ".") {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return false
		}
	}
	return true
}

func (ks KeySet) verify(typ string, obj *jose.JSONWebSignature, detached []byte) ([]byte, string, error) {
	if len(obj.Signatures) != 1 {
		return nil, "", ErrMalformed
	}
	h := obj.Signatures[0].Protected
	if got, _ := h.ExtraHeaders[jose.HeaderType].(string); got != typ {
		return nil, "", ErrMalformed
	}
	pub, known := ks[h.KeyID]
	if !known {
		return nil, h.KeyID, fmt.Errorf("%w: %.32q", ErrUnknownKey, h.KeyID)
	}
	if detached != nil {
		if err := obj.DetachedVerify(detached, pub); err != nil {
			return nil, h.KeyID, ErrBadSignature
		}
		return detached, h.KeyID, nil
	}
	payload, err := obj.Verify(pub)
	if err != nil {
		return nil, h.KeyID, ErrBadSignature
	}
	return payload, h.KeyID, nil
}
