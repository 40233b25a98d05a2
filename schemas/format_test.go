package schemas

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

// TestValues: a value of a document has the violations of its tree.
func TestValues(t *testing.T) {
	for _, s := range schematest.Corpus(t) {
		raw, err := strictjson.Canonical(s.Document)
		if err != nil {
			t.Fatal(err)
		}
		v, err := strictjson.Read(raw, strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(Default().Validate(s.Schema, v), Default().Validate(s.Schema, strictjson.FromTree(s.Document))); d != "" {
			t.Errorf("%s: %s", s.File, d)
		}
	}
}

// TestFormats: a format of our own is the library's, but for signs in times.
func TestFormats(t *testing.T) {
	const (
		time = "2026-11-20T10:00:00.250Z"
		uuid = "0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b"
	)
	texts := []string{"", "2026-02-28T23:59:59.123456789Z", "2026-02-29T10:00:00Z", "2024-02-29t10:00:00z", "2026-01-10T24:00:00Z", "2026-01-10T10:00:60Z",
		"2026-01-10T10:00:00.Z", "2026-01-10T10:00:00,1Z", "2026-01-10T10:00:00.12345678901Z", "2026-01-10T10:00:00+01:00", uuid + "0", strings.ToUpper(uuid)}
	for _, s := range []string{time, uuid} {
		for i := range s {
			for _, c := range "0gG-/:" {
				texts = append(texts, s[:i]+string(c)+s[i+1:])
			}
		}
	}
	for _, s := range append(texts, time, uuid) {
		for _, name := range []string{"date-time", "uuid"} {
			if got, want := formats[name].test(s), jsonschema.Formats[name](s); got != want && (name == "uuid" || got || !signsInTime(s)) {
				t.Errorf("%q as %s: %v, the library says %v", s, name, got, want)
			}
		}
	}
	if IsDateTime(schematest.SignedTime) {
		t.Error("a time with signs is accepted")
	}
}
