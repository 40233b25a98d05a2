package aaep_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func shared(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("COUNTERSIGN_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	dir = filepath.Join(dir, "upstream", "aaep")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("upstream's examples are not there (set COUNTERSIGN_SHARED): %v", err)
	}
	return dir
}

// The valid ones among upstream's fixtures and examples, and a real producer's
// session, are read without an error.
func TestUpstreamIsRead(t *testing.T) {
	dir := shared(t)
	var docs []json.RawMessage
	files, _ := filepath.Glob(filepath.Join(dir, "fixtures", "valid", "*.json"))
	for _, f := range files {
		docs = append(docs, read(t, f))
	}
	schemas, _ := filepath.Glob(filepath.Join(dir, "schemas", "*", "*.json"))
	for _, f := range schemas {
		var s struct {
			Examples []json.RawMessage `json:"examples"`
		}
		if err := json.Unmarshal(read(t, f), &s); err != nil {
			t.Fatal(err)
		}
		docs = append(docs, s.Examples...)
	}
	var session []json.RawMessage
	if err := json.Unmarshal(read(t, filepath.Join(dir, "session-from-reference-producer.json")), &session); err != nil {
		t.Fatal(err)
	}
	docs = append(docs, session...)
	if len(docs) < 60 {
		t.Errorf("only %d documents", len(docs))
	}
	typed := map[string]int{}
	for _, doc := range docs {
		e, err := aaep.Decode(doc, strictjson.DefaultLimits)
		if err != nil {
			t.Errorf("%v in %s", err, doc)
			continue
		}
		if e.Payload != nil {
			typed[e.Type]++
		}
	}
	if len(typed) != 14 {
		t.Errorf("%d types seen: %v", len(typed), typed)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
