package schemas

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

// FuzzValidate: no document that strictjson lets pass makes us panic, change it
// or answer differently the second time, and the library, where it does not
// panic itself, gives the same verdict.
func FuzzValidate(f *testing.F) {
	for _, s := range schematest.Corpus(f) {
		b, err := json.Marshal(s.Document)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.Schema, b)
	}
	f.Add("aaep/agent.tool.invoked", schematest.Message(f, "aaep").AppendCanonical(nil))
	f.Add("agenthook/action-governance.evidence", schematest.Message(f, "agenthook").AppendCanonical(nil))
	f.Add("aaep/envelope", []byte(`{"sequence_number":0e99999999999999999999}`))
	f.Add("agenthook/envelope", []byte(`null`))
	compiled := libraries(f)
	f.Fuzz(func(t *testing.T, schema string, raw []byte) {
		doc, err := strictjson.Read(raw, strictjson.DefaultLimits)
		if err != nil {
			return
		}
		before := doc.AppendCanonical(nil)
		vs := Default().Validate(schema, doc)
		if d := cmp.Diff(vs, Default().Validate(schema, doc)); d != "" {
			t.Errorf("the answer changes: %s", d)
		}
		if !bytes.Equal(before, doc.AppendCanonical(nil)) {
			t.Error("the document was changed")
		}
		library, ok := compiled[schema]
		if !ok {
			if vs == nil {
				t.Error("an unknown schema lets a document pass")
			}
			return
		}
		if accepts, sane := libraryAccepts(library, doc.Tree()); sane && accepts != (vs == nil) {
			t.Errorf("the library says %v, we say %v", accepts, vs)
		}
	})
}

// libraryAccepts is the library's verdict; it has none where it panics.
func libraryAccepts(s *librarySchema, tree any) (accepts, sane bool) {
	defer func() {
		if recover() != nil {
			sane = false
		}
	}()
	return s.Validate(tree) == nil, true
}
