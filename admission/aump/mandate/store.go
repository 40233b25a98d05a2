package mandate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Store is the compiled content of the mandates bucket: the mandates in force, the revocations,
// the signing keys. It is immutable. The nil Store is empty.
//
// Under one id only the newest mandate is in force. An older one must not be usable by naming
// its hash: it may be looser.
type Store struct {
	tenants map[string]*tenantStore // by TenantToken
}

type tenantStore struct {
	mandates map[string]*compiledMandate
	revoked  map[revokedKey]bool
	keys     aump.KeySet
	policy   SignaturePolicy
	keysSum  string
}

type compiledMandate struct {
	raw     []byte
	mandate *Mandate
}

type revokedKey struct{ id, hash, by string }

// Kinds of changes.
const (
	ChangePut     = "put"
	ChangeDeleted = "deleted"
	ChangeRevoked = "revoked"
	ChangeKeys    = "keys"
	ChangeRestore = "revocation_deleted"
)

// Change is one change of the decision inputs.
type Change struct {
	Kind       string
	Tenant     string // TenantToken
	ID, Hash   string
	Author     string // as stated in the document
	By         string // of a revocation: ByOperator or ByPrincipal
	Unreadable bool   // the value cannot be used; requests that need it are denied
}

// WithChanges returns a store with some keys of the bucket changed: values has the new value of
// each, nil for a deleted key. Keys that are not of the bucket's form are ignored. Only changed
// keys are compiled; changes are in the order of their keys.
func (s *Store) WithChanges(values map[string][]byte) (*Store, []Change) {
	next := &Store{tenants: map[string]*tenantStore{}}
	if s != nil {
		maps.Copy(next.tenants, s.tenants)
	}
	var changes []Change
	mine := map[string]bool{} // copied tenants
	for _, key := range slices.Sorted(maps.Keys(values)) {
		k := ParseKey(key)
		if k.Kind == KeyUnknown {
			continue
		}
		if !mine[k.Tenant] {
			next.tenants[k.Tenant], mine[k.Tenant] = next.tenants[k.Tenant].clone(), true
		}
		if c, changed := next.tenants[k.Tenant].applyChange(k, values[key]); changed {
			changes = append(changes, c)
		}
	}
	return next, changes
}

func (t *tenantStore) clone() *tenantStore {
	if t == nil {
		return &tenantStore{mandates: map[string]*compiledMandate{}, revoked: map[revokedKey]bool{}}
	}
	c := *t
	c.mandates, c.revoked = maps.Clone(t.mandates), maps.Clone(t.revoked)
	return &c
}

func (t *tenantStore) applyChange(k ParsedKey, value []byte) (Change, bool) {
	switch k.Kind {
	case KeyMandate:
		return t.setMandate(k, value)
	case KeySigning:
		return t.setKeys(k, value)
	}
	c := Change{Kind: ChangeRevoked, Tenant: k.Tenant, ID: k.ID, Hash: k.Hash, By: k.By}
	at := revokedKey{k.ID, k.Hash, k.By}
	before := t.revoked[at]
	if value == nil {
		delete(t.revoked, at)
		c.Kind = ChangeRestore
		return c, before
	}
	t.revoked[at] = true
	c.Author = documentAuthor(value)
	return c, !before
}

func (t *tenantStore) setMandate(k ParsedKey, value []byte) (Change, bool) {
	c := Change{Kind: ChangePut, Tenant: k.Tenant, ID: k.ID}
	before := t.mandates[k.ID]
	if value == nil {
		delete(t.mandates, k.ID)
		c.Kind = ChangeDeleted
		return c, before != nil
	}
	if before != nil && string(before.raw) == string(value) {
		return c, false
	}
	h := &compiledMandate{raw: value, mandate: t.compileStored(k.ID, value)}
	t.mandates[k.ID] = h
	c.Hash, c.Author, c.Unreadable = h.mandate.Hash, documentAuthor(value), h.mandate.Violations != nil
	return c, true
}

// compileStored returns a mandate with violations for an invalid value, so that requests under
// its id are refused for the defect.
func (t *tenantStore) compileStored(id string, value []byte) *Mandate {
	s, err := DecodeStored(value)
	if err == nil && s.ID == id {
		var m *Mandate
		if m, err = Compile([]byte(s.Mandate), t.keys); err == nil {
			return m
		}
	}
	return &Mandate{
		Mandate:    &aump.Mandate{ID: id},
		Violations: []schemas.Violation{newViolation("", "stored", "must be a document that mandate put has stored")},
	}
}

// setKeys also checks the signatures of all mandates again. Unreadable keys verify nothing:
// every mandate must then be signed by one of them.
func (t *tenantStore) setKeys(k ParsedKey, value []byte) (Change, bool) {
	c := Change{Kind: ChangeKeys, Tenant: k.Tenant, Hash: digestText(value), Author: documentAuthor(value)}
	if c.Hash == t.keysSum {
		return c, false
	}
	t.keysSum, t.keys, t.policy = c.Hash, nil, SignaturesAuto
	if value != nil {
		doc, set, err := DecodeKeys(value)
		t.keys, t.policy = set, doc.Signatures
		if err != nil {
			t.keys, t.policy, c.Unreadable = nil, SignaturesRequired, true
		}
	}
	for id, h := range t.mandates {
		t.mandates[id] = &compiledMandate{raw: h.raw, mandate: t.compileStored(id, h.raw)}
	}
	return c, true
}

func digestText(b []byte) string {
	if b == nil {
		return ""
	}
	return digest.Plain(b)
}

// tenantByName finds a tenant by its name.
func (s *Store) tenantByName(tenant string) *tenantStore {
	if s == nil {
		return nil
	}
	return s.tenants[TenantToken(tenant)]
}

// Mandate implements Source.
func (s *Store) Mandate(tenant, id, _ string) *Mandate {
	t := s.tenantByName(tenant)
	if t == nil || t.mandates[id] == nil {
		return nil
	}
	return t.mandates[id].mandate
}

// Revoked implements Revocations.
func (s *Store) Revoked(tenant, id, hash string) bool {
	t := s.tenantByName(tenant)
	return t != nil && (t.revoked[revokedKey{id, hash, ByOperator}] || t.revoked[revokedKey{id, hash, ByPrincipal}])
}

// Signatures is a tenant's signature policy.
func (s *Store) Signatures(tenant string) SignaturePolicy {
	if t := s.tenantByName(tenant); t != nil {
		return t.policy
	}
	return SignaturesAuto
}

// Len is the number of mandates in force, over all tenants.
func (s *Store) Len() int {
	n := 0
	if s != nil {
		for _, t := range s.tenants {
			n += len(t.mandates)
		}
	}
	return n
}

// Digest is the same for stores of the same content.
func (s *Store) Digest() string {
	h := sha256.New()
	line := func(parts ...string) {
		for _, p := range parts {
			h.Write([]byte(p + " "))
		}
		h.Write([]byte("\n"))
	}
	if s != nil {
		for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
			t := s.tenants[name]
			line("tenant", name, t.keysSum)
			for _, id := range slices.Sorted(maps.Keys(t.mandates)) {
				line("mandate", id, digestText(t.mandates[id].raw))
			}
			for _, r := range slices.SortedFunc(maps.Keys(t.revoked), revokedKey.compare) {
				line("revoked", r.id, r.hash, r.by)
			}
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func (k revokedKey) compare(o revokedKey) int {
	return cmp.Or(cmp.Compare(k.id, o.id), cmp.Compare(k.hash, o.hash), cmp.Compare(k.by, o.by))
}

// maxAuthor bounds the recorded author, in bytes.
const maxAuthor = 128

// documentAuthor is the author that a document states; "" if it cannot be read.
func documentAuthor(value []byte) string {
	tree, err := strictjson.ParseObject(value, strictjson.DefaultLimits)
	if err != nil {
		return ""
	}
	name, _ := tree["author"].(string)
	return strings.ToValidUTF8(name[:min(len(name), maxAuthor)], "")
}
