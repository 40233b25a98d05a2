package signing_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events/signing"
)

// joseToken is what go-jose makes of a payload.
func joseToken(t testing.TB, seed byte, typ string, payload []byte, detached bool) string {
	t.Helper()
	k := key(t, seed)
	opts := (&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", k.ID)
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private}, opts)
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

// What is written here is byte for byte what go-jose writes, and each reads the
// other's.
func TestSameAsJose(t *testing.T) {
	k := key(t, 3)
	algs := []jose.SignatureAlgorithm{jose.EdDSA}
	for _, typ := range []string{signing.TypeReceipt, signing.TypeRecord, signing.TypeBatch} {
		for _, p := range [][]byte{payload, {}, []byte("x"), []byte("xy"), bytes.Repeat([]byte{0xff, 0}, 50_000)} {
			attached, err := k.Sign(typ, p)
			if err != nil {
				t.Fatal(err)
			}
			if attached != joseToken(t, 3, typ, p, false) {
				t.Fatalf("type %q, %d bytes: not what go-jose writes", typ, len(p))
			}
			obj, err := jose.ParseSignedCompact(attached, algs)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := obj.Verify(k.Public()); err != nil || !bytes.Equal(got, p) {
				t.Errorf("type %q: go-jose does not verify it: %v", typ, err)
			}
			detached, err := k.SignDetached(typ, p)
			if err != nil {
				t.Fatal(err)
			}
			if detached != joseToken(t, 3, typ, p, true) {
				t.Fatalf("type %q, %d bytes, detached: not what go-jose writes", typ, len(p))
			}
			if obj, err = jose.ParseDetached(detached, p, algs); err != nil || obj.DetachedVerify(p, k.Public()) != nil {
				t.Errorf("type %q: go-jose does not verify it detached: %v", typ, err)
			}
		}
	}
}

// A header with the same members in another spelling, or with more of them, is refused although its
// signature is good: a signature has one spelling.
func TestOtherHeadersAreRefused(t *testing.T) {
	k := key(t, 1)
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	for name, head := range map[string]string{
		"other order": `{"typ":"` + signing.TypeReceipt + `","kid":"` + k.ID + `","alg":"EdDSA"}`,
		"blanks":      `{ "alg":"EdDSA","kid":"` + k.ID + `","typ":"` + signing.TypeReceipt + `" }`,
		"one more":    `{"alg":"EdDSA","cty":"json","kid":"` + k.ID + `","typ":"` + signing.TypeReceipt + `"}`,
	} {
		token := forge(head, payload, func(signed []byte) []byte { return ed25519.Sign(private, signed) })
		if !slow(set(k), signing.TypeReceipt, token, nil) {
			t.Errorf("%s: go-jose says no; the signature is not good", name)
		}
		if got, _, err := set(k).Verify(signing.TypeReceipt, token); !errors.Is(err, signing.ErrMalformed) || got != nil {
			t.Errorf("%s: %q %v", name, got, err)
		}
		parts := strings.Split(token, ".")
		if _, err := set(k).VerifyDetached(signing.TypeReceipt, parts[0]+".."+parts[2], payload); !errors.Is(err, signing.ErrMalformed) {
			t.Errorf("%s, detached: %v", name, err)
		}
	}
}

// slow judges a token by go-jose alone.
func slow(ks signing.KeySet, typ, token string, detached []byte) bool {
	var obj *jose.JSONWebSignature
	var err error
	algs := []jose.SignatureAlgorithm{jose.EdDSA}
	if detached == nil {
		obj, err = jose.ParseSignedCompact(token, algs)
	} else {
		obj, err = jose.ParseDetached(token, detached, algs)
	}
	if err != nil || len(obj.Signatures) != 1 {
		return false
	}
	h := obj.Signatures[0].Protected
	if got, _ := h.ExtraHeaders[jose.HeaderType].(string); got != typ {
		return false
	}
	pub, known := ks[h.KeyID]
	if !known {
		return false
	}
	if detached != nil {
		return obj.DetachedVerify(detached, pub) == nil
	}
	_, err = obj.Verify(pub)
	return err == nil
}

// Whatever is done to a token, this package accepts it only if go-jose does.
func TestVerifyAgreesWithJose(t *testing.T) {
	k, stranger := key(t, 1), key(t, 2)
	ks := set(k)
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "body")
		typ := rapid.SampledFrom([]string{signing.TypeReceipt, signing.TypeRecord}).Draw(t, "typ")
		signer := rapid.SampledFrom([]signing.PrivateKey{k, k, k, stranger}).Draw(t, "signer")
		detached := rapid.Bool().Draw(t, "detached")
		token, _ := signer.Sign(typ, body)
		if detached {
			token, _ = signer.SignDetached(typ, body)
		}
		if n := rapid.IntRange(0, 2).Draw(t, "edits"); n > 0 {
			b := []byte(token)
			for range n {
				b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("AQgwabc_-.=+/\n")).Draw(t, "with")
			}
			token = string(b)
		}
		if detached {
			_, err := ks.VerifyDetached(signing.TypeReceipt, token, body)
			if err == nil && !slow(ks, signing.TypeReceipt, token, body) {
				t.Fatalf("detached %q verifies, and go-jose says no", token)
			}
			return
		}
		got, _, err := ks.Verify(signing.TypeReceipt, token)
		if want := slow(ks, signing.TypeReceipt, token, nil); err == nil && (!want || !bytes.Equal(got, body)) {
			t.Fatalf("%q verifies, and go-jose says no", token)
		}
	})
}

// A key of the wrong size in a set is no key; it must not panic.
func TestBrokenKeyInTheSet(t *testing.T) {
	k := key(t, 1)
	token, _ := k.Sign(signing.TypeReceipt, payload)
	detached, _ := k.SignDetached(signing.TypeReceipt, payload)
	for _, pub := range []ed25519.PublicKey{nil, {}, k.Public()[:31]} {
		ks := signing.KeySet{k.ID: pub}
		if _, _, err := ks.Verify(signing.TypeReceipt, token); !errors.Is(err, signing.ErrBadSignature) {
			t.Errorf("%d bytes: %v", len(pub), err)
		}
		if _, err := ks.VerifyDetached(signing.TypeReceipt, detached, payload); !errors.Is(err, signing.ErrBadSignature) {
			t.Errorf("%d bytes, detached: %v", len(pub), err)
		}
	}
}
