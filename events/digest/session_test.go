package digest_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/digest"
)

func TestSession(t *testing.T) {
	key := bytes.Repeat([]byte{0xab}, digest.KeySize)
	s := digest.NewSession(key)
	clear(key) // the caller may wipe what it handed in
	k := s.Keyer()
	for _, text := range []string{"", "a", "b", strings.Repeat("x", 1000), "a"} {
		d := s.Digest([]byte(text))
		if got := k.Digest(sha256.Sum256([]byte(text))); got != d {
			t.Errorf("%.10q: %s, want %s", text, got, d)
		}
		if digest.ComparableForm(d) != s.Form() || !strings.HasPrefix(d, digest.PrefixSession) {
			t.Errorf("%s is not of the form %s", d, s.Form())
		}
	}
	other := digest.NewSession(bytes.Repeat([]byte{1}, digest.KeySize))
	if other.Form() == s.Form() || other.Digest(nil) == s.Digest(nil) {
		t.Error("two keys make the same digests")
	}
	if again := digest.NewSession(bytes.Repeat([]byte{0xab}, digest.KeySize)); again.Digest([]byte("a")) != s.Digest([]byte("a")) {
		t.Error("the key changed with its source")
	}
}

// Without a key there are no digests, and a short key is none.
func TestNoSession(t *testing.T) {
	for _, n := range []int{0, 16, 31, 33} {
		s := digest.NewSession(make([]byte, n))
		if s != nil || s.Digest(nil) != "" || s.Form() != "" || s.Keyer().Digest([32]byte{}) != "" {
			t.Errorf("a key of %d bytes makes digests", n)
		}
	}
}

func TestSessionStaysOutOfLogs(t *testing.T) {
	s := digest.NewSession(bytes.Repeat([]byte{7}, digest.KeySize))
	own := fmt.Sprintf("%x", hmacOf(bytes.Repeat([]byte{7}, digest.KeySize), "countersign/digest/v1"))
	inside := struct{ s *digest.Session }{s}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		for _, v := range []any{s, inside, &inside, []*digest.Session{s}, *s} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, own[:16]) {
				t.Errorf("%s of %T prints the key: %s", verb, v, text)
			}
		}
	}
}

func TestForm(t *testing.T) {
	for d, want := range map[string]string{"": "", "x": "", "sha256:aa": "sha256:", "session-hmac-sha256:11:aa": "session-hmac-sha256:11:"} {
		if got := digest.ComparableForm(d); got != want {
			t.Errorf("%q: %q, want %q", d, got, want)
		}
	}
}

func hmacOf(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func BenchmarkSessionKeyer(b *testing.B) {
	k := digest.NewSession(make([]byte, digest.KeySize)).Keyer()
	sum := sha256.Sum256(nil)
	b.ReportAllocs()
	for b.Loop() {
		k.Digest(sum)
	}
}

func BenchmarkKeyer(b *testing.B) {
	k := digest.NewKeyer(make([]byte, digest.KeySize))
	text := make([]byte, 150)
	b.ReportAllocs()
	for b.Loop() {
		k.Sum(text)
	}
}
