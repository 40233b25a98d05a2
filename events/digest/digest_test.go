package digest_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/digest"
)

// The values were computed with another implementation (Python's hashlib and
// hmac); a change here makes every stored record unverifiable.
func TestGolden(t *testing.T) {
	key := bytes.Repeat([]byte{7}, digest.KeySize)
	master, err := digest.NewMaster(key)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, got, want string }{
		{"plain", digest.Plain([]byte(`{"a":1}`)), "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"},
		{"plain of nothing", digest.Plain(nil), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"keyed", digest.Keyed(key, []byte(`{"a":1}`)), "hmac-sha256:0d733feec304f131c0dcbceb873c317e2bcc4789397082bd429646222a2eb027"},
		{"salted", digest.Salted([]byte("0123456789abcdef"), []byte(`{"a":1}`)), "salted-sha256:1c76fbb930d3aa8b1633728fae212c68ca68a6752bb319b98be6fe17e86cf5b8"},
		{"tenant key", fmt.Sprintf("%x", master.Tenant("acme")), "29917d771d2239f44c71ccff753a594bad7759d30d2770ed7cd6d8c377ff0eff"},
		{"session", digest.NewSession(key).Digest([]byte(`{"a":1}`)), "session-hmac-sha256:624fc58dd9730dee:5aeba2f4c1eda753f94620b72808992b406ed83c0624ccb8f0a7a62da5b5cf5c"},
		{"wrapping key", fmt.Sprintf("%x", master.Wrapping("acme")), "89514b3802397db8503f8b7225f5b8f3d3f221cdb51e2468b3866582b77225d5"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	a, _ := digest.NewMaster(bytes.Repeat([]byte{1}, digest.KeySize))
	b, _ := digest.NewMaster(bytes.Repeat([]byte{2}, digest.KeySize))
	seen := map[string]string{}
	for name, key := range map[string][]byte{
		"a acme": a.Tenant("acme"), "a acme wrapping": a.Wrapping("acme"), "a acm": a.Tenant("acm"),
		"a none": a.Tenant(""), "b acme": b.Tenant("acme"), "b acme wrapping": b.Wrapping("acme"),
	} {
		if len(key) != digest.KeySize {
			t.Errorf("%s: %d bytes", name, len(key))
		}
		if other, there := seen[string(key)]; there {
			t.Errorf("%s and %s are the same key", name, other)
		}
		seen[string(key)] = name
	}
}

func TestNewMaster(t *testing.T) {
	for _, n := range []int{0, 16, 31, 33, 64} {
		if _, err := digest.NewMaster(make([]byte, n)); !errors.Is(err, digest.ErrKeySize) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	key := bytes.Repeat([]byte{1}, digest.KeySize)
	m, err := digest.NewMaster(key)
	if err != nil {
		t.Fatal(err)
	}
	before := m.Tenant("acme")
	clear(key) // the caller may wipe what it handed in
	if !bytes.Equal(before, m.Tenant("acme")) {
		t.Error("the master key changed with its source")
	}
	var zero digest.Master
	if zero.Tenant("acme") != nil || zero.Wrapping("acme") != nil {
		t.Error("the zero Master gives out keys that everybody can compute")
	}
}

func TestMasterStaysOutOfLogs(t *testing.T) {
	m, err := digest.NewMaster(bytes.Repeat([]byte{0xab}, digest.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	inside := struct{ m digest.Master }{m} // fmt calls no methods of unexported fields
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		for _, v := range []any{m, &m, inside, &inside, []digest.Master{m}} {
			text := strings.ToLower(fmt.Sprintf(verb, v))
			for _, leak := range []string{"abab", "171 171", "0xab, 0xab", "«"} {
				if strings.Contains(text, leak) {
					t.Errorf("%s of %T prints the key", verb, v)
				}
			}
		}
	}
}

func TestOf(t *testing.T) {
	key, b := []byte("key"), []byte("b")
	session, other := digest.NewSession(bytes.Repeat([]byte{1}, 32)), digest.NewSession(bytes.Repeat([]byte{2}, 32))
	tenant, both := digest.Keys{Tenant: key}, digest.Keys{Tenant: key, Session: session}
	tests := []struct {
		name, like string
		keys       digest.Keys
		want       string
	}{
		{"plain", digest.Plain(nil), digest.Keys{}, digest.Plain(b)},
		{"plain, keys there", digest.Plain(nil), both, digest.Plain(b)},
		{"keyed", digest.Keyed(key, nil), both, digest.Keyed(key, b)},
		{"keyed, no key", digest.Keyed(key, nil), digest.Keys{Session: session}, ""},
		{"session", session.Digest(nil), both, session.Digest(b)},
		{"session, no key", session.Digest(nil), tenant, ""},
		{"session, another key", session.Digest(nil), digest.Keys{Tenant: key, Session: other}, ""},
		{"session, cut", digest.PrefixSession, both, ""},
		{"salted", digest.Salted(key, nil), both, ""},
		{"unknown form", "md5:00", both, ""},
		{"empty", "", both, ""},
	}
	for _, tt := range tests {
		got, ok := digest.InFormOf(tt.like, tt.keys, b)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: got %q, %v, want %q", tt.name, got, ok, tt.want)
		}
	}
}

func TestEqual(t *testing.T) {
	a := digest.Plain([]byte("a"))
	if !digest.Equal(a, a) || digest.Equal(a, digest.Plain([]byte("b"))) || digest.Equal(a, a[:10]) || digest.Equal(a, "") {
		t.Error("Equal is wrong")
	}
}

func TestKeyer(t *testing.T) {
	key := bytes.Repeat([]byte{7}, digest.KeySize)
	k := digest.NewKeyer(key)
	for _, text := range []string{"", "a", "b", strings.Repeat("x", 1000), "a"} {
		if got, want := digest.Format(digest.PrefixKeyed, k.Sum([]byte(text))), digest.Keyed(key, []byte(text)); got != want {
			t.Errorf("%.10q: %s, want %s", text, got, want)
		}
	}
	if digest.NewKeyer(nil) != nil {
		t.Error("a keyer without a key")
	}
}
