package schemas

import (
	"maps"
	"path"
	"slices"
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

// TestEveryMemberHasAType: the typed models of AAEP's messages and of AUMP's mandates and profiles
// read only the members that Countersign uses. The schemas alone say of which type the others are,
// so none of them takes a null.
func TestEveryMemberHasAType(t *testing.T) {
	seen := 0
	for _, s := range schematest.Corpus(t) {
		if s.Keyword != "" || path.Dir(s.Schema) != "aaep" && s.Schema != "aump/mandate" && s.Schema != "aump/profile" {
			continue
		}
		for place, doc := range withNulls(s.Document) {
			seen++
			if !HasErrors(Default().Validate(s.Schema, strictjson.FromTree(doc))) && !isOpen(place) {
				t.Errorf("%s takes a null at %s", s.Schema, place)
			}
		}
	}
	if seen < 500 {
		t.Errorf("only %d members", seen)
	}
}

// isOpen reports whether a place is within what the protocols leave to publishers.
func isOpen(place string) bool {
	return slices.ContainsFunc([]string{
		"/extra_context/", "/packaged_context/", "/modified_action/", "/extensions/parcels/", "/capabilities/parcels/",
		"/honored_capabilities/parcels/", "/label_count", "/signing_keys/*/",
	}, func(open string) bool { return strings.HasPrefix(place, open) })
}

// withNulls returns copies of a document with null instead of one member, by the member's place.
func withNulls(v any) map[string]any {
	copies := map[string]any{}
	object, _ := v.(map[string]any)
	for key, member := range object {
		with := func(member any) any {
			doc := maps.Clone(object)
			doc[key] = member
			return doc
		}
		copies["/"+key] = with(nil)
		for place, changed := range withNulls(member) {
			copies["/"+key+place] = with(changed)
		}
		list, _ := member.([]any)
		for i, element := range list {
			for place, changed := range withNulls(element) {
				elements := slices.Clone(list)
				elements[i] = changed
				copies["/"+key+"/*"+place] = with(elements)
			}
		}
	}
	return copies
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
