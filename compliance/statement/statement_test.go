package statement

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/internal/testkit"
)

var (
	key    = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	public = key.Public().(ed25519.PublicKey)
)

var must = testkit.OK

func sample(t testing.TB) []byte {
	t.Helper()
	raw, err := Sign(key, []Subject{{"b", map[string]string{"sha256": "01"}}, {"a", map[string]string{"sha256": "00"}}}, Predicate{Format: "x", Tenant: "acme", Records: 3})
	must(t, err)
	return raw
}

func TestSignAndOpen(t *testing.T) {
	raw := sample(t)
	o, err := Open(raw)
	must(t, err)
	if !o.Key.Equal(public) || o.Subject[0].Name != "a" || o.Predicate.Tenant != "acme" || !bytes.Equal(raw, sample(t)) {
		t.Errorf("%+v", o)
	}
	members := []Subject{{"a", map[string]string{"sha256": "00"}}, {"b", map[string]string{"sha256": "01"}}}
	p := Predicate{Format: "x", Tenant: "acme", Records: 3}
	if d := o.Compare(members, p); len(d) != 0 {
		t.Errorf("%q", d)
	}
	for name, tc := range map[string]struct {
		members []Subject
		p       Predicate
		want    string
	}{
		"another digest": {[]Subject{members[0], {"b", map[string]string{"sha256": "02"}}}, p, "b is not the file that was signed"},
		"one less":       {members[:1], p, `it speaks of "b", which is not here`},
		"one more":       {append(members, Subject{"c", nil}), p, "c is not in it"},
		"other evidence": {members, Predicate{Format: "x", Tenant: "acne", Records: 3}, "it is about other evidence"},
	} {
		if d := strings.Join(o.Compare(tc.members, tc.p), "; "); d != tc.want {
			t.Errorf("%s: %q, want %q", name, d, tc.want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	raw := string(sample(t))
	swap := func(old, fresh string) string { return strings.Replace(raw, old, fresh, 1) }
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "{", "no line feed": strings.TrimSuffix(raw, "\n"), "blanks": swap(`{"`, `{ "`), "another type": swap("in-toto", "in-tata"),
		"two signatures": swap(`"signatures":[`, `"signatures":[{"keyid":"","sig":""},`), "another key id": swap(`"keyid":"`, `"keyid":"0`), "an unknown member": swap(`{"`, `{"a":1,"`),
		"another payload": swap(`"payload":"`, `"payload":"AAAA`), "another signature": swap(`"sig":"`, `"sig":"AAAA`), "twice": raw + raw,
	} {
		if _, err := Open([]byte(text)); !errors.Is(err, ErrStatement) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseKeyForms(t *testing.T) {
	pem, err := EncodeKey(public)
	must(t, err)
	for _, text := range []string{string(pem), base64.RawURLEncoding.EncodeToString(public)} {
		got, err := ParseKey(text)
		if err != nil || !got.Equal(public) {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	vkey, err := note.NewEd25519VerifierKey("countersign.dev/checkpoint", public)
	must(t, err)
	if got, err := ParseKey(vkey + "\n"); err != nil || !got.Equal(public) {
		t.Errorf("a checkpoint key: %v", err)
	}
	for _, bad := range []string{"", "x", "a+b+c", strings.Replace(string(pem), "PUBLIC", "PRIVATE", 2), string(pem) + "more", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%.40q is taken for a key", bad)
		}
	}
}

func FuzzOpenStatement(f *testing.F) {
	good, err := Sign(key, []Subject{{Name: "a", Digest: map[string]string{"sha256": "00"}}}, Predicate{Format: "x"})
	must(f, err)
	f.Add(good)
	f.Add([]byte(`{"payload":"","payloadType":"","signatures":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := Open(raw)
		if err == nil && o.Key.Equal(public) && !bytes.Equal(raw, good) {
			t.Errorf("another text has the signature of the same key: %q", raw)
		}
	})
}
