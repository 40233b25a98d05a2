// Package digest computes the digests in records, receipts and evidence. A plain hash of a
// short secret can be guessed, so data that may hold a secret is hashed under a key: that of
// its session, which an erasure destroys, or of its tenant where there is no session. Plain
// SHA-256 is for data without secrets. Begin reading with Plain, Keyed, Salted and Session.
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
	PrefixPlain   = "sha256:"
	PrefixKeyed   = "hmac-sha256:"         // under the tenant's key
	PrefixSession = "session-hmac-sha256:" // under the session's key; see Session
	PrefixSalted  = "salted-sha256:"
)

// KeySize is the length of a master key and of every tenant key, in bytes.
const KeySize = 32

// ErrKeySize reports a key without KeySize bytes.
var ErrKeySize = errors.New("digest: a key must have 32 bytes")

// Plain returns "sha256:<hex>" of b.
func Plain(b []byte) string {
	sum := sha256.Sum256(b)
	return PrefixPlain + hex.EncodeToString(sum[:])
}

// Keyed returns "hmac-sha256:<hex>" of b under key.
func Keyed(key, b []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(b)
	return PrefixKeyed + hex.EncodeToString(mac.Sum(nil))
}

// Keyer computes Keyed under one key at half the cost. It belongs to one goroutine.
type Keyer struct{ mac hash.Hash }

// NewKeyer returns a Keyer for key; nil, which gives no digests, without a key.
func NewKeyer(key []byte) *Keyer {
	if len(key) == 0 {
		return nil
	}
	return &Keyer{hmac.New(sha256.New, key)}
}

// Sum returns the digest of the function Keyed as bytes. There must be a key.
func (k *Keyer) Sum(b []byte) (sum [sha256.Size]byte) {
	k.mac.Reset()
	k.mac.Write(b)
	k.mac.Sum(sum[:0])
	return sum
}

// Format returns a digest with its prefix.
func Format(prefix string, sum [sha256.Size]byte) string {
	var room [len(PrefixSession) + 2*KeyIDSize + 1 + 2*sha256.Size]byte
	return string(hex.AppendEncode(append(room[:0], prefix...), sum[:]))
}

// Salted returns "salted-sha256:<hex>" of b, keyed with a salt that is given out with it: a
// holder of the salt and b can check it; without the salt b cannot be guessed.
func Salted(salt, b []byte) string {
	mac := hmac.New(sha256.New, salt)
	mac.Write(b)
	return PrefixSalted + hex.EncodeToString(mac.Sum(nil))
}

// Equal compares two digests in constant time.
func Equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Master is the key from which every tenant's key is derived. Admitter, correlator and auditor
// share it and never pass it on. The zero Master has no keys.
type Master struct {
	// key is a function because fmt calls no method of an unexported field: it would print the
	// bytes of a struct that contains a Master.
	key func() []byte
}

// NewMaster returns the Master for a key of KeySize bytes.
func NewMaster(key []byte) (Master, error) {
	var m Master
	if len(key) != KeySize {
		return m, ErrKeySize
	}
	own := bytes.Clone(key)
	m.key = func() []byte { return own }
	return m, nil
}

// Tenant returns the key of one tenant: HKDF-SHA-256 of the master key; nil for the zero
// Master.
func (m Master) Tenant(tenant string) []byte {
	return m.deriveKey("countersign/tenant/v1/" + tenant)
}

// Wrapping returns the key that wraps a tenant's session keys.
func (m Master) Wrapping(tenant string) []byte {
	return m.deriveKey("countersign/session-wrap/v1/" + tenant)
}

// Snapshot returns the key that authenticates a service's snapshots of its own state.
func (m Master) Snapshot() []byte {
	return m.deriveKey("countersign/snapshot/v1")
}

func (m Master) deriveKey(info string) []byte {
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

// Keys are the keys for the digests of one session's messages. Either may be missing.
type Keys struct {
	Tenant  []byte   // Master.Tenant
	Session *Session // of its session's key
}

// InFormOf computes the digest of b in the same form as like, so that the same code compares
// recordings with plain digests and logs with keyed ones. ok is false if like has no known
// form, or if its key is missing, for example an erased session's.
func InFormOf(like string, keys Keys, b []byte) (d string, ok bool) {
	switch {
	case strings.HasPrefix(like, PrefixPlain):
		return Plain(b), true
	case strings.HasPrefix(like, PrefixKeyed) && len(keys.Tenant) > 0:
		return Keyed(keys.Tenant, b), true
	case keys.Session != nil && ComparableForm(like) == keys.Session.Form():
		return keys.Session.Digest(b), true
	default:
		return "", false
	}
}

// ComparableForm is the part that two comparable digests share: the prefix, and for a session's
// digest the key id.
func ComparableForm(d string) string {
	if end := len(d) - 2*sha256.Size; end > 0 && d[end-1] == ':' && strings.IndexByte(d[end:], ':') < 0 {
		return d[:end] // the form of all digests of this package
	}
	return d[:strings.LastIndexByte(d, ':')+1]
}
