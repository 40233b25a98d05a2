package aana

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

// published is the published schema of the contract, and its examples.
func publishedValidateEvent(t *testing.T) (text []byte, theirs *jsonschema.Schema, docs map[string]any) {
	t.Helper()
	root := schematest.Upstream(t)
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
			collectEvents(file, schematest.ParseFile(t, root, file), docs)
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
			collectEvents(at+schemas.Pointer(string(rune('0'+i))), item, docs)
		}
	case map[string]any:
		if _, is := v["tool_category"]; is {
			docs[at] = v
			return
		}
		for _, key := range []string{"cases", "examples", "event"} {
			collectEvents(at+schemas.Pointer(key), v[key], docs)
		}
	}
}

// TestContractIsThePublishedOne: on every example, on our corpus and on
// systematic mutations of both, aana/contract says what the published schema
// says; aana/event says the same where no condition between fields is broken.
func TestContractIsThePublishedOne(t *testing.T) {
	text, theirs, docs := publishedValidateEvent(t)
	if len(docs) < 12 {
		t.Errorf("only %d published examples", len(docs))
	}
	for _, s := range schematest.Corpus(t) {
		if strings.HasPrefix(s.Schema, "aana/") {
			docs[s.File] = s.Document
		}
	}
	trees := append(schematest.SchemaTrees(t, schemas.Default().Source, event), schematest.Parse(t, string(text)))
	m := schematest.NewMutator(trees...).Within(149)
	compared, coerced := 0, 0
	for name, doc := range docs {
		m.Each(doc, func(what func() string) {
			compared++
			want := theirs.Validate(doc) == nil
			if got := schemas.Default().Validate(contract, strictjson.FromTree(doc)) == nil; got != want {
				t.Errorf("%s, %s: we say %v, the published schema %v", name, what(), got, want)
			}
			if shape := schemas.Default().Validate(event, strictjson.FromTree(doc)) == nil; shape != want {
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

func TestCorpus(t *testing.T) {
	for _, s := range schematest.Corpus(t) {
		doc, ok := s.Document.(map[string]any)
		if !ok {
			continue
		}
		switch s.Schema {
		case event:
			if got := ValidateEvent(strictjson.FromTree(doc)) == nil; got != (s.Keyword == "") {
				t.Errorf("%s: %v", s.File, got)
			}
		case contract:
			if got := ValidateContract(strictjson.FromTree(doc)) == nil; got != (s.Keyword == "") {
				t.Errorf("%s: %v", s.File, got)
			}
		}
	}
}
