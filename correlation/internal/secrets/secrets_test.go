package secrets

import (
	"encoding/json"
	"strings"
	"testing"
)

// none of these was ever valid
var samples = []string{
	"AKIA" + strings.Repeat("Q7", 8), "ghp_" + strings.Repeat("a1B2", 9), "github_pat_" + strings.Repeat("a1", 11),
	"sk-ant-" + strings.Repeat("a1", 12), "sk_live_" + strings.Repeat("a1", 8), "xoxb-1234567890", "glpat-" + strings.Repeat("a1", 10),
	"AIza" + strings.Repeat("a1B2c", 7), "-----BEGIN EC PRIVATE KEY-----", "Bearer " + strings.Repeat("a1.", 8),
	"eyJ" + strings.Repeat("a", 12) + ".eyJ" + strings.Repeat("b", 12) + "." + strings.Repeat("c", 12),
}

// TestForms: every form is found wherever it stands in a document, escaped or
// not, and what looks alike is not.
func TestForms(t *testing.T) {
	for _, s := range samples {
		doc := map[string]any{"a": []any{"x", map[string]any{"b/c": "the key is " + s + " it is"}}}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		escaped := strings.Replace(string(raw), s[:1], `\u00`+"41", 1)
		if p, found := Find(doc); !found || p != "/a/1/b~1c" || !MayContain(raw) || !MayContain([]byte(escaped)) {
			t.Errorf("%s: at %q, %v", s, p, found)
		}
		if _, found := Find(doc, "a"); found {
			t.Errorf("%s is found in what is left out", s)
		}
	}
	for _, s := range []string{"risk-based", "a PRIVATE KEY----- is", "Bearer of news", "eyJust.a.word", "AKIAshort", "xghp_" + strings.Repeat("a", 40)} {
		if InText(s) {
			t.Errorf("%q is none", s)
		}
	}
	if MayContain([]byte(`{"a":"nothing of interest \n here"}`)) {
		t.Error("a plain document is suspect")
	}
}

func FuzzIn(f *testing.F) {
	for _, s := range samples {
		f.Add(`{"a":["` + s + `"]}`)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		var v any
		if json.Unmarshal([]byte(doc), &v) != nil {
			t.Skip()
		}
		if _, found := Find(v); found && !MayContain([]byte(doc)) {
			t.Errorf("%q holds a secret and is not suspect", doc)
		}
	})
}

func BenchmarkSuspect(b *testing.B) {
	doc := []byte(`{"event_id":"00000000-0000-4000-8000-000000000001","text":"` + strings.Repeat("lorem ipsum ", 40) + `"}`)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if MayContain(doc) {
			b.Fatal("suspect")
		}
	}
}
