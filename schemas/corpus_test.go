package schemas

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// sample is one document of our own corpus, testdata/corpus/<schema>/valid or
// invalid. An invalid file holds the document and the violation it must cause.
type sample struct {
	file     string
	schema   string
	document any
	path     string // of the expected violation
	keyword  string // "" for a valid document
}

func corpus(tb testing.TB) []sample {
	tb.Helper()
	root := os.DirFS("testdata/corpus")
	var samples []sample
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		tree := parseFile(tb, root, file)
		s := sample{file: file, document: tree}
		dir := path.Dir(file)
		s.schema = path.Dir(dir)
		if path.Base(dir) == "invalid" {
			wrapped := tree.(map[string]any)
			expect := wrapped["expect"].(map[string]any)
			s.document, s.path, s.keyword = wrapped["document"], expect["path"].(string), expect["keyword"].(string)
		}
		samples = append(samples, s)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return samples
}

func parseFile(tb testing.TB, root fs.FS, file string) any {
	tb.Helper()
	b, err := fs.ReadFile(root, file)
	if err != nil {
		tb.Fatal(err)
	}
	tree, err := strictjson.Parse(b, strictjson.DefaultLimits)
	if err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	return tree
}

func TestCorpus(t *testing.T) {
	valid, invalid := map[string]int{}, map[string]int{}
	for _, s := range corpus(t) {
		t.Run(s.file, func(t *testing.T) {
			vs := Default().Validate(s.schema, strictjson.FromTree(s.document))
			if s.keyword == "" {
				valid[s.schema]++
				if len(vs) > 0 {
					t.Fatalf("a valid document is refused: %v", vs)
				}
				return
			}
			invalid[s.schema]++
			if len(vs) != 1 || vs[0].Path != s.path || vs[0].Keyword != s.keyword || vs[0].Level != LevelError {
				t.Fatalf("want one violation, %s at %q; got %+v", s.keyword, s.path, vs)
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
	mutators := map[string]mutator{}
	seen := 0
	for _, s := range corpus(t) {
		if _, there := mutators[s.schema]; !there {
			mutators[s.schema] = newMutator(schemaTrees(t, Default(), s.schema)...)
		}
		mutators[s.schema].each(s.document, func(what func() string) {
			seen++
			want := compiled[s.schema].Validate(s.document) == nil
			if got := Default().Validate(s.schema, strictjson.FromTree(s.document)) == nil; got != want {
				t.Fatalf("%s, %s: we say %v, the library %v", s.file, what(), got, want)
			}
		})
	}
	t.Logf("%d documents", seen)
}

// schemaTrees are the parsed texts of a schema and of the vocabulary beside it.
func schemaTrees(tb testing.TB, r *Registry, name string) []any {
	tb.Helper()
	folder := path.Dir(name)
	var trees []any
	for _, n := range slices.Compact([]string{name, folder + "/envelope", folder + "/vocabulary"}) {
		if src, ok := r.Source(n); ok {
			trees = append(trees, parse(tb, string(src)))
		}
	}
	return trees
}
