package schemas

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

// The table has a row for every token, and records may name exactly these protocols.
func TestProtocolsOfRecords(t *testing.T) {
	var tokens []any
	for _, p := range Protocols() {
		tokens = append(tokens, p.Token)
	}
	want := make([]any, len(subject.Protocols))
	for i, token := range subject.Protocols {
		want[i] = token
	}
	if !slices.Equal(tokens, want) {
		t.Errorf("the table has %v, package subject %v", tokens, want)
	}
	src, _ := Default().Source(ownVocabulary)
	defs := schematest.Parse(t, string(src))["$defs"].(map[string]any)
	if enum := defs["protocol"].(map[string]any)["enum"].([]any); !slices.Equal(enum, want) {
		t.Errorf("the vocabulary lists %v, want %v", enum, want)
	}
}

// One row is enough for the messages of a protocol to be validated and for records to name it.
func TestToyProtocolHasSchemas(t *testing.T) {
	const schema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://schemas.countersign.dev/toy/event/v1","type":"object","required":["was"]}`
	toy := Protocol{Token: "toy", Schemas: fstest.MapFS{"toy/event.json": {Data: []byte(schema)}}}
	with, err := Load(append(Protocols(), toy))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]any{"protocol": "toy"}
	for _, tc := range []struct {
		name     string
		registry *Registry
		schema   string
		document any
		path     string // of the violation that is looked for
		want     bool
	}{
		{"message", with, "toy/event", map[string]any{"was": "ran"}, "", false},
		{"defective message", with, "toy/event", map[string]any{}, "", true},
		{"message without a row", Default(), "toy/event", map[string]any{"was": "ran"}, "", true},
		{"record", with, "countersign/decision", named, "/protocol", false},
		{"record without a row", Default(), "countersign/decision", named, "/protocol", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			violations := tc.registry.Validate(tc.schema, strictjson.FromTree(tc.document))
			got := slices.ContainsFunc(violations, func(v Violation) bool { return v.Path == tc.path })
			if got != tc.want {
				t.Errorf("%v", violations)
			}
		})
	}
}

// A row that is wrong is an error that names it.
func TestLoadRefusesRows(t *testing.T) {
	file := func(name, text string) fstest.MapFS { return fstest.MapFS{name: {Data: []byte(text)}} }
	for _, tc := range []struct {
		name, want string
		rows       []Protocol
	}{
		{"two texts", "protocol b: schema x/a has two texts", []Protocol{{"a", file("x/a.json", `{}`)}, {"b", file("x/a.json", `{ }`)}}},
		{"Countersign's vocabulary", "protocol a: schema countersign/vocabulary has two texts", []Protocol{{"a", file("countersign/vocabulary.json", `{}`)}}},
	} {
		if _, err := Load(tc.rows); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	for _, text := range []string{`{}`, `{"a":{"enum": []},"b":{"enum": []}}`} {
		if _, err := listTokens([]byte(text), Protocols()); err == nil {
			t.Errorf("no error for %s", text)
		}
	}
}
