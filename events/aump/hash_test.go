package aump

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// upstream reads a file of the published material beside the repository.
func upstream(t testing.TB, name string) []byte {
	t.Helper()
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	b, err := os.ReadFile(filepath.Join(root, "upstream", "aump", name))
	if err != nil {
		t.Skipf("the published material is not here (set COUNTERSIGN_SHARED): %v", err)
	}
	return b
}

func parse(t testing.TB, raw string) map[string]any {
	t.Helper()
	tree, err := strictjson.ParseObject([]byte(raw), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestKnownHashes: hashes that were published, or that several programs in
// other languages computed.
func TestKnownHashes(t *testing.T) {
	for _, tc := range []struct {
		file string
		size int // of the canonical form; 0: not known
		hash string
	}{
		{"conformance/mandates/marketplace-buyer.valid.json", 2805, "sha256-e27c2259f3135f02e1803950caacd8a28504b06ef47c081844e068199dee8c52"},
		{"conformance/mandates/marketplace-seller.valid.json", 2720, "sha256-74bd25f84cb94071e277cbdf3524eb3e8a411e7d75b593aef341a968d745c998"},
		{"conformance/mandates/delegated-shopping.valid.json", 3240, "sha256-d9515623a5b0648f3d0427305d7465a7cd7270ad5bcd502db7fd81b025cf9eb2"},
		{"conformance/mandates/marketplace-buyer.expired.json", 0, "sha256-4cc9e56172691e5b40b75de4a63511c20b601f2dfef5f93cb27262f5d545a20a"},
		{"conformance/mandates/marketplace-buyer.inactive.json", 0, "sha256-4608f8ba73af2142f5d23b79e69e77b8069ee6011e1bbe1c1c55d3603e74415f"},
		{"conformance/actions/accept-ping-pong.allowed.json", 0, "sha256-0bd0c637ff093318d0069391f8ecf9b6946d2301f0b5ad4226f1d75ec81b8325"},
	} {
		tree := parse(t, string(upstream(t, tc.file)))
		canonical, err := UnsignedForm(tree)
		if err != nil || tc.size != 0 && len(canonical) != tc.size {
			t.Errorf("%s: %d bytes, %v", tc.file, len(canonical), err)
		}
		if h, err := MandateHash(tree); err != nil || h != tc.hash {
			t.Errorf("%s: %s, %v", tc.file, h, err)
		}
	}
}

func TestHashLeavesOutTopLevelSignaturesOnly(t *testing.T) {
	plain := `{"id":"a","links":[{"signatures":[]}]}`
	want, err := MandateHash(parse(t, plain))
	if err != nil {
		t.Fatal(err)
	}
	for _, signatures := range []string{`[]`, `[{"type":"jws","alg":"EdDSA","kid":"k","value":"v"}]`, `null`} {
		tree := parse(t, strings.Replace(plain, "{", `{"signatures":`+signatures+`,`, 1))
		if got, _ := MandateHash(tree); got != want {
			t.Errorf("with signatures %s: %s, want %s", signatures, got, want)
		}
		if _, there := tree["signatures"]; !there {
			t.Error("the tree was changed")
		}
	}
	if got, _ := MandateHash(parse(t, `{"id":"a","links":[{}]}`)); got == want {
		t.Error("a nested member named signatures is not part of the hash")
	}
}

// TestCanonicalVectors: what a program that only sorts keys gets wrong. The sums
// come from another language's serialiser.
func TestCanonicalVectors(t *testing.T) {
	for _, tc := range []struct{ input, sum string }{
		{`{"s":"é \u2028 <&> \u0007 \b \f \n \" \\ /","u":"\u00e9","e":"😀"}`, "7ea8328b869d2b75610c1b6d453f3728e12c196d0f03c596c0663a0f1401a00f"},
		{`{"b":1,"10":2,"9":3,"a":4}`, "33844d1a167df7ba676d32320b8f91b44ee52f92051eb4e718b5dc6d9755837b"},
		{`{"\uE000":1,"\ud83d\ude00":2,"z":3}`, "cd0e192e95f5e545c193788e80b08ab3d6fb48a5d20fed4af175061ec107847b"},
		{`{"__proto__":{"x":1},"a":1}`, "16f0a6f5823c7470398e5edfba59dfbde97abf692bcffed62a946ee9587d1271"},
	} {
		if h, err := hashValue(parse(t, tc.input)); err != nil || h != "sha256-"+tc.sum {
			t.Errorf("%s: %s, %v", tc.input, h, err)
		}
	}
	// This one holds integers that no two readers agree on; a document with them
	// is refused, so only the serialiser is compared.
	const numbers = `{"a":1.0,"b":1e21,"c":1e-7,"d":-0,"e":100000000000000000000,"f":0.1,"g":1E2,"h":9007199254740993}`
	canonical, err := strictjson.CanonicalBytes([]byte(numbers))
	sum := sha256.Sum256(canonical)
	if got := hex.EncodeToString(sum[:]); err != nil || got != "625a99f2412e178147157dad15bad9bba18ba05fa888c4b03eee9a8229f32bfd" {
		t.Errorf("%s: %s, %v", canonical, got, err)
	}
}

func TestNormaliseHash(t *testing.T) {
	upper := "sha256-" + strings.Repeat("AB", 32)
	if got, ok := NormaliseHash(upper); !ok || got != strings.ToLower(upper) {
		t.Errorf("%s %v", got, ok)
	}
	for _, bad := range []string{"", "sha256-", "sha256-example", "sha256:" + strings.Repeat("ab", 32), "SHA256-" + strings.Repeat("ab", 32),
		upper + "0", upper[:70], " " + upper, upper + "\n"} {
		if _, ok := NormaliseHash(bad); ok {
			t.Errorf("%q", bad)
		}
	}
}

func TestEventHash(t *testing.T) {
	tree := parse(t, `{"id":"e","hashes":{"event_hash":"sha256-x","previous_event_hash":"p"}}`)
	got, err := EventHash(tree)
	want, _ := hashValue(parse(t, `{"id":"e","hashes":{"previous_event_hash":"p"}}`))
	if err != nil || got != want {
		t.Errorf("%s, want %s (%v)", got, want, err)
	}
	if tree["hashes"].(map[string]any)["event_hash"] != "sha256-x" {
		t.Error("the tree was changed")
	}
	plain, _ := hashValue(parse(t, `{"id":"e"}`))
	if got, _ := EventHash(parse(t, `{"id":"e"}`)); got != plain {
		t.Error("an event without hashes")
	}
}

// TestHashIsOfTheContent: white space, the order of members and the spelling of
// numbers do not change a hash; any value does.
func TestHashIsOfTheContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<40).Draw(t, "n")
		s := rapid.StringMatching(`[a-z0-9 ]{0,8}`).Draw(t, "s")
		tree := func(raw string) map[string]any {
			m, err := strictjson.ParseObject([]byte(raw), strictjson.DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		digits := rapid.SampledFrom([]string{"", ".0", ".00", "e0", "E+0"}).Draw(t, "digits")
		a, _ := MandateHash(map[string]any{"n": tree(`{"n":` + itoa(n) + `}`)["n"], "s": s})
		b, _ := MandateHash(tree("{ \"s\":\t\"" + s + "\",\n\"n\": " + itoa(n) + digits + " }"))
		c, _ := MandateHash(tree(`{"n":` + itoa(n+1) + `,"s":"` + s + `"}`))
		if a != b || a == c {
			t.Fatalf("%s %s %s", a, b, c)
		}
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
