package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// What the checker found is what Document finds, and texts that were much work are searched once.
func TestDocumentRemembersWhatTheCheckerFound(t *testing.T) {
	sprinkled := strings.Repeat("AKIA sk- ghp_ xoxb- eyJ password token secret api_key bearer of basic x ", 12)
	for name, text := range map[string]string{
		"near misses":      sprinkled,
		"with a secret":    sprinkled + "password=hunter2 " + sprinkled,
		"with two secrets": sprinkled + "password=hunter2 " + sprinkled + github,
		"one name":         "dana@acme.example",
		"too much":         strings.Repeat("password=hunter2 ", 40),
		"no text at all":   strings.Repeat("\\/", 200),
	} {
		raw, err := json.Marshal(map[string]any{"a": text, "b": []any{text, "x"}, "password": text, "z": "dana@acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		var c CleanChecker
		if unclean, ok := c.CheckDocument(parsed(t, raw), "agenthook", len(raw)); ok && unclean.Len() == 0 {
			t.Errorf("%s: a document with an address in it is accepted", name)
		}
		if much := len(text) > 200; much != (len(c.ScanCache().list) > 0) {
			t.Errorf("%s: %d texts are remembered", name, len(c.ScanCache().list))
		}
		type outcome struct {
			Root any
			Hits []Hit
			Err  error
		}
		run := func(m *ScanCache) (o outcome) {
			tree, err := strictjson.Parse(raw, strictjson.DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			o.Root, o.Hits, o.Err = Document(tree, "/body", nil, Config{Protocol: "agenthook", Size: len(raw), ScanCache: m})
			return o
		}
		if d := cmp.Diff(run(nil), run(c.ScanCache()), cmp.AllowUnexported(Hit{})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A text that a Memory knows is not searched again.
func TestMemoryAnswersInsteadOfTheSearch(t *testing.T) {
	text := strings.Repeat("nothing to see here, ", 3)
	m := &ScanCache{list: []cachedScan{{text, []Span{{0, 7, Email}}, 1}}}
	_, hits, err := Document([]any{text, text + "."}, "", nil, Config{ScanCache: m})
	if err != nil || len(hits) != 1 || hits[0].Path != "/0" || hits[0].Text != "nothing" {
		t.Errorf("%v, %v", hits, err)
	}
	if m.clear(); len(m.list) != 0 {
		t.Error("it remembers the record before")
	}
	m.store(text, nil, minCachedWork-1)
	if len(m.list) != 0 {
		t.Error("it keeps what was little work")
	}
}

func parsed(t *testing.T, raw []byte) strictjson.Value {
	t.Helper()
	v, err := new(strictjson.Document).Parse(raw, strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
