package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func record(t *testing.T, text string, change func(*Record)) []byte {
	t.Helper()
	r := Record{Hash: Hash(text), Tenant: "acme", User: "web1", Role: Runtime, CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(time.Hour)}
	change(&r)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte(text)) {
		t.Error("the record holds the token")
	}
	return b
}

// Only the token itself, unrevoked, unexpired and of this tenant, signs in.
func TestFind(t *testing.T) {
	text, id, err := New(bytes.Repeat([]byte{9}, RandomBytes))
	if err != nil {
		t.Fatal(err)
	}
	other, _, _ := New(append(bytes.Repeat([]byte{9}, idBytes), bytes.Repeat([]byte{8}, secretBytes)...)) // same id, other secret
	revoked := now
	for name, c := range map[string]struct {
		text   string
		change func(*Record)
		ok     bool
	}{
		"valid":          {text, func(*Record) {}, true},
		"other secret":   {other, func(*Record) {}, false},
		"its hash":       {Hash(text), func(*Record) {}, false},
		"empty":          {"", func(*Record) {}, false},
		"longer":         {text + "A", func(*Record) {}, false},
		"revoked":        {text, func(r *Record) { r.RevokedAt = &revoked }, false},
		"expires now":    {text, func(r *Record) { r.ExpiresAt = now }, false},
		"another tenant": {text, func(r *Record) { r.Tenant = "globex" }, false},
		"unknown role":   {text, func(r *Record) { r.Role = "operator" }, false},
		"user with dots": {text, func(r *Record) { r.User = "web1.agenthook" }, false},
		"no hash":        {text, func(r *Record) { r.Hash = "" }, false},
	} {
		s := NewSet("acme", map[string][]byte{id: record(t, text, c.change)})
		r, found, ok := s.Find(c.text, now)
		if ok != c.ok || ok && (found != id || r.User != "web1") || !ok && r != (Record{}) {
			t.Errorf("%s: %v %v", name, r, ok)
		}
	}
	if _, _, ok := (*Set)(nil).Find(text, now); ok {
		t.Error("no view signs somebody in")
	}
}

// A mapping stores no subject, lets in its subject alone, and is no bearer token.
func TestFindSubject(t *testing.T) {
	subject := CertificateNamed("CN=web1,O=Acme")
	proof, err := ProofOf(subject)
	if err != nil || proof != ProofCertificate {
		t.Fatal(proof, err)
	}
	text, id, err := New(bytes.Repeat([]byte{7}, RandomBytes))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet("acme", map[string][]byte{
		"a": record(t, subject, func(r *Record) { r.Proof = proof }),
		id:  record(t, text, func(r *Record) { r.Proof = ProofOIDC }),
		"b": record(t, CertificateNamed("CN=web2"), func(*Record) {}),
		"c": record(t, CertificateNamed("CN=web3"), func(r *Record) { r.Proof = "word" }),
	})
	if r, found, ok := s.FindSubject(subject, now); !ok || found != "a" || r.User != "web1" {
		t.Errorf("%v %v", r, ok)
	}
	for _, other := range []string{"", text, Hash(subject), CertificateNamed("CN=web2"), CertificateNamed("CN=web3"), "CN=web1,O=Acme"} {
		if _, _, ok := s.FindSubject(other, now); ok {
			t.Errorf("%q is let in", other)
		}
	}
	if _, _, ok := s.Find(text, now); ok {
		t.Error("a mapping is a bearer token")
	}
}

// Tokens that hold now and not in a week are counted; those that are over or revoked are not.
func TestEndingSoon(t *testing.T) {
	records := map[string][]byte{}
	for i, left := range []time.Duration{-time.Second, time.Minute, EndNotice - time.Second, EndNotice + time.Second} {
		for _, revoked := range []bool{false, true} {
			records[fmt.Sprint(i, revoked)] = record(t, "secret-token", func(r *Record) {
				if r.ExpiresAt = now.Add(left); revoked {
					r.RevokedAt = &r.CreatedAt
				}
			})
		}
	}
	if n := NewSet("acme", records).EndingSoon(now); n != 2 {
		t.Errorf("%d end soon, want 2", n)
	}
}
