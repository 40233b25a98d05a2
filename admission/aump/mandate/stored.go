package mandate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// StoredVersion is the version of the documents below.
const StoredVersion = 1

// StoredMandate is the value under Key in the mandates bucket. The newest revision is in force.
type StoredMandate struct {
	V       int         `json:"v"` // StoredVersion
	ID      string      `json:"id"`
	Hash    string      `json:"hash"`
	Mandate string      `json:"mandate"` // the document, byte for byte
	Author  string      `json:"author"`  // as stated by the author
	PutAt   events.Time `json:"put_at"`
}

// Revocation revokes one mandate for good: the document with this hash. It is stored under
// RevocationKey or PrincipalRevocationKey; the existence of the key counts, and tells whose it is.
type Revocation struct {
	V         int         `json:"v"` // StoredVersion
	ID        string      `json:"id"`
	Hash      string      `json:"hash"`
	Reason    string      `json:"reason"`
	Author    string      `json:"author"` // as stated by the author
	RevokedAt events.Time `json:"revoked_at"`
	By        string      `json:"by,omitempty"` // for readers, from the key; what is stored does not count
}

// Kinds of authors of a revocation.
const (
	ByOperator  = "operator"
	ByPrincipal = "principal"
)

// SigningKeys are the keys that may sign a tenant's mandates, and the signature policy. They
// are stored under KeysKey.
type SigningKeys struct {
	V          int              `json:"v"`          // StoredVersion
	Keys       []map[string]any `json:"keys"`       // public JSON Web Keys, Ed25519 or P-256
	Signatures SignaturePolicy  `json:"signatures"` // "" for SignaturesAuto
	Author     string           `json:"author"`     // as stated by the author
	PutAt      events.Time      `json:"put_at"`
}

// SignaturePolicies lists the policies by their setting names.
var SignaturePolicies = map[string]SignaturePolicy{
	"auto": SignaturesAuto, "off": SignaturesOff, "if_present": SignaturesIfPresent, "required": SignaturesRequired,
}

// ErrKey reports an unusable signing key.
var ErrKey = errors.New("mandate: not a public Ed25519 or P-256 JSON Web Key with a kid")

// Set compiles the keys. All must be usable, and their kids must be distinct.
func (k SigningKeys) Set() (aump.KeySet, error) {
	set := aump.KeySet{}
	for i, jwk := range k.Keys {
		before := len(set)
		if err := set.Add(&aump.Profile{SigningKeys: []map[string]any{jwk}}); err != nil {
			return nil, err
		}
		if len(set) == before {
			return nil, fmt.Errorf("key %d: %w, or one that is there already", i+1, ErrKey)
		}
	}
	return set, nil
}

// DecodeStored reads a value under Key. It verifies that the document has the stated id and
// hash.
func DecodeStored(b []byte) (StoredMandate, error) {
	s, err := events.DecodeRecord[StoredMandate](b)
	if err != nil {
		return s, err
	}
	if s.V != StoredVersion {
		return s, fmt.Errorf("mandate: stored in version %d, which this program does not know", s.V)
	}
	doc, err := aump.DecodeMandate([]byte(s.Mandate), strictjson.DefaultLimits)
	if doc == nil {
		return s, err
	}
	if hash, err := aump.MandateHash(doc.Tree()); err != nil || hash != s.Hash || doc.ID != s.ID {
		return s, errors.New("mandate: stored under another id or hash than it has")
	}
	return s, nil
}

// DecodeKeys reads a value under KeysKey.
func DecodeKeys(b []byte) (SigningKeys, aump.KeySet, error) {
	k, err := events.DecodeRecord[SigningKeys](b)
	if err != nil {
		return k, nil, err
	}
	set, err := k.Set()
	return k, set, err
}

// keysToken is the second token of KeysKey; no mandate id equals it.
const (
	keysToken        = "keys"
	revokedToken     = "revoked"
	byPrincipalToken = "revoked_by_principal"
)

// TenantToken is the first token of a tenant's keys in a bucket: the tenant's subject token,
// with "=" for the "~" that keys cannot contain. Tenants share no keys.
func TenantToken(tenant string) string {
	t := subject.Escape(tenant)
	if rest, escaped := strings.CutPrefix(t, subject.NoSession); escaped {
		return "=" + rest
	}
	return t
}

// Key is the key of a mandate in the mandates bucket: <tenant>.<id>. Ids have no dot.
func Key(tenant, id string) string { return TenantToken(tenant) + "." + id }

// RevocationKey is the key of an operator's revocation: <tenant>.<id>.revoked.<hash>. The admitter cannot write
// it.
func RevocationKey(tenant, id, hash string) string {
	return Key(tenant, id) + "." + revokedToken + "." + hash
}

// PrincipalRevocationKey is the key of a revocation by the mandate's principal, which only the admitter can write:
// <tenant>.<id>.revoked_by_principal.<hash>.
func PrincipalRevocationKey(tenant, id, hash string) string {
	return Key(tenant, id) + "." + byPrincipalToken + "." + hash
}

// KeysKey is the key of the signing keys: <tenant>.keys.
func KeysKey(tenant string) string { return TenantToken(tenant) + "." + keysToken }

// AccountKey is the key of an account in the spend bucket: <tenant>.<id>.<currency>. All
// mandates under one id share it.
func AccountKey(tenant, id, currency string) string { return Key(tenant, id) + "." + currency }

// KeyKind is the purpose of a key of the mandates bucket.
type KeyKind int

// The kinds.
const (
	KeyUnknown KeyKind = iota
	KeyMandate
	KeyRevocation
	KeySigning
)

// ParsedKey is a parsed key of the mandates bucket.
type ParsedKey struct {
	Kind     KeyKind
	Tenant   string // TenantToken
	ID, Hash string
	By       string // of a revocation: ByOperator or ByPrincipal
}

// revokers are the kinds of authors by the third token of a revocation's key.
var revokers = map[string]string{revokedToken: ByOperator, byPrincipalToken: ByPrincipal}

// ParseKey parses a key of the mandates bucket.
func ParseKey(key string) ParsedKey {
	t := strings.Split(key, ".")
	switch {
	case len(t) == 2 && t[1] == keysToken:
		return ParsedKey{Kind: KeySigning, Tenant: t[0]}
	case len(t) == 2 && ValidID(t[1]):
		return ParsedKey{Kind: KeyMandate, Tenant: t[0], ID: t[1]}
	case len(t) == 4 && revokers[t[2]] != "" && ValidID(t[1]):
		if hash, ok := aump.NormaliseHash(t[3]); ok && hash == t[3] {
			return ParsedKey{Kind: KeyRevocation, Tenant: t[0], ID: t[1], Hash: hash, By: revokers[t[2]]}
		}
	}
	return ParsedKey{}
}
