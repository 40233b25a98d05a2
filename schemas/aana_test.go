package schemas

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// publishedAANA is the published schema of the contract, and its examples.
func publishedAANA(t *testing.T) (text []byte, theirs *librarySchema, docs map[string]any) {
	t.Helper()
	root := upstream(t)
	text, err := fs.ReadFile(root, "aana/schemas/agent_tool_precheck.schema.json")
	if err != nil {
		t.Skipf("the published schema is not here: %v", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:published", strings.NewReader(string(text))); err != nil {
		t.Fatal(err)
	}
	if theirs, err = c.Compile("urn:published"); err != nil {
		t.Fatal(err)
	}
	docs = map[string]any{}
	for _, pattern := range []string{"aana/examples/*.json", "aana/examples/*/*.json"} {
		files, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			collectEvents(file, parseFile(t, root, file), docs)
		}
	}
	return text, theirs, docs
}

// collectEvents finds the events in an example file: the file itself, or the
// members "event" of a list in it.
func collectEvents(at string, v any, docs map[string]any) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			collectEvents(at+jsonPointer(string(rune('0'+i))), item, docs)
		}
	case map[string]any:
		if _, is := v["tool_category"]; is {
			docs[at] = v
			return
		}
		for _, key := range []string{"cases", "examples", "event"} {
			collectEvents(at+jsonPointer(key), v[key], docs)
		}
	}
}

// TestAANAContractIsThePublishedOne: on every example, on our corpus and on
// systematic mutations of both, aana/contract says what the published schema
// says; aana/event says the same where no condition between fields is broken.
func TestAANAContractIsThePublishedOne(t *testing.T) {
	text, theirs, docs := publishedAANA(t)
	if len(docs) < 12 {
		t.Errorf("only %d published examples", len(docs))
	}
	for _, s := range corpus(t) {
		if strings.HasPrefix(s.schema, "aana/") {
			docs[s.file] = s.document
		}
	}
	trees := append(schemaTrees(t, Default(), aanaEvent), parse(t, string(text)))
	m := newMutator(trees...)
	m.share = min(m.share, upstreamShare)
	compared, coerced := 0, 0
	for name, doc := range docs {
		m.each(doc, func(what func() string) {
			compared++
			want := theirs.Validate(doc) == nil
			if got := Default().Validate(aanaContract, strictjson.FromTree(doc)) == nil; got != want {
				t.Errorf("%s, %s: we say %v, the published schema %v", name, what(), got, want)
			}
			if shape := Default().Validate(aanaEvent, strictjson.FromTree(doc)) == nil; shape != want {
				coerced++
				if !shape || !forbiddenAccept(doc) {
					t.Errorf("%s, %s: the event schema says %v, the published one %v", name, what(), shape, want)
				}
			}
		})
	}
	t.Logf("%d documents, %d verdicts compared, %d differ by a condition between fields", len(docs), compared, coerced)
	if coerced == 0 {
		t.Error("no condition was ever broken")
	}
}

// forbiddenAccept says in Go what the contract's three conditions forbid.
func forbiddenAccept(v any) bool {
	doc, ok := v.(map[string]any)
	if !ok || doc["recommended_route"] != "accept" {
		return false
	}
	state, _ := doc["authorization_state"].(string)
	switch doc["tool_category"] {
	case "write":
		return !slices.Contains([]string{"validated", "confirmed"}, state)
	case "private_read":
		return !slices.Contains([]string{"authenticated", "validated", "confirmed"}, state)
	}
	return doc["tool_category"] == "unknown"
}

func TestAANAMethods(t *testing.T) {
	for _, s := range corpus(t) {
		doc, ok := s.document.(map[string]any)
		if !ok {
			continue
		}
		switch s.schema {
		case aanaEvent:
			if got := AANA(strictjson.FromTree(doc)) == nil; got != (s.keyword == "") {
				t.Errorf("%s: %v", s.file, got)
			}
		case aanaContract:
			if got := AANAContract(strictjson.FromTree(doc)) == nil; got != (s.keyword == "") {
				t.Errorf("%s: %v", s.file, got)
			}
		}
	}
}
