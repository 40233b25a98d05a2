package mandate

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/internal/testkit"
)

// signer is a key pair with the algorithm it signs with.
type signer struct {
	kid       string
	algorithm jose.SignatureAlgorithm
	private   any
	public    map[string]any // JWK
}

func signers(t *testing.T) (list []signer) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	ok(t, err)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	for _, s := range []signer{{"ed", jose.EdDSA, priv, nil}, {"ec", jose.ES256, ec, nil}} {
		key := any(pub)
		if s.kid == "ec" {
			key = ec.Public()
		}
		b, err := jose.JSONWebKey{Key: key, KeyID: s.kid}.MarshalJSON()
		ok(t, err)
		ok(t, json.Unmarshal(b, &s.public))
		list = append(list, s)
	}
	return list
}

var ok = testkit.OK

// sign gives a mandate with a detached signature on it.
func (s signer) sign(t *testing.T, raw []byte) []byte {
	t.Helper()
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	ok(t, err)
	payload, err := aump.UnsignedForm(tree)
	ok(t, err)
	js, err := jose.NewSigner(jose.SigningKey{Algorithm: s.algorithm, Key: s.private}, nil)
	ok(t, err)
	obj, err := js.Sign(payload)
	ok(t, err)
	value, err := obj.DetachedCompactSerialize()
	ok(t, err)
	tree["signatures"] = []any{map[string]any{"type": "jws-detached", "alg": string(s.algorithm), "kid": s.kid, "value": value}}
	signed, err := strictjson.Canonical(tree)
	ok(t, err)
	return signed
}

func stored(t *testing.T, raw []byte) []byte {
	t.Helper()
	doc, err := aump.DecodeMandate(raw, strictjson.DefaultLimits)
	ok(t, err)
	hash, err := aump.MandateHash(doc.Tree())
	ok(t, err)
	b, err := events.Encode(StoredMandate{V: StoredVersion, ID: doc.ID, Hash: hash, Mandate: string(raw), Author: "ada"})
	ok(t, err)
	return b
}

func keysDoc(t *testing.T, policy SignaturePolicy, keys ...map[string]any) []byte {
	t.Helper()
	b, err := events.Encode(SigningKeys{V: StoredVersion, Keys: keys, Signatures: policy, Author: "ada"})
	ok(t, err)
	return b
}

const id = "aump_mnd_courier_01"

func TestStoredGivesTheBytesBack(t *testing.T) {
	raw := append([]byte("  "), corpusFile(t, "mandate/valid/minimal.json")...)
	raw = append(raw, "\n\t "...)
	s, err := DecodeStored(stored(t, raw))
	if err != nil || s.Mandate != string(raw) || s.ID != id {
		t.Errorf("%v %q", err, s.Mandate)
	}
	for name, edit := range map[string][2]string{
		"another hash":    {`"hash":"sha256-`, `"hash":"sha256-0`},
		"another id":      {`"id":"aump_mnd_courier_01","mandate`, `"id":"aump_mnd_courier_02","mandate`},
		"another version": {`"v":1`, `"v":2`},
		"more":            {`"v":1`, `"v":1,"x":1`},
	} {
		b := strings.Replace(string(stored(t, raw)), edit[0], edit[1], 1)
		if _, err := DecodeStored([]byte(b)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestStoreKeepsTenantsApart(t *testing.T) {
	s, changes := (*Store)(nil).WithChanges(map[string][]byte{Key("acme", id): stored(t, corpusFile(t, "mandate/valid/minimal.json")), "odd": []byte("x"), "acme.x.y": nil})
	if len(changes) != 1 || changes[0].Kind != ChangePut || changes[0].Author != "ada" || s.Len() != 1 {
		t.Errorf("%+v", changes)
	}
	for _, tenant := range []string{"globex", "", "acme.x", "ACME"} {
		if s.Mandate(tenant, id, "") != nil {
			t.Errorf("tenant %q sees it", tenant)
		}
	}
	for _, tenant := range []string{"a.b", "a b", "", strings.Repeat("x", 80), "=", "~"} {
		k := Key(tenant, id)
		if p := ParseKey(k); p.Kind != KeyMandate || p.Tenant != TenantToken(tenant) || strings.Trim(k, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-=.") != "" {
			t.Errorf("%q: %s %+v", tenant, k, p)
		}
		if s, _ := s.WithChanges(map[string][]byte{k: stored(t, corpusFile(t, "mandate/valid/minimal.json"))}); s.Mandate(tenant, id, "") == nil {
			t.Errorf("tenant %q does not see its own", tenant)
		}
	}
}

func TestStoreIsImmutable(t *testing.T) {
	one, _ := (*Store)(nil).WithChanges(map[string][]byte{Key("acme", id): stored(t, corpusFile(t, "mandate/valid/minimal.json"))})
	m := one.Mandate("acme", id, "")
	two, changes := one.WithChanges(map[string][]byte{RevocationKey("acme", id, m.Hash): []byte("whatever")})
	if !two.Revoked("acme", id, m.Hash) || one.Revoked("acme", id, m.Hash) || two.Revoked("globex", id, m.Hash) || changes[0].Kind != ChangeRevoked {
		t.Error("a revocation that cannot be read does not count, or counts elsewhere")
	}
	if two.Mandate("acme", id, "") != m {
		t.Error("compiled again")
	}
	if _, changes := two.WithChanges(map[string][]byte{RevocationKey("acme", id, m.Hash): []byte("again"), Key("acme", id): stored(t, corpusFile(t, "mandate/valid/minimal.json"))}); len(changes) != 0 {
		t.Errorf("%+v", changes)
	}
	three, changes := two.WithChanges(map[string][]byte{Key("acme", id): nil})
	if three.Mandate("acme", id, "") != nil || changes[0].Kind != ChangeDeleted || one.Digest() == two.Digest() || two.Digest() == three.Digest() {
		t.Errorf("%+v", changes)
	}
}

func TestStoreOfWhatCannotBeRead(t *testing.T) {
	other := strings.Replace(string(corpusFile(t, "mandate/valid/minimal.json")), id, "aump_mnd_other", 1)
	for name, value := range map[string][]byte{"no JSON": []byte("{"), "raw": corpusFile(t, "mandate/valid/minimal.json"), "another's": stored(t, []byte(other)), "empty": {}} {
		s, changes := (*Store)(nil).WithChanges(map[string][]byte{Key("acme", id): value})
		if m := s.Mandate("acme", id, ""); m == nil || m.Violations == nil || !changes[0].Unreadable {
			t.Errorf("%s: %+v", name, changes)
		}
	}
	s, _ := (*Store)(nil).WithChanges(map[string][]byte{Key("acme", id): stored(t, corpusFile(t, "mandate/valid/minimal.json")), KeysKey("acme"): []byte("{")})
	if s.Signatures("acme") != SignaturesRequired || s.Signatures("acme").Accepts(s.Mandate("acme", id, "").Signatures) {
		t.Error("with keys that cannot be read, an unsigned mandate is accepted")
	}
}

func TestSignaturePolicies(t *testing.T) {
	raw := corpusFile(t, "mandate/valid/minimal.json")
	list := signers(t)
	ed, ec := list[0], list[1]
	forged := strings.Replace(string(ed.sign(t, raw)), `"max_total_minor":20000`, `"max_total_minor":90000`, 1)
	for _, tc := range []struct {
		name     string
		mandate  []byte
		keys     []map[string]any
		accepted string // by auto, off, if_present, required
	}{
		{"unsigned, no keys", raw, nil, "auto off if_present"},
		{"unsigned", raw, []map[string]any{ed.public}, "auto off if_present"},
		{"EdDSA", ed.sign(t, raw), []map[string]any{ed.public, ec.public}, "auto off if_present required"},
		{"ES256", ec.sign(t, raw), []map[string]any{ed.public, ec.public}, "auto off if_present required"},
		{"by an unknown key", ed.sign(t, raw), []map[string]any{ec.public}, "off"},
		{"signed, no keys", ed.sign(t, raw), nil, "auto off"},
		{"changed afterwards", []byte(forged), []map[string]any{ed.public}, "off"},
	} {
		var accepted []string
		for _, name := range []string{"auto", "off", "if_present", "required"} {
			p := SignaturePolicies[name]
			s, _ := (*Store)(nil).WithChanges(map[string][]byte{Key("acme", id): stored(t, tc.mandate), KeysKey("acme"): keysDoc(t, p, tc.keys...)})
			if m := s.Mandate("acme", id, ""); m.Violations != nil || s.Signatures("acme") != p {
				t.Fatalf("%s: %v", tc.name, m.Violations)
			} else if p.Accepts(m.Signatures) {
				accepted = append(accepted, name)
			}
		}
		if got := strings.Join(accepted, " "); got != tc.accepted {
			t.Errorf("%s is accepted by %q, want %q", tc.name, got, tc.accepted)
		}
	}
}

// TestKeysChange: mandates that are there are judged by the new keys.
func TestKeysChange(t *testing.T) {
	ed := signers(t)[0]
	s, _ := (*Store)(nil).WithChanges(map[string][]byte{Key("acme", id): stored(t, ed.sign(t, corpusFile(t, "mandate/valid/minimal.json")))})
	if got := s.Mandate("acme", id, "").Signatures; got != "" {
		t.Errorf("without keys: %q", got)
	}
	s, changes := s.WithChanges(map[string][]byte{KeysKey("acme"): keysDoc(t, SignaturesRequired, ed.public)})
	if got := s.Mandate("acme", id, "").Signatures; got != aump.SignatureVerified || len(changes) != 1 || changes[0].Kind != ChangeKeys {
		t.Errorf("with the key: %q %+v", got, changes)
	}
	s, _ = s.WithChanges(map[string][]byte{KeysKey("acme"): nil})
	if got := s.Mandate("acme", id, "").Signatures; got != "" || s.Signatures("acme") != SignaturesAuto {
		t.Errorf("after the keys were taken away: %q", got)
	}
	if _, err := (SigningKeys{Keys: []map[string]any{ed.public, ed.public}}).Set(); err == nil {
		t.Error("one kid twice")
	}
}
