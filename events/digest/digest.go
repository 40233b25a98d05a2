// Package digest computes the digests that records, receipts and evidence
// carry. A plain hash of a short secret is the secret, so whatever may hold one
// is hashed under a tenant's key; plain SHA-256 is for data that hides nothing.
package digest

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
)

// Prefixes of the digest forms.
const (
	PrefixPlain  = "sha256:"
	PrefixKeyed  = "hmac-sha256:"
	PrefixSalted = "salted-sha256:"
)

// KeySize is the length of a master key and of every tenant key, in bytes.
const KeySize = 32

// ErrKeySize says that a key does not have KeySize bytes.
var ErrKeySize = errors.New("digest: a key must have 32 bytes")

// Plain is "sha256:<hex>" of b.
func Plain(b []byte) string {
	sum := sha256.Sum256(b)
	return PrefixPlain + hex.EncodeToString(sum[:])
}

// Keyed is "hmac-sha256:<hex>" of b under key.
func Keyed(key, b []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(b)
	return PrefixKeyed + hex.EncodeToString(mac.Sum(nil))
}

// Keyer makes the digests of Keyed under one key, each at half the cost. It
// belongs to one goroutine.
type Keyer struct{ mac hash.Hash }

// NewKeyer makes a Keyer; nil, which makes no digests, if there is no key.
func NewKeyer(key []byte) *Keyer {
	if len(key) == 0 {
		return nil
	}
	return &Keyer{hmac.New(sha256.New, key)}
}

// Keyed is "hmac-sha256:<hex>" of b, "" without a key.
func (k *Keyer) Keyed(b []byte) string {
	if k == nil {
		return ""
	}
	k.mac.Reset()
	k.mac.Write(b)
	var sum [sha256.Size]byte
	var text [len(PrefixKeyed) + 2*sha256.Size]byte
	hex.Encode(text[copy(text[:], PrefixKeyed):], k.mac.Sum(sum[:0]))
	return string(text[:])
}

// Salted is "salted-sha256:<hex>" of b, keyed with a salt that is handed out
// with it: whoever holds the salt and b can check it, nobody else can guess.
func Salted(salt, b []byte) string {
	mac := hmac.New(sha256.New, salt)
	mac.Write(b)
	return PrefixSalted + hex.EncodeToString(mac.Sum(nil))
}

// Equal compares two digests in constant time.
func Equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Master is the key from which every tenant's key is derived. It is shared by
// admitter, correlator and auditor and leaves none of them. The zero Master has
// no keys.
type Master struct {
	// A function, because fmt asks no method of an unexported field: it would
	// print the bytes of a struct that has a Master in one.
	key func() []byte
}

// NewMaster takes a master key of KeySize bytes.
func NewMaster(key []byte) (Master, error) {
	var m Master
	if len(key) != KeySize {
		return m, ErrKeySize
	}
	own := bytes.Clone(key)
	m.key = func() []byte { return own }
	return m, nil
}

// Tenant is the key of one tenant: HKDF-SHA-256 of the master key; nil for the
// zero Master.
func (m Master) Tenant(tenant string) []byte {
	return m.derive("countersign/tenant/v1/" + tenant)
}

// Wrapping is the key under which a tenant's session keys are wrapped.
func (m Master) Wrapping(tenant string) []byte {
	return m.derive("countersign/session-wrap/v1/" + tenant)
}

// Snapshot is the key that authenticates a service's snapshots of its own state.
func (m Master) Snapshot() []byte {
	return m.derive("countersign/snapshot/v1")
}

func (m Master) derive(info string) []byte {
	if m.key == nil {
		return nil
	}
	k, err := hkdf.Key(sha256.New, m.key(), nil, info, KeySize)
	if err != nil {
		panic(fmt.Sprintf("hkdf of a fixed size: %v", err)) // cannot happen: 32 bytes are within HKDF's bounds
	}
	return k
}

// String keeps the key out of logs.
func (m Master) String() string { return "digest.Master(secret)" }

// GoString keeps the key out of %#v.
func (m Master) GoString() string { return m.String() }

// Of computes the digest of b in the same form as like, so that a recording
// with plain digests and a log with keyed ones are compared by the same code.
// key is used for the keyed form only. ok is false when like has no known form
// or needs a key that is not there.
func Of(like string, key, b []byte) (d string, ok bool) {
	switch {
	case strings.HasPrefix(like, PrefixPlain):
		return Plain(b), true
	case strings.HasPrefix(like, PrefixKeyed) && len(key) > 0:
		return Keyed(key, b), true
	default:
		return "", false
	}
}
