package schemas

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

func TestCorpus(t *testing.T) {
	valid, invalid := map[string]int{}, map[string]int{}
	for _, s := range schematest.Corpus(t) {
		t.Run(s.File, func(t *testing.T) {
			vs := Default().Validate(s.Schema, strictjson.FromTree(s.Document))
			if s.Keyword == "" {
				valid[s.Schema]++
				if len(vs) > 0 {
					t.Fatalf("a valid document is refused: %v", vs)
				}
				return
			}
			invalid[s.Schema]++
			if len(vs) != 1 || vs[0].Path != s.Path || vs[0].Keyword != s.Keyword || vs[0].Level != LevelError {
				t.Fatalf("want one violation, %s at %q; got %+v", s.Keyword, s.Path, vs)
			}
		})
	}
	for _, name := range Default().Names() {
		if !strings.HasSuffix(name, "/vocabulary") && (valid[name] < 1 || invalid[name] < 3) {
			t.Errorf("%s: the corpus has %d valid and %d invalid documents; at least 1 and 3 are wanted", name, valid[name], invalid[name])
		}
	}
}

// TestLibraryAgrees holds our evaluation equal to the library's, on every
// document of the corpus and on everything that the mutator makes of it.
func TestLibraryAgrees(t *testing.T) {
	compiled := libraries(t)
	mutators := map[string]schematest.Mutator{}
	seen := 0
	for _, s := range schematest.Corpus(t) {
		if _, there := mutators[s.Schema]; !there {
			mutators[s.Schema] = schematest.NewMutator(schematest.SchemaTrees(t, Default().Source, s.Schema)...)
		}
		mutators[s.Schema].Each(s.Document, func(what func() string) {
			seen++
			want := compiled[s.Schema].Validate(s.Document) == nil
			if got := Default().Validate(s.Schema, strictjson.FromTree(s.Document)) == nil; got != want {
				t.Fatalf("%s, %s: we say %v, the library %v", s.File, what(), got, want)
			}
		})
	}
	t.Logf("%d documents", seen)
}
