package agenthook

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

const preToolUse = `{"event_id":"0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b","event_type":"PreToolUse","timestamp":"2026-11-20T10:00:00Z","source":"runtime","tool_name":"t"}`

func TestStrict(t *testing.T) {
	for _, tc := range []struct {
		name, over string
		want       string // "check level path", one a line, "" for nothing
	}{
		{"agenthook as it is", `{}`, ""},
		{"offset", `{"timestamp":"2026-11-20T11:00:00+01:00"}`, "AH-C-006 warning /timestamp"},
		{"offset zero", `{"timestamp":"2026-11-20T11:00:00+00:00"}`, ""},
		{"no source", `{"source":null}`, "AH-C-003 error "},
		{"empty source", `{"source":""}`, "AH-C-007 error /source"},
		{"source with a space", `{"source":"my runtime"}`, "AH-C-007 warning /source"},
		{"version 2", `{"schema_version":2}`, "AH-C-008 error /schema_version"},
		{"version 0", `{"schema_version":0}`, "AH-C-008 error /schema_version"},
		{"version 1.0", `{"schema_version":1.0}`, ""},
		{"version as text", `{"schema_version":"1"}`, "AH-C-008 error /schema_version"},
		{"no tool", `{"tool_name":null}`, "AH-C-009 error "},
		{"empty tool", `{"tool_name":"","event_type":"PostToolUse"}`, "AH-C-009 error /tool_name"},
		{"null tool", `{"tool_name":"\u0000null"}`, "AH-C-009 error /tool_name"},
		{"another event needs no tool", `{"tool_name":null,"event_type":"SessionStart"}`, ""},
		{"unknown event type", `{"event_type":"ParcelMoved"}`, ""},
		{"post before commit", `{"event_type":"PostToolUse","evidence_phase":"pre_commit"}`, "AH-C-012 error /evidence_phase"},
		{"post after the fact", `{"event_type":"PostToolUse","evidence_phase":"post_hoc"}`, ""},
		{"bad everything", `{"event_id":"x","event_type":"bad_event","metadata":[],"resource":1,"evidence_phase":"now","traceparent":"x"}`,
			"AH-C-004 error /event_id\nAH-C-005 error /event_type\nAH-C-011 error /evidence_phase\nAH-C-010 error /metadata\nAH-C-010 error /resource\nAH-C-002 error /traceparent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := schematest.Edit(t, preToolUse, tc.over)
			before := maps.Clone(doc)
			var lines []string
			for _, v := range Strict(strictjson.FromTree(doc)) {
				lines = append(lines, fmt.Sprintf("%s %s %s", v.Check, v.Level, v.Path))
			}
			if got := strings.Join(lines, "\n"); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			if d := cmp.Diff(before, doc); d != "" {
				t.Errorf("the document was changed: %s", d)
			}
		})
	}
}

func TestProfileRules(t *testing.T) {
	for _, tc := range []struct {
		file string // of the corpus
		form Form
		want string // the check of the only violation, "" for none
	}{
		{"request/valid/minimal", FormRequest, ""},
		{"request/invalid/no-risk", FormRequest, "AH-C-031"},
		{"request/invalid/no-scope", FormRequest, "AH-C-031"},
		{"request/invalid/bare-canonical-name", FormRequest, "AH-C-034"},
		{"request/invalid/short-hash", FormRequest, "AH-C-030"},
		{"request/invalid/post-without-input", FormRequest, "AH-C-033"},
		{"evidence/invalid/verdict-missing", FormEvidence, "AH-C-032"},
		{"evidence/invalid/verdict-missing", FormRequest, ""},
		{"evidence/invalid/verdict-missing", Form("misspelt"), "AH-C-032"},
	} {
		doc := sampleDocument(t, "agenthook/action-governance."+tc.file+".json").(map[string]any)
		got := ""
		for _, v := range ValidateProfile(strictjson.FromTree(doc), tc.form) {
			got += v.Check
		}
		if got != tc.want {
			t.Errorf("%s as %s: %q, want %q", tc.file, tc.form, got, tc.want)
		}
	}
	for name, want := range map[string]bool{"PreToolUse": true, "ToolCallRetried": true, "SessionStart": false, "": false} {
		if ProfileCovers(name) != want {
			t.Errorf("ProfileCovers(%q) = %v", name, !want)
		}
	}
}

func sampleDocument(t *testing.T, file string) any {
	t.Helper()
	for _, s := range schematest.Corpus(t) {
		if s.File == file {
			return s.Document
		}
	}
	t.Fatalf("%s is not in the corpus", file)
	return nil
}

// TestUpstreamFixtures expects the rule that each published fixture breaks.
func TestUpstreamFixtures(t *testing.T) {
	root := schematest.Upstream(t)
	for _, tc := range []struct {
		file   string
		checks []string // of the errors, in order, repeats left out
	}{
		{"agenthook/sample-event.json", nil},
		{"agenthook/examples/pre-tool-use-action-governance-email-send.json", nil},
		{"agenthook/examples/post-tool-use-action-governance-email-send.json", nil},
		{"agenthook/examples/tool-use-resumed-after-approval.json", nil},
		{"agenthook/examples/web-search-results-returned.json", nil},
		{"agenthook/examples/approval-lifecycle-ask.json", []string{"AH-C-003", "AH-C-002"}}, // a response, no event
	} {
		t.Run(path.Base(tc.file), func(t *testing.T) {
			doc := schematest.ParseFile(t, root, tc.file).(map[string]any)
			var got []string
			for _, v := range Strict(strictjson.FromTree(doc)) {
				if v.Level == schemas.LevelError && !slices.Contains(got, v.Check) {
					got = append(got, v.Check)
				}
			}
			if !slices.Equal(got, tc.checks) {
				t.Errorf("errors of %v, want %v: %v", got, tc.checks, Strict(strictjson.FromTree(doc)))
			}
		})
	}
}

// TestUpstreamProfileExamples: the governed examples fit the profile in the
// evidence form, and the one without a verdict does not.
func TestUpstreamProfileExamples(t *testing.T) {
	root := schematest.Upstream(t)
	for file, want := range map[string]bool{
		"pre-tool-use-action-governance-email-send.json":  true,
		"post-tool-use-action-governance-email-send.json": true,
		"pre-tool-use-action-governance-mcp-call.json":    true,
		"pre-tool-use-normalized-resource.json":           false,
	} {
		doc := schematest.ParseFile(t, root, "agenthook/examples/"+file).(map[string]any)
		if vs := ValidateProfile(strictjson.FromTree(doc), FormEvidence); (len(vs) == 0) != want {
			t.Errorf("%s: %v", file, vs)
		}
	}
}

// TestValidCostsNothing: the correlator judges every message.
func TestValidCostsNothing(t *testing.T) {
	event := schematest.Message(t, "agenthook")
	for name, judge := range map[string]func() []schemas.Violation{
		"Strict":  func() []schemas.Violation { return Strict(event) },
		"profile": func() []schemas.Violation { return ValidateProfile(event, FormEvidence) },
	} {
		if vs := judge(); vs != nil {
			t.Errorf("%s: %v", name, vs)
		}
		if n := testing.AllocsPerRun(100, func() { judge() }); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// isSourceToken decides what the regular expression does.
func TestSourceToken(t *testing.T) {
	form := regexp.MustCompile(sourceToken)
	texts := []string{"", "-", "a.b:c-d_E9", "my runtime", "é"}
	for b := range 128 {
		texts = append(texts, string(rune(b)), "a"+string(rune(b))+"z")
	}
	for _, s := range texts {
		if isSourceToken(s) != form.MatchString(s) {
			t.Errorf("%q: %v", s, isSourceToken(s))
		}
	}
}

func TestNoValueIsQuoted(t *testing.T) {
	schematest.NoValueIsQuoted(t, "agenthook/", func(_ string, document strictjson.Value) string { return fmt.Sprintf("%+v", Strict(document)) })
}

func BenchmarkStrict(b *testing.B) {
	message := schematest.Message(b, "agenthook")
	b.ReportAllocs()
	for b.Loop() {
		if vs := Strict(message); vs != nil {
			b.Fatal(vs)
		}
	}
}
