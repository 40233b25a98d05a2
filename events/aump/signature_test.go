package aump

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Keys of fixed seeds.
func edKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func ecKey(t testing.TB, seed string) *ecdsa.PrivateKey {
	t.Helper()
	d := sha256.Sum256([]byte(seed))
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), new(big.Int).SetBytes(d[:]).FillBytes(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func jwk(t testing.TB, kid string, key any, more ...string) map[string]any {
	t.Helper()
	b, err := jose.JSONWebKey{Key: key, KeyID: kid}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	tree := parse(t, string(b))
	for i := 0; i+1 < len(more); i += 2 {
		tree[more[i]] = more[i+1]
	}
	return tree
}

func keys(t testing.TB, list ...map[string]any) KeySet {
	t.Helper()
	ks := KeySet{}
	if err := ks.Add(&Profile{SigningKeys: list}); err != nil {
		t.Fatal(err)
	}
	return ks
}

func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, kid string, payload []byte, detached bool) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	if kid != "" {
		opts.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	serialise := obj.CompactSerialize
	if detached {
		serialise = obj.DetachedCompactSerialize
	}
	token, err := serialise()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func signed(t testing.TB, signatures ...Signature) *Mandate {
	t.Helper()
	m, err := DecodeMandate(corpusFile(t, "mandate/valid/minimal.json"), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	m.Signatures = signatures
	return m
}

func TestSignatures(t *testing.T) {
	payload, err := UnsignedForm(signed(t).Tree())
	if err != nil {
		t.Fatal(err)
	}
	ed, other, ec := edKey('a'), edKey('b'), ecKey(t, "c")
	ks := keys(t, jwk(t, "ed", ed.Public()), jwk(t, "ec", &ec.PublicKey, "use", "sig", "alg", "ES256"))
	good := Signature{"jws-detached", "EdDSA", "ed", sign(t, jose.EdDSA, ed, "ed", payload, true)}
	goodEC := Signature{"jws-detached", "ES256", "ec", sign(t, jose.ES256, ec, "ec", payload, true)}
	attached := Signature{"jws", "EdDSA", "ed", sign(t, jose.EdDSA, ed, "ed", payload, false)}
	alter := func(s Signature, change func(*Signature)) Signature { change(&s); return s }
	stranger := Signature{"jws-detached", "EdDSA", "stranger", sign(t, jose.EdDSA, other, "stranger", payload, true)}
	forged := alter(good, func(s *Signature) { s.Value = sign(t, jose.EdDSA, other, "ed", payload, true) })
	hmacKey, _ := json.Marshal(jwk(t, "ed", ed.Public()))
	for name, tc := range map[string]struct {
		signatures []Signature
		want       SignatureState
	}{
		"none":                         {nil, SignatureNone},
		"EdDSA, detached":              {[]Signature{good}, SignatureVerified},
		"ES256, detached":              {[]Signature{goodEC}, SignatureVerified},
		"attached":                     {[]Signature{attached}, SignatureVerified},
		"without kid in the header":    {[]Signature{alter(good, func(s *Signature) { s.Value = sign(t, jose.EdDSA, ed, "", payload, true) })}, SignatureVerified},
		"beside a stranger's":          {[]Signature{stranger, good}, SignatureVerified},
		"a stranger's alone":           {[]Signature{stranger}, SignatureUnverifiable},
		"a form that is not verified":  {[]Signature{alter(good, func(s *Signature) { s.Type = "vc-sd-jwt" })}, SignatureUnverifiable},
		"by another key":               {[]Signature{forged}, SignatureInvalid},
		"a forged one beside a good":   {[]Signature{good, forged}, SignatureInvalid},
		"over another mandate":         {[]Signature{alter(good, func(s *Signature) { s.Value = sign(t, jose.EdDSA, ed, "ed", []byte("{}"), true) })}, SignatureInvalid},
		"attached, of another mandate": {[]Signature{alter(attached, func(s *Signature) { s.Value = sign(t, jose.EdDSA, ed, "ed", []byte("{}"), false) })}, SignatureInvalid},
		"no algorithm":                 {[]Signature{alter(good, func(s *Signature) { s.Algorithm, s.Value = "none", "eyJhbGciOiJub25lIn0.." })}, SignatureInvalid},
		"none in the header alone":     {[]Signature{alter(good, func(s *Signature) { s.Value = "eyJhbGciOiJub25lIn0.." })}, SignatureInvalid},
		"public key taken as a secret": {[]Signature{alter(good, func(s *Signature) { s.Value = sign(t, jose.HS256, hmacKey, "ed", payload, true) })}, SignatureInvalid},
		"another algorithm beside it":  {[]Signature{alter(good, func(s *Signature) { s.Algorithm = "ES256" })}, SignatureInvalid},
		"key of another algorithm":     {[]Signature{alter(goodEC, func(s *Signature) { s.KeyID = "ed" })}, SignatureInvalid},
		"header names another key":     {[]Signature{alter(good, func(s *Signature) { s.Value = sign(t, jose.EdDSA, ed, "ec", payload, true) })}, SignatureInvalid},
		"payload where none belongs":   {[]Signature{alter(attached, func(s *Signature) { s.Type = "jws-detached" })}, SignatureInvalid},
		"line break in it":             {[]Signature{alter(good, func(s *Signature) { s.Value = s.Value[:9] + "\n" + s.Value[9:] })}, SignatureInvalid},
		"nothing":                      {[]Signature{alter(good, func(s *Signature) { s.Value = "" })}, SignatureInvalid},
		"JSON serialisation":           {[]Signature{alter(good, func(s *Signature) { s.Value = `{"signatures":[]}` })}, SignatureInvalid},
		"far too many":                 {make([]Signature, maxSignatures+1), SignatureInvalid},
	} {
		if got := ks.Verify(signed(t, tc.signatures...)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := (KeySet)(nil).Verify(signed(t, good)); got != SignatureUnverifiable {
		t.Errorf("without keys: %s", got)
	}
}

// TestSignatureIsOverTheContent: signing does not change the hash, and a changed
// mandate loses its signature.
func TestSignatureIsOverTheContent(t *testing.T) {
	m := signed(t)
	payload, _ := UnsignedForm(m.Tree())
	before, _ := MandateHash(m.Tree())
	ed := edKey('a')
	token := sign(t, jose.EdDSA, ed, "ed", payload, true)
	text := string(m.Raw)
	withSignature := func(text string) *Mandate {
		full := strings.TrimSuffix(strings.TrimSpace(text), "}") +
			fmt.Sprintf(`,"signatures":[{"type":"jws-detached","alg":"EdDSA","kid":"ed","value":%q}]}`, token)
		m, err := DecodeMandate([]byte(full), strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ks := keys(t, jwk(t, "ed", ed.Public()))
	s := withSignature(text)
	if after, _ := MandateHash(s.Tree()); after != before || ks.Verify(s) != SignatureVerified {
		t.Errorf("%s, %s, %s", before, after, ks.Verify(s))
	}
	if s := withSignature(strings.Replace(text, "20000", "20001", 1)); ks.Verify(s) != SignatureInvalid {
		t.Error("another budget has the same signature")
	}
}

func TestKeysOfProfiles(t *testing.T) {
	ed, ec := edKey('a'), ecKey(t, "c")
	p384, err := ecdsa.ParseRawPrivateKey(elliptic.P384(), append(make([]byte, 47), 7))
	if err != nil {
		t.Fatal(err)
	}
	ks := keys(t,
		map[string]any{"kid": "no key in it", "kty": "EC", "crv": "P-256", "use": "sig"},
		jwk(t, "private", ed),
		jwk(t, "for encryption", ed.Public(), "use", "enc"),
		jwk(t, "of a type unknown here", &p384.PublicKey),
		jwk(t, "with another algorithm", &ec.PublicKey, "alg", "ES384"),
		jwk(t, "", ed.Public()),
		jwk(t, "good", ed.Public()), jwk(t, "good", ed.Public()),
	)
	if len(ks) != 1 || ks["good"].public == nil {
		t.Errorf("%d keys", len(ks))
	}
	err = ks.Add(&Profile{SigningKeys: []map[string]any{jwk(t, "new", ed.Public()), jwk(t, "good", &ec.PublicKey)}})
	if !errors.Is(err, ErrKeyConflict) || len(ks) != 1 {
		t.Errorf("%v, %d keys", err, len(ks))
	}
	if err := (KeySet{}).Add(&Profile{SigningKeys: []map[string]any{jwk(t, "k", edKey('a').Public()), jwk(t, "k", edKey('b').Public())}}); !errors.Is(err, ErrKeyConflict) {
		t.Error(err)
	}
}
