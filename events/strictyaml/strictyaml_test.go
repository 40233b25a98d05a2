package strictyaml

import (
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const limit = 1 << 12

func read(text string, most int) (names []string, mistakes []string) {
	nodes, err := Documents("f", []byte(text), limit, most)
	if err != nil {
		return nil, []string{err.Error()}
	}
	r := Reader{File: "f"}
	for _, n := range nodes {
		r.Mapping(n.Content[0], "it", Fields{"a": func(v *yaml.Node) { names = append(names, v.Value) }, "b": func(*yaml.Node) {}}, "a")
	}
	for _, err := range r.Errs {
		mistakes = append(mistakes, err.Error())
	}
	return names, mistakes
}

func TestDocumentsAndMappings(t *testing.T) {
	for _, c := range []struct {
		name, text string
		most       int
		names      string
		mistakes   string
	}{
		{"one", "a: x\nb: y\n", 1, "x", ""},
		{"two", "a: x\n---\na: y\n", 2, "x y", ""},
		{"nothing", "# words\n", 1, "", ""},
		{"two where one may be", "a: x\n---\na: y\n", 1, "", "f:2: there is a second document"},
		{"three where two may be", "a: x\n---\na: y\n---\na: z\n", 2, "", "f:4: more than 2 documents"},
		{"an unknown key", "a: x\nc: y\n", 1, "x", `f:2: it has no key "c"`},
		{"a key twice", "a: x\na: y\n", 1, "x", `f:2: it has the key "a" twice`},
		{"a key that is missing", "b: y\n", 1, "", "f:1: it needs a"},
		{"a list", "- a\n", 1, "", "f:1: it must be a mapping"},
		{"a tag", "!!map {a: x}\n", 1, "", "f:1: it must be a mapping"},
		{"a merge key", "<<: {a: x}\n", 1, "", `f:1: it has no key "<<"`},
		{"a key that is a mapping", "? {a: x}\n: y\na: x\n", 1, "x", "f:1: it has a key that is no text"},
		{"no YAML", "a: [\n", 1, "", "f:1: did not find"},
		{"no UTF-8", "a: \xff\n", 1, "", "f:1: the file is not UTF-8"},
		{"too large", "a: " + strings.Repeat("x", limit), 1, "", "f:1: the file has more than 4096 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, mistakes := read(c.text, c.most)
			if got := strings.Join(names, " "); got != c.names {
				t.Errorf("read %q, want %q", got, c.names)
			}
			if got := strings.Join(mistakes, "; "); !strings.HasPrefix(got, c.mistakes) || (got == "") != (c.mistakes == "") {
				t.Errorf("mistakes %q, want %q", got, c.mistakes)
			}
		})
	}
}

func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{"a: x\n", "a: x\n---\nb: y\n", "&a [*a]", "!!binary x", "<<: *x", "a: [", "\t", "%YAML 9.9\n---\n", "? ? ? a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := Documents("f", []byte(text), limit, 3)
		var bad *Error
		if err != nil && (!errors.As(err, &bad) || bad.Line < 1 || nodes != nil) || len(nodes) > 3 {
			t.Errorf("%d documents, %v", len(nodes), err)
		}
	})
}
