package digest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// KeyIDSize is how many bytes of a digest say which session key it was made under.
const KeyIDSize = 8

const (
	sessionPurpose = "countersign/digest/v1"
	keyIDPurpose   = "countersign/digest-id/v1\x00"
)

// Session makes the digests of what one session's messages contain:
//
//	session-hmac-sha256:<key id, 16 hex digits>:<HMAC-SHA-256(k, SHA-256(data)), hex>
//
// with k = HMAC-SHA-256(the session's key, "countersign/digest/v1"). Once the
// session's key is destroyed, nobody can try values against them any more, whatever
// other keys they have. The key id, the first 8 bytes of SHA-256 of
// "countersign/digest-id/v1", a zero byte and k, tells digests of a session's
// earlier key from those of its present one: they cannot be compared.
//
// A Session may be used by several goroutines.
type Session struct {
	form string
	key  func() []byte // see Master
}

// NewSession takes a session's key, of KeySize bytes; nil, which makes no digests,
// if it is none.
func NewSession(key []byte) *Session {
	if len(key) != KeySize {
		return nil
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(sessionPurpose))
	own := mac.Sum(nil)
	id := sha256.Sum256(append([]byte(keyIDPurpose), own...))
	return &Session{form: PrefixSession + hex.EncodeToString(id[:KeyIDSize]) + ":", key: func() []byte { return own }}
}

// Form is what all digests of this session begin with, "" without a key.
func (s *Session) Form() string {
	if s == nil {
		return ""
	}
	return s.form
}

// Digest is the digest of b, "" without a key.
func (s *Session) Digest(b []byte) string {
	if s == nil {
		return ""
	}
	sum := sha256.Sum256(b)
	mac := hmac.New(sha256.New, s.key())
	mac.Write(sum[:])
	return Format(s.form, [sha256.Size]byte(mac.Sum(sum[:0])))
}

// String keeps the key out of logs.
func (s *Session) String() string { return "digest.Session(" + s.Form() + "secret)" }

// GoString keeps the key out of %#v.
func (s *Session) GoString() string { return s.String() }

// Keyer makes the same digests for whoever has the SHA-256 of the data already, and
// belongs to one goroutine; nil without a key.
func (s *Session) Keyer() *SessionKeyer {
	if s == nil {
		return nil
	}
	return &SessionKeyer{form: s.form, mac: hmac.New(sha256.New, s.key())}
}

// SessionKeyer is a Session at half the cost: see Session.Keyer.
type SessionKeyer struct {
	form string
	mac  hash.Hash
	room [2 * sha256.Size]byte // what is hashed, and its digest
}

// Digest is the digest of the data that has the given SHA-256; "" without a key.
func (k *SessionKeyer) Digest(plain [sha256.Size]byte) string {
	if k == nil {
		return ""
	}
	in, sum := k.room[:sha256.Size], k.room[sha256.Size:]
	copy(in, plain[:])
	k.mac.Reset()
	k.mac.Write(in)
	return Format(k.form, [sha256.Size]byte(k.mac.Sum(sum[:0])))
}
