// Package signing makes and verifies the compact JWS (EdDSA over Ed25519, RFC 7515 and 8037) on
// receipts and on the admitter's records (events.HeaderSignature), and the signed notes of the checkpoint key on key records and
// erasures. There is one algorithm, no negotiation, and a type that must match: a signature for
// one purpose cannot be used for another. Begin reading with PrivateKey and KeySet.
package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// Types of signed objects (the JWS "typ" header).
const (
	TypeReceipt = "countersign-receipt+jwt"
	TypeRecord  = "countersign-record+jws"
)

// Errors that callers distinguish.
var (
	ErrUnknownKey   = errors.New("signing: signed with a key that is not published")
	ErrBadSignature = errors.New("signing: the signature does not verify")
	ErrMalformed    = errors.New("signing: not a compact EdDSA JWS of the expected type")
)

// PrivateKey signs. Its ID is derived from its public half.
type PrivateKey struct {
	ID string
	// key is a function because fmt calls no method of an unexported field: it would print the
	// bytes of a struct that contains a PrivateKey.
	key     func() ed25519.PrivateKey
	headers map[string]string // by type: the protected header, encoded
}

// NewPrivateKey derives the signing key from a 32-byte Ed25519 seed.
func NewPrivateKey(seed []byte) (PrivateKey, error) {
	if len(seed) != ed25519.SeedSize {
		return PrivateKey{}, fmt.Errorf("signing: an Ed25519 seed has %d bytes, not %d", ed25519.SeedSize, len(seed))
	}
	k := ed25519.NewKeyFromSeed(seed)
	id := KeyID(k.Public().(ed25519.PublicKey))
	head := map[string]string{}
	for _, typ := range []string{TypeReceipt, TypeRecord, TypeBatch} {
		head[typ] = encodeSegment([]byte(protectedHeader(id, typ)))
	}
	return PrivateKey{ID: id, key: func() ed25519.PrivateKey { return k }, headers: head}, nil
}

// Public is the verification half.
func (k PrivateKey) Public() ed25519.PublicKey { return k.key().Public().(ed25519.PublicKey) }

// String keeps the key out of logs.
func (k PrivateKey) String() string { return "signing.PrivateKey(" + k.ID + ")" }

// GoString keeps the key out of %#v.
func (k PrivateKey) GoString() string { return k.String() }

// KeyID is the id of a public key: the first 16 hex digits of its SHA-256.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pub)
	return hex.EncodeToString(sum[:kidLength/2])
}

const kidLength = 16

func isKeyID(kid string) bool {
	for i := range len(kid) {
		if c := kid[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(kid) == kidLength
}

// EncodePublic returns the text form of a public key: base64url of its 32 bytes, unpadded.
func EncodePublic(pub ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(pub) }

// DecodePublic is the inverse of EncodePublic.
func DecodePublic(s string) (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("signing: not a base64url Ed25519 public key")
	}
	return b, nil
}
