package examples_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/examples"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/schemas"
	aaepschema "github.com/countersign-dev/countersign/schemas/aaep"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var ok = testkit.OK

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(examples.FS, name)
	ok(t, err)
	return b
}

// covered demands that a table says something about every file of a folder.
func covered[T any](t *testing.T, folder string, table map[string]T) {
	t.Helper()
	files, err := fs.ReadDir(examples.FS, folder)
	ok(t, err)
	for _, f := range files {
		if _, known := table[f.Name()]; !known {
			t.Errorf("%s is not in the table", path.Join(folder, f.Name()))
		}
	}
	if len(files) != len(table) {
		t.Errorf("%d files in %s and %d entries", len(files), folder, len(table))
	}
}

func policies(t *testing.T, folders ...string) *policy.Set {
	t.Helper()
	var all []policy.Document
	for _, folder := range folders {
		sub, err := fs.Sub(examples.FS, folder)
		ok(t, err)
		docs, err := policy.LoadDir(sub)
		ok(t, err)
		all = append(all, docs...)
	}
	set, err := policy.Compile(all)
	ok(t, err)
	return set
}

func TestPoliciesCompile(t *testing.T) {
	for _, folder := range []string{"policies/assistant", "gates"} {
		files, err := fs.ReadDir(examples.FS, folder)
		ok(t, err)
		names := policies(t, folder).Names()
		for _, f := range files {
			if name := strings.TrimSuffix(f.Name(), ".yaml"); !slices.Contains(names, name) {
				t.Errorf("%s holds no policy of its name; there are %v", f.Name(), names)
			}
		}
	}
}

func TestRequestsAreDecidedAsDocumented(t *testing.T) {
	table := map[string]struct{ protocol, verdict, reply string }{
		"pre-tool-use.json":          {"agenthook", "allow", `"reason":"Mail to colleagues is fine."`},
		"pre-tool-use-external.json": {"agenthook", "ask", `"reason":"Mail that leaves the company needs a person's consent."`},
		"pre-tool-use-denied.json":   {"agenthook", "deny", `"reason":"Agents do not delete databases here."`},
		"aaep-tool-invoked.json":     {"aaep", "allow", `"code":"reversible"`},
		"aaep-irreversible.json":     {"aaep", "ask", `"code":"confirmation_required"`},
		"aana-public-read.json":      {"aana", "allow", `"execution_allowed":true`},
		"aana-write.json":            {"aana", "ask", `"write_missing_explicit_confirmation"`},
		"aana-refused.json":          {"aana", "deny", `"runtime_refusal"`},
		"aump-action.json":           {"aump", "allow", `"decision":"allowed"`},
		"tool-call.json":             {"tool", "allow", `"reason":"finance_export"`},
		"handoff.json":               {"handoff", "allow", `"reason":"invoice_question"`},
	}
	covered(t, "requests", table)
	sub, err := fs.Sub(examples.FS, "mandates")
	ok(t, err)
	mandates, err := mandate.Load(sub)
	ok(t, err)
	config := &admission.Config{Policies: policies(t, "policies/assistant", "gates")}
	for name, want := range table {
		body := read(t, "requests/"+name)
		doc, err := strictjson.ReadObject(body, strictjson.DefaultLimits)
		ok(t, err)
		if want.protocol == "agenthook" {
			for _, v := range hookschema.Strict(doc) {
				t.Errorf("%s: %+v", name, v)
			}
		}
		o := admission.Offline{Protocol: want.protocol, Config: config, Now: noon, Mandates: mandates}
		line := admission.EvaluateLine(body, o)
		var got admission.OfflineResult
		ok(t, json.Unmarshal(line, &got))
		if string(got.Verdict) != want.verdict || !strings.Contains(string(got.Reply), want.reply) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

func TestSessionsAreFoundOutAsDocumented(t *testing.T) {
	table := map[string]struct {
		protocol string
		strict   func(strictjson.Value) []schemas.Violation
		asked    string   // a tool whose denial is on record
		rules    []string // what is found
	}{
		"aaep-flight.jsonl":     {"aaep", aaepschema.Strict, "", nil},
		"agenthook-mail.jsonl":  {"agenthook", hookschema.Strict, "", nil},
		"agenthook-rogue.jsonl": {"agenthook", hookschema.Strict, "delete_database", []string{"AH-C-075", "AH-C-080", "executed_despite_deny", "input_drift"}},
	}
	covered(t, "sessions", table)
	for name, want := range table {
		var recording []json.RawMessage
		for _, line := range bytes.Split(bytes.TrimSpace(read(t, "sessions/"+name)), []byte("\n")) {
			doc, err := strictjson.ReadObject(line, strictjson.DefaultLimits)
			ok(t, err)
			for _, v := range want.strict(doc) {
				t.Errorf("%s: %+v", name, v)
			}
			recording = append(recording, line)
			if pre := doc.MemberText("event_type") == "PreToolUse"; pre && want.asked != "" {
				recording = append(recording, decided(t, line, doc.MemberText("tool_name") == want.asked))
			}
		}
		findings, err := correlation.Check(want.protocol, recording, correlation.CheckOptions{})
		ok(t, err)
		var rules []string
		for _, f := range findings {
			rules = append(rules, f.Rule)
		}
		slices.Sort(rules)
		if !slices.Equal(rules, want.rules) {
			t.Errorf("%s: findings %v, want %v", name, rules, want.rules)
		}
	}
}

// decided is the line of a recording that holds the decision on an event.
func decided(t *testing.T, event []byte, deny bool) json.RawMessage {
	t.Helper()
	var e struct {
		EventID   string `json:"event_id"`
		SessionID string `json:"session_id"`
		ToolName  string `json:"tool_name"`
		Metadata  struct {
			ToolCallID string `json:"tool_call_id"`
		} `json:"metadata"`
	}
	ok(t, json.Unmarshal(event, &e))
	verdict := map[bool]string{true: "deny", false: "allow"}[deny]
	line, err := json.Marshal(map[string]any{"decision": map[string]any{
		"decision_id": "d-" + e.EventID, "event_id": e.EventID, "session": e.SessionID, "tool_call_id": e.Metadata.ToolCallID,
		"tool": e.ToolName, "verdict": verdict,
	}})
	ok(t, err)
	return line
}
