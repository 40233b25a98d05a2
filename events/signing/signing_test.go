package signing_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/events/signing"
)

func key(t testing.TB, seed byte) signing.PrivateKey {
	t.Helper()
	k, err := signing.NewPrivateKey(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func set(keys ...signing.PrivateKey) signing.KeySet {
	ks := signing.KeySet{}
	for _, k := range keys {
		ks[k.ID] = k.Public()
	}
	return ks
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

var payload = []byte(`{"v":1,"verdict":"allow"}`)

// Ed25519 is deterministic: one key and one payload give one token.
func TestGolden(t *testing.T) {
	k := key(t, 1)
	if k.ID != "34750f98bd59fcfc" {
		t.Errorf("key id %s", k.ID)
	}
	token, err := k.Sign(signing.TypeReceipt, payload)
	if err != nil {
		t.Fatal(err)
	}
	header, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	if want := `{"alg":"EdDSA","kid":"` + k.ID + `","typ":"countersign-receipt+jwt"}`; err != nil || string(header) != want {
		t.Errorf("header %s, %v, want %s", header, err, want)
	}
	signed := token[:strings.LastIndexByte(token, '.')]
	want := signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32)), []byte(signed)))
	if token != want {
		t.Errorf("token\n%s, want\n%s", token, want)
	}
}

func TestRoundTrip(t *testing.T) {
	k := key(t, 1)
	for _, p := range [][]byte{payload, {}, []byte("not JSON at all"), bytes.Repeat([]byte{0}, 100_000)} {
		token, err := k.Sign(signing.TypeReceipt, p)
		if err != nil {
			t.Fatal(err)
		}
		got, kid, err := set(k).Verify(signing.TypeReceipt, token)
		if err != nil || kid != k.ID || !bytes.Equal(got, p) {
			t.Errorf("Verify: %d bytes, %s, %v", len(got), kid, err)
		}
		detached, err := k.SignDetached(signing.TypeRecord, p)
		if err != nil {
			t.Fatal(err)
		}
		if kid, err := set(k).VerifyDetached(signing.TypeRecord, detached, p); err != nil || kid != k.ID {
			t.Errorf("VerifyDetached: %s, %v", kid, err)
		}
	}
}

// forge makes a compact JWS by hand.
func forge(header string, body []byte, sign func(signed []byte) []byte) string {
	signed := b64(header) + "." + base64.RawURLEncoding.EncodeToString(body)
	return signed + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(signed)))
}

func TestVerifyRefuses(t *testing.T) {
	k, stranger := key(t, 1), key(t, 2)
	good, _ := k.Sign(signing.TypeReceipt, payload)
	foreign, _ := stranger.Sign(signing.TypeReceipt, payload)
	record, _ := k.Sign(signing.TypeRecord, payload)
	parts := strings.Split(good, ".")
	pub := []byte(k.Public())
	hs256 := func(secret []byte) func([]byte) []byte {
		return func(signed []byte) []byte {
			m := hmac.New(sha256.New, secret)
			m.Write(signed)
			return m.Sum(nil)
		}
	}
	byStranger := func(signed []byte) []byte {
		return ed25519.Sign(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32)), signed)
	}
	jwk, _ := json.Marshal(jose.JSONWebKey{Key: stranger.Public(), KeyID: k.ID, Algorithm: "EdDSA"})
	head := `{"alg":"%s","kid":"` + k.ID + `","typ":"` + signing.TypeReceipt + `"%s}`

	tests := []struct {
		name, token string
		want        error
	}{
		{"key nobody published", foreign, signing.ErrUnknownKey},
		{"made for another purpose", record, signing.ErrMalformed},
		{"tampered payload", parts[0] + "." + b64(`{"v":1,"verdict":"deny"}`) + "." + parts[2], signing.ErrBadSignature},
		{"tampered header", b64(fmt.Sprintf(head, "EdDSA", `,"x":1`)) + "." + parts[1] + "." + parts[2], signing.ErrMalformed},
		{"signature of another payload", parts[0] + "." + parts[1] + "." + strings.Split(foreign, ".")[2], signing.ErrBadSignature},
		{"no signature", parts[0] + "." + parts[1] + ".", signing.ErrBadSignature},
		{"no payload", parts[0] + ".." + parts[2], signing.ErrBadSignature},
		{"alg none", forge(fmt.Sprintf(head, "none", ""), payload, func([]byte) []byte { return nil }), signing.ErrMalformed},
		{"alg None", forge(fmt.Sprintf(head, "None", ""), payload, func([]byte) []byte { return nil }), signing.ErrMalformed},
		{"HS256 keyed with the public key", forge(fmt.Sprintf(head, "HS256", ""), payload, hs256(pub)), signing.ErrMalformed},
		{"HS256 keyed with its text", forge(fmt.Sprintf(head, "HS256", ""), payload, hs256([]byte(signing.EncodePublic(pub)))), signing.ErrMalformed},
		{"key brought along", forge(fmt.Sprintf(head, "EdDSA", `,"jwk":`+string(jwk)), payload, byStranger), signing.ErrMalformed},
		{"unknown critical header", forge(fmt.Sprintf(head, "EdDSA", `,"crit":["x"],"x":1`), payload, byStranger), signing.ErrMalformed},
		{"no kid", forge(`{"alg":"EdDSA","typ":"`+signing.TypeReceipt+`"}`, payload, byStranger), signing.ErrMalformed},
		{"no typ", forge(`{"alg":"EdDSA","kid":"`+k.ID+`"}`, payload, byStranger), signing.ErrMalformed},
		{"typ is no text", forge(`{"alg":"EdDSA","kid":"`+k.ID+`","typ":1}`, payload, byStranger), signing.ErrMalformed},
		{"JSON serialisation", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, signing.ErrMalformed},
		{"two parts", parts[0] + "." + parts[1], signing.ErrMalformed},
		{"four parts", good + "." + parts[2], signing.ErrMalformed},
		{"empty", "", signing.ErrMalformed},
		{"dots", "..", signing.ErrMalformed},
		{"text", "hunter2", signing.ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := set(k).Verify(signing.TypeReceipt, tt.token)
			if !errors.Is(err, tt.want) || got != nil {
				t.Errorf("Verify gives %q, %v, want %v", got, err, tt.want)
			}
		})
	}
	if _, _, err := signing.KeySet(nil).Verify(signing.TypeReceipt, good); !errors.Is(err, signing.ErrUnknownKey) {
		t.Errorf("the nil set: %v", err)
	}
}

// A token that verifies is the only one for its header, payload and signature:
// records hold a hash of the token.
func TestTokensAreNotMalleable(t *testing.T) {
	k := key(t, 1)
	attached, _ := k.Sign(signing.TypeReceipt, payload)
	detached, _ := k.SignDetached(signing.TypeRecord, payload)
	try := func(a, d string) {
		t.Helper()
		if _, _, err := set(k).Verify(signing.TypeReceipt, a); a != attached && err == nil {
			t.Errorf("another token verifies: %q", a)
		}
		if _, err := set(k).VerifyDetached(signing.TypeRecord, d, payload); d != detached && err == nil {
			t.Errorf("another detached token verifies: %q", d)
		}
	}
	for i := range max(len(attached), len(detached)) + 1 {
		at := func(token string, repl string, skip int) string {
			if i+skip > len(token) {
				return token
			}
			return token[:i] + repl + token[i+skip:]
		}
		letters := "AQgw_+=."
		if end := func(t string) bool { return i+1 >= len(t) || t[i+1] == '.' }; end(attached) || end(detached) {
			letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=." // spare bits are there
		}
		for _, c := range letters {
			try(at(attached, string(c), 1), at(detached, string(c), 1))
		}
		for _, ins := range []string{"\n", "\r\n", " ", "\t", "=", "\x00"} {
			try(at(attached, ins, 0), at(detached, ins, 0))
		}
	}
}

func TestVerifyDetachedRefuses(t *testing.T) {
	k := key(t, 1)
	attached, _ := k.Sign(signing.TypeRecord, payload)
	detached, _ := k.SignDetached(signing.TypeRecord, payload)
	receipt, _ := k.SignDetached(signing.TypeReceipt, payload)
	foreign, _ := key(t, 2).SignDetached(signing.TypeRecord, payload)
	tests := []struct {
		name, token string
		payload     []byte
		want        error
	}{
		{"other payload", detached, []byte(`{"v":1,"verdict":"deny"}`), signing.ErrBadSignature},
		{"empty payload", detached, []byte{}, signing.ErrBadSignature},
		{"no payload", detached, nil, signing.ErrMalformed},
		{"attached token", attached, payload, signing.ErrMalformed},
		{"attached token, no payload", attached, nil, signing.ErrMalformed},
		{"made for another purpose", receipt, payload, signing.ErrMalformed},
		{"key nobody published", foreign, payload, signing.ErrUnknownKey},
		{"empty", "", payload, signing.ErrMalformed},
	}
	for _, tt := range tests {
		if _, err := set(k).VerifyDetached(signing.TypeRecord, tt.token, tt.payload); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, n := range []int{0, 31, 33, 64} {
		if _, err := signing.NewPrivateKey(make([]byte, n)); err == nil {
			t.Errorf("a seed of %d bytes was accepted", n)
		}
	}
	k := key(t, 1)
	pub, err := signing.DecodePublic(signing.EncodePublic(k.Public()))
	if err != nil || !pub.Equal(k.Public()) || signing.KeyID(pub) != k.ID {
		t.Errorf("public key does not survive its text form: %v", err)
	}
	for _, text := range []string{"", "AA", "!", signing.EncodePublic(k.Public()) + "AA", signing.EncodePublic(k.Public()) + "="} {
		if _, err := signing.DecodePublic(text); err == nil {
			t.Errorf("DecodePublic(%q) was accepted", text)
		}
	}
}

func TestSignsNothing(t *testing.T) {
	if token, err := (signing.PrivateKey{}).Sign(signing.TypeReceipt, payload); err == nil {
		t.Errorf("the zero key signed: %s", token)
	}
	if token, err := key(t, 1).Sign("another+jws", payload); err == nil {
		t.Errorf("of an unknown type: %s", token)
	}
}

func TestPrivateKeyStaysOutOfLogs(t *testing.T) {
	k := key(t, 0xab)
	inside := struct{ k signing.PrivateKey }{k} // fmt calls no methods of unexported fields
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		for _, v := range []any{k, &k, inside, &inside, []signing.PrivateKey{k}} {
			text := strings.ToLower(fmt.Sprintf(verb, v))
			for _, leak := range []string{"abab", "171 171", "0xab, 0xab", "«"} {
				if strings.Contains(text, leak) {
					t.Errorf("%s of %T prints the key", verb, v)
				}
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	k := key(f, 1)
	token, _ := k.Sign(signing.TypeReceipt, payload)
	detached, _ := k.SignDetached(signing.TypeReceipt, payload)
	for _, s := range []string{token, detached, "..", "", b64(`{"alg":"none"}`) + "..", token[:40], `{"payload":""}`} {
		f.Add(s)
	}
	ks := set(k)
	f.Fuzz(func(t *testing.T, s string) {
		if _, _, err := ks.Verify(signing.TypeReceipt, s); err == nil && s != token {
			t.Fatalf("a token that nobody signed verifies: %q", s)
		}
		if _, err := ks.VerifyDetached(signing.TypeReceipt, s, payload); err == nil && s != detached {
			t.Fatalf("a detached token that nobody signed verifies: %q", s)
		}
	})
}
