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

// StoredMandate is a mandate as the mandates bucket keeps it, under Key. The newest
// revision is the one in force.
type StoredMandate struct {
	V       int         `json:"v"` // StoredVersion
	ID      string      `json:"id"`
	Hash    string      `json:"hash"`
	Mandate string      `json:"mandate"` // the document, byte for byte
	Author  string      `json:"author"`  // who put it, as they say
	PutAt   events.Time `json:"put_at"`
}

// Revocation takes back one mandate for good: the document with this hash. It is
// kept under RevocationKey, whose being there is what counts.
type Revocation struct {
	V         int         `json:"v"` // StoredVersion
	ID        string      `json:"id"`
	Hash      string      `json:"hash"`
	Reason    string      `json:"reason"`
	Author    string      `json:"author"` // as they say
	RevokedAt events.Time `json:"revoked_at"`
}

// SigningKeys are the keys that may sign a tenant's mandates, and what its
// mandates need of them. They are kept under KeysKey.
type SigningKeys struct {
	V          int              `json:"v"`          // StoredVersion
	Keys       []map[string]any `json:"keys"`       // public JSON Web Keys, Ed25519 or P-256
	Signatures SignaturePolicy  `json:"signatures"` // "" for SignaturesAuto
	Author     string           `json:"author"`     // as they say
	PutAt      events.Time      `json:"put_at"`
}

// SignaturePolicies lists the policies by the names under which they are set.
var SignaturePolicies = map[string]SignaturePolicy{
	"auto": SignaturesAuto, "off": SignaturesOff, "if_present": SignaturesIfPresent, "required": SignaturesRequired,
}

// ErrKey says that a signing key cannot be used.
var ErrKey = errors.New("mandate: not a public Ed25519 or P-256 JSON Web Key with a kid")

// Set compiles the keys. Every one must be usable, and no two may have one kid.
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

// DecodeStored reads what Key names. It makes sure that the document is the one
// that it says it is.
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
	if hash, err := aump.MandateHash(doc.Tree); err != nil || hash != s.Hash || doc.ID != s.ID {
		return s, errors.New("mandate: stored under another id or hash than it has")
	}
	return s, nil
}

// DecodeKeys reads what KeysKey names.
func DecodeKeys(b []byte) (SigningKeys, aump.KeySet, error) {
	k, err := events.DecodeRecord[SigningKeys](b)
	if err != nil {
		return k, nil, err
	}
	set, err := k.Set()
	return k, set, err
}

// keysToken is the second token of KeysKey; no id of a mandate is like it.
const (
	keysToken    = "keys"
	revokedToken = "revoked"
)

// TenantToken is a tenant as a token of a bucket's keys: its subject token, with
// "=" for the "~" that keys cannot have. Every key of a tenant begins with it, so
// tenants share nothing.
func TenantToken(tenant string) string {
	t := subject.Escape(tenant)
	if rest, escaped := strings.CutPrefix(t, subject.NoSession); escaped {
		return "=" + rest
	}
	return t
}

// Key is where the mandates bucket keeps a mandate: <tenant>.<id>. Ids have no
// dot.
func Key(tenant, id string) string { return TenantToken(tenant) + "." + id }

// RevocationKey is where it keeps a revocation: <tenant>.<id>.revoked.<hash>.
func RevocationKey(tenant, id, hash string) string {
	return Key(tenant, id) + "." + revokedToken + "." + hash
}

// KeysKey is where it keeps the signing keys: <tenant>.keys.
func KeysKey(tenant string) string { return TenantToken(tenant) + "." + keysToken }

// AccountKey is where the spend bucket keeps an account:
// <tenant>.<id>.<currency>. All mandates under one id share it.
func AccountKey(tenant, id, currency string) string { return Key(tenant, id) + "." + currency }

// KeyKind says what a key of the mandates bucket is for.
type KeyKind int

// The kinds.
const (
	KeyUnknown KeyKind = iota
	KeyMandate
	KeyRevocation
	KeySigning
)

// ParsedKey is a key of the mandates bucket taken apart.
type ParsedKey struct {
	Kind     KeyKind
	Tenant   string // TenantToken
	ID, Hash string
}

// ParseKey takes a key of the mandates bucket apart.
func ParseKey(key string) ParsedKey {
	t := strings.Split(key, ".")
	switch {
	case len(t) == 2 && t[1] == keysToken:
		return ParsedKey{Kind: KeySigning, Tenant: t[0]}
	case len(t) == 2 && ValidID(t[1]):
		return ParsedKey{Kind: KeyMandate, Tenant: t[0], ID: t[1]}
	case len(t) == 4 && t[2] == revokedToken && ValidID(t[1]):
		if hash, ok := aump.NormaliseHash(t[3]); ok && hash == t[3] {
			return ParsedKey{Kind: KeyRevocation, Tenant: t[0], ID: t[1], Hash: hash}
		}
	}
	return ParsedKey{}
}
