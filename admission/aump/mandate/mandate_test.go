package mandate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func corpusFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "schemas", "testdata", "corpus", "aump", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCompile(t *testing.T) {
	raw := corpusFile(t, "mandate/valid/minimal.json")
	m, err := Compile(raw, nil)
	if err != nil || m.Violations != nil || m.Hash == "" || m.Signatures != aump.SignatureNone || m.ID != "aump_mnd_courier_01" {
		t.Fatalf("%+v %v", m, err)
	}
	full := corpusFile(t, "mandate/valid/full.json")
	if m, err := Compile(full, nil); err != nil || m.Signatures != "" {
		t.Errorf("without keys nobody has looked: %q %v", m.Signatures, err)
	}
	p, err := aump.DecodeProfile(corpusFile(t, "profile/valid/full.json"), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	keys := aump.KeySet{}
	if err := keys.Add(p); err != nil {
		t.Fatal(err)
	}
	if m, err := Compile(full, keys); err != nil || m.Signatures != aump.SignatureUnverifiable {
		t.Errorf("%q %v", m.Signatures, err)
	}
}

func TestCompileBad(t *testing.T) {
	good := string(corpusFile(t, "mandate/valid/minimal.json"))
	var syntax *strictjson.Error
	for _, raw := range []string{"", "null", "[]", `{"id":"aump_mnd_a","id":"aump_mnd_b"}`} {
		if m, err := Compile([]byte(raw), nil); m != nil || !errors.As(err, &syntax) {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, raw := range []string{"{}", `{"id":1}`, `{"id":"mnd"}`, `{"id":"aump_mnd_"}`, `{"id":"aump_mnd_a/b"}`, `{"id":"aump_mnd_a\n"}`,
		`{"id":"aump_mnd_` + strings.Repeat("a", maxID) + `"}`} {
		if m, err := Compile([]byte(raw), nil); m != nil || !errors.Is(err, ErrNoID) {
			t.Errorf("%.40q: %v", raw, err)
		}
	}
	for raw, path := range map[string]string{
		`{"id":"aump_mnd_a"}`: "", strings.Replace(good, `"0.1.0"`, `"0.2.0"`, 1): "/aump/version",
		strings.Replace(good, `"active"`, `"paused"`, 1):                               "/status",
		strings.Replace(good, "2026-11-21T08:00:00Z", "2026-12-31T23:59:60Z", 1):       "/expires_at",
		strings.Replace(good, "2026-11-20T08:00:00Z", "2026-06-30T23:59:60.5Z", 1):     "/issued_at",
		strings.Replace(good, `"permissions": [`, `"permissions": [null,`, 1):          "/authority/permissions/0",
		strings.Replace(good, `"max_total_minor": 20000`, `"max_total_minor": 1.5`, 1): "/authority/budget/max_total_minor",
	} {
		m, err := Compile([]byte(raw), nil)
		if err != nil || len(m.Violations) == 0 || m.Violations[0].Path != path || m.Hash == "" {
			t.Errorf("%s: %v %v", path, m.Violations, err)
		}
	}
}

func dir(files map[string][]byte) fstest.MapFS {
	m := fstest.MapFS{}
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data}
	}
	return m
}

func TestLoad(t *testing.T) {
	minimal, full := corpusFile(t, "mandate/valid/minimal.json"), corpusFile(t, "mandate/valid/full.json")
	second := []byte(strings.Replace(string(minimal), "20000", "30000", 1))
	d, err := Load(dir(map[string][]byte{
		"a.json": minimal, "b.json": full, "c.json": second, "d.json": []byte(`{"id":"aump_mnd_broken"}`),
		"issuer.json": corpusFile(t, "profile/valid/full.json"), "notes.txt": []byte("x"), "below/e.json": []byte("{"),
	}))
	if err != nil || d.Len() != 4 {
		t.Fatalf("%v, %d", err, d.Len())
	}
	first, err := Compile(minimal, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := Compile(second, nil)
	for hash, want := range map[string]string{first.Hash: first.Hash, other.Hash: other.Hash, "": first.Hash, "sha256-x": first.Hash} {
		if m := d.Mandate("any", "aump_mnd_courier_01", hash); m == nil || m.Hash != want {
			t.Errorf("%q: %+v", hash, m)
		}
	}
	if m := d.Mandate("any", "aump_mnd_broken", ""); m == nil || m.Violations == nil {
		t.Errorf("%+v", m)
	}
	if m := d.Mandate("any", "aump_mnd_flat_02", ""); m == nil || m.Signatures != aump.SignatureUnverifiable {
		t.Errorf("the profile's keys were not used: %+v", m)
	}
	if d.Mandate("any", "aump_mnd_x", first.Hash) != nil || (&Directory{}).Mandate("any", "aump_mnd_courier_01", "") != nil {
		t.Error("a mandate out of nothing")
	}
	if d, err := Load(fstest.MapFS{}); err != nil || d.Len() != 0 {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	key := `{"aump":{"version":"0.1.0","type":"profile"},"signing_keys":[{"kid":"k","kty":"OKP","crv":"Ed25519","x":"%s"}]}`
	for name, tc := range map[string]struct {
		files fs.FS
		want  error
	}{
		"what is not there": {os.DirFS(filepath.Join(t.TempDir(), "missing")), fs.ErrNotExist},
		"something else":    {dir(map[string][]byte{"x.json": []byte(`{"a":1}`)}), ErrNotAMandate},
		"two keys of one kid": {dir(map[string][]byte{
			"x.json": []byte(fmt.Sprintf(key, "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")), "y.json": []byte(fmt.Sprintf(key, strings.Repeat("B", 42)+"A")),
		}), aump.ErrKeyConflict},
	} {
		if _, err := Load(tc.files); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, raw := range map[string]string{"cut.json": "{", "profile.json": `{"aump":{"type":"profile"},"signing_keys":[1]}`} {
		if _, err := Load(dir(map[string][]byte{name: []byte(raw)})); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecordsThatKnowNothing(t *testing.T) {
	var r Records
	m := &Mandate{Mandate: &aump.Mandate{ID: "aump_mnd_a"}}
	if r.Find("t", "aump_mnd_a", "") != nil || r.Revoked("t", m) || r.Spent(Proposal{Currency: "EUR"}) != (Spend{}) || r.Consent(Proposal{}) != (PrincipalConsent{}) {
		t.Error("out of nothing")
	}
	r = Records{Mandates: fixed{m}, SpendLedger: fixed{m}}
	if r.Find("t", "../../etc", "") != nil {
		t.Error("a store is asked for what can be no id")
	}
	if r.Find("t", "aump_mnd_a", "") != m || r.Spent(Proposal{Currency: "EUR"}) != (Spend{Settled: 5}) || r.Spent(Proposal{}) != (Spend{}) {
		t.Error("records")
	}
}

type fixed struct{ m *Mandate }

func (f fixed) Mandate(string, string, string) *Mandate { return f.m }
func (fixed) Spend(Proposal) Spend                      { return Spend{Reserved: -7, Settled: 5} }

// FuzzCompile: no document makes Compile panic; what it keeps has a hash.
func FuzzCompile(f *testing.F) {
	f.Add(corpusFile(f, "mandate/valid/full.json"))
	f.Add([]byte(`{"id":"aump_mnd_a","expires_at":"2026-12-31T23:59:60Z"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Compile(raw, aump.KeySet{})
		if (m == nil) == (err == nil) || m != nil && (m.Hash == "" || m.Mandate == nil) {
			t.Fatalf("%+v %v", m, err)
		}
	})
}
