// Package token has the bearer tokens with which programs sign in at a gateway. A token is random
// (256 bit); only its SHA-256 is stored, in the KV bucket tokens, with the tenant, the user, the
// role and the expiry. A token alone identifies a caller: the gateway takes no identity from a request's
// body. The package is pure. Begin reading with New and Set.Find.
package token

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Roles of a caller. They permit what the NATS roles of the same names do, as far as the gateway
// has an endpoint for it.
const (
	Runtime    = "runtime"    // asks admission and publishes events, as the publisher User
	Subscriber = "subscriber" // follows the tenant's outputs
	Reviewer   = "reviewer"   // follows decisions and approvals
)

// roles lists all roles.
var roles = []string{Runtime, Subscriber, Reviewer}

const (
	prefix      = "cst_"
	idBytes     = 10
	secretBytes = 32

	// RandomBytes is the number of random bytes that New needs.
	RandomBytes = idBytes + secretBytes
)

// Record is what the bucket keeps of a token.
type Record struct {
	Hash      string     `json:"sha256"`          // of the whole token, hexadecimal; of a mapping, of its subject
	Proof     string     `json:"proof,omitempty"` // of a mapping: what proves the subject, ProofCertificate or ProofOIDC
	Tenant    string     `json:"tenant"`
	User      string     `json:"user"` // of a runtime: its publisher
	Role      string     `json:"role"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// ErrRecord reports a record that cannot be used.
var ErrRecord = errors.New("token: the record cannot be used")

// userForm is a NATS user's name: a publisher is one token of a subject.
var userForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Check reports what is wrong with a record.
func (r Record) Check() error {
	sum, err := hex.DecodeString(r.Hash)
	switch {
	case err != nil || len(sum) != sha256.Size:
		return fmt.Errorf("%w: sha256 is not 64 hexadecimal digits", ErrRecord)
	case r.Proof != "" && r.Proof != ProofCertificate && r.Proof != ProofOIDC:
		return fmt.Errorf("%w: the proof must be %s or %s", ErrRecord, ProofCertificate, ProofOIDC)
	case r.Tenant == "":
		return fmt.Errorf("%w: it names no tenant", ErrRecord)
	case !userForm.MatchString(r.User):
		return fmt.Errorf("%w: the user must be letters, digits, _ and -, at most 64", ErrRecord)
	case !slices.Contains(roles, r.Role):
		return fmt.Errorf("%w: the role must be one of %s", ErrRecord, strings.Join(roles, ", "))
	case !r.ExpiresAt.After(r.CreatedAt):
		return fmt.Errorf("%w: it expires before it was made", ErrRecord)
	}
	return nil
}

// IsValid reports whether the token may be used at a time.
func (r Record) IsValid(now time.Time) bool { return r.RevokedAt == nil && now.Before(r.ExpiresAt) }

// Decode reads a record of the bucket.
func Decode(b []byte) (r Record, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%w: it is not JSON", ErrRecord)
	}
	return r, r.Check()
}

// New makes a token from RandomBytes random bytes. text is shown once and never stored; id names the
// token.
func New(random []byte) (text, id string, err error) {
	if len(random) != RandomBytes {
		return "", "", errors.New("token: not enough random bytes")
	}
	id = hex.EncodeToString(random[:idBytes])
	return prefix + id + "_" + base64.RawURLEncoding.EncodeToString(random[idBytes:]), id, nil
}

// Hash is the hash that a record keeps of a token.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

var form = regexp.MustCompile(`^` + prefix + `([0-9a-f]{20})_[A-Za-z0-9_-]{43}$`)

// IDOf returns the id in a text that has the form of a token.
func IDOf(text string) (id string, ok bool) {
	m := form.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// Key is the bucket's key of a token.
func Key(tenant, id string) string { return tenantToken(tenant) + "." + id }

// Prefix is the beginning of the keys of a tenant's tokens.
func Prefix(tenant string) string { return tenantToken(tenant) + "." }

var plain = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func tenantToken(tenant string) string {
	if plain.MatchString(tenant) {
		return tenant
	}
	return "=" + base64.RawURLEncoding.EncodeToString([]byte(tenant))
}

// Set holds the usable records of one tenant, by id. It is immutable.
type Set struct {
	byID      map[string]Record
	bySubject map[string][]string // ids of mappings, by the hash of their subject
}

// NewSet makes a set from the records of a tenant, by id. Records that cannot be used, or that are of
// another tenant, are left out.
func NewSet(tenant string, records map[string][]byte) *Set {
	s := &Set{byID: map[string]Record{}, bySubject: map[string][]string{}}
	for id, b := range records {
		if r, err := Decode(b); err == nil && r.Tenant == tenant {
			s.byID[id] = r
			if r.Proof != "" {
				s.bySubject[r.Hash] = append(s.bySubject[r.Hash], id)
			}
		}
	}
	return s
}

// Find returns the caller with a token. ok is false for every text that is not a valid token of this
// tenant, for whatever reason.
func (s *Set) Find(text string, now time.Time) (r Record, id string, ok bool) {
	id, formed := IDOf(text)
	if s == nil || !formed {
		return Record{}, "", false
	}
	r, known := s.byID[id]
	same := subtle.ConstantTimeCompare([]byte(Hash(text)), []byte(r.Hash)) == 1
	if !known || !same || r.Proof != "" || !r.IsValid(now) {
		return Record{}, "", false
	}
	return r, id, true
}

// EndNotice is how long before its end a token ends soon.
const EndNotice = 7 * 24 * time.Hour

// EndsSoon reports whether a token holds, and not for long.
func (r Record) EndsSoon(now time.Time) bool {
	return r.IsValid(now) && r.ExpiresAt.Before(now.Add(EndNotice))
}

// EndingSoon counts the tokens that end soon.
func (s *Set) EndingSoon(now time.Time) (n int) {
	for _, r := range s.byID {
		if r.EndsSoon(now) {
			n++
		}
	}
	return n
}

var idForm = regexp.MustCompile(`^[0-9a-f]{20}$`)

// IsID reports whether a text has the form of a token's id.
func IsID(text string) bool { return idForm.MatchString(text) }
