package schemas

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// pair is one of our schemas beside the published one that it answers to.
type pair struct {
	ours     string
	file     string // of the published schema, below the upstream folder
	examples []any
	theirs   *librarySchema
}

// upstream is the folder with the published schemas and examples.
func upstream(t *testing.T) fs.FS {
	t.Helper()
	shared := os.Getenv("COUNTERSIGN_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "shared")
	}
	dir := filepath.Join(shared, "upstream")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the published schemas are not here (%v); set COUNTERSIGN_SHARED to the folder that holds upstream/", err)
	}
	return os.DirFS(dir)
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
			doc := parseFile(t, root, file).(map[string]any)
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
		tree := parseFile(t, root, file)
		if list, ok := tree.([]any); ok { // a recorded session
			for i, item := range list {
				docs[file+jsonPointer(item.(map[string]any)["event_id"].(string))] = list[i]
			}
			return nil
		}
		docs[file] = tree
		if meta, ok := tree.(map[string]any)["metadata"].(map[string]any); ok {
			for _, part := range []string{"approval", "runtime_attestation"} {
				if v, ok := meta[part]; ok {
					docs[file+jsonPointer("metadata", part)] = v
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
	root := upstream(t)
	pairs := upstreamPairs(t, root)
	docs := upstreamDocuments(t, root)
	for _, p := range pairs {
		for i, e := range p.examples {
			docs[p.file+jsonPointer("examples", strconv.Itoa(i))] = e
		}
	}
	for _, s := range corpus(t) {
		docs[s.file] = s.document
	}
	used := map[string]int{}
	compared := 0
	for _, p := range pairs {
		m := newMutator(append(schemaTrees(t, Default(), p.ours), parseFile(t, root, p.file))...)
		folder, _, _ := strings.Cut(p.file, "/")
		m.share = min(m.share, upstreamShare)
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
			m.each(doc, check)
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

// TestUpstreamFixtures expects the rule that each published fixture breaks.
func TestUpstreamFixtures(t *testing.T) {
	root := upstream(t)
	for _, tc := range []struct {
		file   string
		checks []string // of the errors, in order, repeats left out
	}{
		{"aaep/fixtures/valid/agent.session.started.json", nil},
		{"aaep/fixtures/valid/agent.awaiting.confirmation.json", nil},
		{"aaep/fixtures/valid/agent.tool.invoked.high-risk.json", nil},
		{"aaep/fixtures/valid/agent.output.streaming.yoruba.json", nil},
		{"aaep/fixtures/valid/subscription.request.multilingual.json", nil},
		{"aaep/fixtures/invalid/missing-required-fields.json", []string{"AAEP-C-002", "AAEP-C-030"}},
		{"aaep/fixtures/invalid/malformed-event-id.json", []string{"AAEP-C-007"}},
		{"aaep/fixtures/invalid/no-critical-urgency-on-errored.json", []string{"AAEP-C-031"}},
		{"aaep/fixtures/invalid/wrong-default-decision.json", []string{"AAEP-C-032"}},
		{"aaep/fixtures/invalid/duplicate-completion-streaming.json", nil}, // wrong only beside another event
		{"agenthook/sample-event.json", nil},
		{"agenthook/examples/pre-tool-use-action-governance-email-send.json", nil},
		{"agenthook/examples/post-tool-use-action-governance-email-send.json", nil},
		{"agenthook/examples/tool-use-resumed-after-approval.json", nil},
		{"agenthook/examples/web-search-results-returned.json", nil},
		{"agenthook/examples/approval-lifecycle-ask.json", []string{"AH-C-003", "AH-C-002"}}, // a response, no event
	} {
		t.Run(path.Base(tc.file), func(t *testing.T) {
			doc := parseFile(t, root, tc.file).(map[string]any)
			judge := StrictAAEP
			if strings.HasPrefix(tc.file, "agenthook") {
				judge = StrictAgentHook
			}
			var got []string
			for _, v := range judge(strictjson.FromTree(doc)) {
				if v.Level == LevelError && !slices.Contains(got, v.Check) {
					got = append(got, v.Check)
				}
			}
			if !slices.Equal(got, tc.checks) {
				t.Errorf("errors of %v, want %v: %v", got, tc.checks, judge(strictjson.FromTree(doc)))
			}
		})
	}
}

// TestUpstreamProfileExamples: the governed examples fit the profile in the
// evidence form, and the one without a verdict does not.
func TestUpstreamProfileExamples(t *testing.T) {
	root := upstream(t)
	for file, want := range map[string]bool{
		"pre-tool-use-action-governance-email-send.json":  true,
		"post-tool-use-action-governance-email-send.json": true,
		"pre-tool-use-action-governance-mcp-call.json":    true,
		"pre-tool-use-normalized-resource.json":           false,
	} {
		doc := parseFile(t, root, "agenthook/examples/"+file).(map[string]any)
		if vs := AgentHookProfile(strictjson.FromTree(doc), FormEvidence); (len(vs) == 0) != want {
			t.Errorf("%s: %v", file, vs)
		}
	}
}
