// Package schematest reads and makes the documents that tests judge by schemas. Only tests import it.
package schematest

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// repository is the folder of the module.
func repository(tb testing.TB) string {
	tb.Helper()
	for dir := "."; len(dir) < 64; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	tb.Fatal("no folder above has a go.mod")
	return ""
}

// Sample is one document of our own corpus, testdata/corpus/<schema>/valid or
// invalid. An invalid file holds the document and the violation it must cause.
type Sample struct {
	File     string
	Schema   string
	Document any
	Path     string // of the expected violation
	Keyword  string // "" for a valid document
}

// Corpus reads all documents of the corpus.
func Corpus(tb testing.TB) []Sample {
	tb.Helper()
	root := os.DirFS(filepath.Join(repository(tb), "schemas", "testdata", "corpus"))
	var samples []Sample
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		tree := ParseFile(tb, root, file)
		s := Sample{File: file, Document: tree}
		dir := path.Dir(file)
		s.Schema = path.Dir(dir)
		if path.Base(dir) == "invalid" {
			wrapped := tree.(map[string]any)
			expect := wrapped["expect"].(map[string]any)
			s.Document, s.Path, s.Keyword = wrapped["document"], expect["path"].(string), expect["keyword"].(string)
		}
		samples = append(samples, s)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return samples
}

// ParseFile parses a file.
func ParseFile(tb testing.TB, root fs.FS, file string) any {
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

// Parse parses an object.
func Parse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	tree, err := strictjson.ParseObject([]byte(text), strictjson.DefaultLimits)
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

// Message is the usual message of a protocol, with most of the members that it may have.
func Message(tb testing.TB, protocol string) strictjson.Value {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(repository(tb), "schemas", "testdata", "messages", protocol+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	v, err := strictjson.Read(text, strictjson.DefaultLimits)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// Edit lays a JSON object over a document; null takes a member away and "\u0000null" stands for
// null itself.
func Edit(tb testing.TB, base, over string) map[string]any {
	tb.Helper()
	doc := Parse(tb, base)
	for k, v := range Parse(tb, over) {
		switch v {
		case nil:
			delete(doc, k)
		case "\x00null":
			doc[k] = nil
		default:
			doc[k] = v
		}
	}
	return doc
}

// NoValueIsQuoted fails the test for an answer that quotes a secret. It puts one in the place of
// every value of every document of the corpus that is of a schema in folder.
func NoValueIsQuoted(t *testing.T, folder string, answer func(schema string, document strictjson.Value) string) {
	t.Helper()
	const secret, number = "sk-live-5fb1e2c77a", "73190284"
	m := Replacing(secret, json.Number(number), []any{secret, secret}, map[string]any{"k": secret})
	for _, s := range Corpus(t) {
		if !strings.HasPrefix(s.Schema, folder) {
			continue
		}
		m.Each(s.Document, func(what func() string) {
			if text := answer(s.Schema, strictjson.FromTree(s.Document)); strings.Contains(text, secret) || strings.Contains(text, number) {
				t.Fatalf("%s, %s: %s", s.File, what(), text)
			}
		})
	}
}

// SchemaTrees are the parsed texts of a schema and of the vocabulary beside it.
func SchemaTrees(tb testing.TB, source func(name string) ([]byte, bool), name string) []any {
	tb.Helper()
	folder := path.Dir(name)
	var trees []any
	for _, n := range slices.Compact([]string{name, folder + "/envelope", folder + "/vocabulary"}) {
		if src, ok := source(n); ok {
			trees = append(trees, Parse(tb, string(src)))
		}
	}
	return trees
}

// Upstream is the folder with the published schemas and examples.
func Upstream(tb testing.TB) fs.FS {
	tb.Helper()
	shared := os.Getenv("COUNTERSIGN_SHARED")
	if shared == "" {
		shared = filepath.Join(repository(tb), "..", "shared")
	}
	dir := filepath.Join(shared, "upstream")
	if _, err := os.Stat(dir); err != nil {
		tb.Skipf("the published schemas are not here (%v); set COUNTERSIGN_SHARED to the folder that holds upstream/", err)
	}
	return os.DirFS(dir)
}
