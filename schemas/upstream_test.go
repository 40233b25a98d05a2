package schemas

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

// pair is one of our schemas beside the published one that it answers to.
type pair struct {
	ours     string
	file     string // of the published schema, below the upstream folder
	examples []any
	theirs   *librarySchema
}

// upstreamPairs compiles every published schema with formats asserted.
func upstreamPairs(t *testing.T, root fs.FS) []pair {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat = true
	c.LoadURL = func(string) (io.ReadCloser, error) { return nil, errors.New("no loading in tests") }
	ids := map[string]string{}
	var pairs []pair
	for _, pattern := range []string{"aaep/schemas/*.schema.json", "aaep/schemas/*/*.schema.json", "agenthook/*.schema.json"} {
		matches, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range matches {
			doc := schematest.ParseFile(t, root, file).(map[string]any)
			text, _ := fs.ReadFile(root, file)
			ids[file] = doc["$id"].(string)
			if err := c.AddResource(ids[file], strings.NewReader(string(text))); err != nil {
				t.Fatal(err)
			}
			examples, _ := doc["examples"].([]any)
			for _, ours := range oursFor(file) {
				pairs = append(pairs, pair{ours: ours, file: file, examples: examples})
			}
		}
	}
	for i, p := range pairs {
		s, err := c.Compile(ids[p.file])
		if err != nil {
			t.Fatal(err)
		}
		pairs[i].theirs = s
	}
	if len(pairs) < 24 {
		t.Fatalf("only %d pairs of schemas", len(pairs))
	}
	return pairs
}

// oursFor names our schemas for a published one.
func oursFor(file string) []string {
	base := strings.TrimSuffix(path.Base(file), ".schema.json")
	folder, _, _ := strings.Cut(file, "/")
	switch base {
	case "action-governance-profile":
		return []string{"agenthook/action-governance.request", "agenthook/action-governance.evidence"}
	case "approval-lifecycle":
		return []string{"agenthook/approval"}
	}
	return []string{folder + "/" + base}
}

// upstreamDocuments are the fixtures and examples by file, and the parts of
// them that are documents of their own.
func upstreamDocuments(t *testing.T, root fs.FS) map[string]any {
	t.Helper()
	docs := map[string]any{}
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !wantedDocument(file) {
			return err
		}
		tree := schematest.ParseFile(t, root, file)
		if list, ok := tree.([]any); ok { // a recorded session
			for i, item := range list {
				docs[file+Pointer(item.(map[string]any)["event_id"].(string))] = list[i]
			}
			return nil
		}
		docs[file] = tree
		if meta, ok := tree.(map[string]any)["metadata"].(map[string]any); ok {
			for _, part := range []string{"approval", "runtime_attestation"} {
				if v, ok := meta[part]; ok {
					docs[file+Pointer("metadata", part)] = v
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func wantedDocument(file string) bool {
	folder, _, _ := strings.Cut(file, "/")
	return (folder == "aaep" || folder == "agenthook") && strings.HasSuffix(file, ".json") && !strings.HasSuffix(file, ".schema.json")
}

// TestUpstreamVerdicts compares our verdict with the published schemas' on
// every fixture, example and recorded event and on our own corpus, each document
// judged by every schema of its protocol, and on systematic mutations of those,
// judged by the schemas that accept the original.
func TestUpstreamVerdicts(t *testing.T) {
	root := schematest.Upstream(t)
	pairs := upstreamPairs(t, root)
	docs := upstreamDocuments(t, root)
	for _, p := range pairs {
		for i, e := range p.examples {
			docs[p.file+Pointer("examples", strconv.Itoa(i))] = e
		}
	}
	for _, s := range schematest.Corpus(t) {
		docs[s.File] = s.Document
	}
	used := map[string]int{}
	compared := 0
	for _, p := range pairs {
		m := schematest.NewMutator(append(schematest.SchemaTrees(t, Default().Source, p.ours), schematest.ParseFile(t, root, p.file))...).Within(upstreamShare)
		folder, _, _ := strings.Cut(p.file, "/")
		for _, name := range slices.Sorted(maps.Keys(docs)) {
			doc := docs[name]
			if !strings.HasPrefix(name, folder) {
				continue
			}
			check := func(what func() string) {
				compared++
				theirs := p.theirs.Validate(doc) == nil
				ours := Default().Validate(p.ours, strictjson.FromTree(doc)) == nil
				if ours == theirs {
					return
				}
				for _, d := range differences {
					if d.covers(p.ours, ours, doc) {
						used[d.name]++
						return
					}
				}
				t.Errorf("%s, %s: %s says %v, the published schema %v: %v", name, what(), p.ours, ours, theirs, Default().Validate(p.ours, strictjson.FromTree(doc)))
			}
			if p.theirs.Validate(doc) != nil || broad(p.ours) {
				check(func() string { return "as it is" })
				continue
			}
			m.Each(doc, check)
		}
	}
	t.Logf("%d pairs of schemas, %d documents, %d verdicts compared", len(pairs), len(docs), compared)
	for _, d := range differences {
		t.Logf("%-30s %6d times: %s", d.name, used[d.name], d.reason)
		if used[d.name] == 0 {
			t.Errorf("the difference %q was never seen; is it still one?", d.name)
		}
	}
}

// upstreamShare is smaller than usual: here something can differ.
const upstreamShare = 149

// broad schemas accept events of every type; the schemas of the types mutate
// those.
func broad(ours string) bool { return ours == "aaep/envelope" }
