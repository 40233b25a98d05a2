package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// formatLines is one format of a session, and what judges its lines.
var formatLines = []struct {
	format, session string
	lines           int
	schemas         []string // below the repository, or below the folder of the published schemas
	must            []string // in the file
}{
	{"aana-decision-events", "s-format-aana", 2, []string{"compliance/format/schemas/aana-decision-event.json"}, []string{`"route":"accept"`, `"route":"refuse"`, "proposed_arguments_secret_leak", `"tool_category":"write"`}},
	{"aana-audit-records", "s-format-aana", 2, []string{"compliance/format/schemas/aana-audit-record.json"}, []string{"hmac_sha256", `"record_type":"tool_precheck"`}},
	{"aioc-run", "s-format-tool", 1, []string{"compliance/format/schemas/aioc-run-record.json"}, []string{"policy_not_configured", `"ToolCallPolicyDeniedError"`}},
	{"aioc-governance", "s-format-tool", 1, []string{"compliance/format/schemas/aioc-governance-event.json"}, []string{"aioc.policy.denied"}},
	{"aump-evidence", "s-format-aump", 2, []string{"upstream/aump/schemas/evidence-event.schema.json"}, []string{`"retention":"hashes"`, `"result":"allowed"`, `"result":"denied"`, "previous_event_hash"}},
	{"agenthook-evidence", "s-format-hook", 3, []string{"upstream/agenthook/envelope.schema.json"}, []string{`"verdict":"allow"`, `"verdict":"deny"`, `"verdict":"ask"`, `"pre_commit"`}},
	{"ocsf", "s-format-hook", 0, []string{"compliance/format/schemas/ocsf-event.json"}, []string{`"class_uid":6003`, `"class_uid":2004`, `"executed_despite_deny"`, `"disposition":"Blocked"`}},
	{"cef", "s-format-hook", 0, nil, []string{"CEF:0|Countersign|", "|decision.deny|", "|finding.executed_despite_deny|"}},
}

// formatSecrets are in requests of TestFormats, and must be in no line.
var formatSecrets = []string{"hunter2-format-test", "press@newspaper.example"}

func aanaCall(args object) []byte {
	return object{
		"tool_name": "save_note", "tool_category": "write", "authorization_state": "confirmed", "risk_domain": "customer_support", "recommended_route": "accept", "proposed_arguments": args,
		"evidence_refs": []object{{"source_id": "approval.1", "kind": "approval", "trust_tier": "verified", "redaction_status": "redacted", "provenance": "runtime", "summary": "The user agreed.",
			"freshness": object{"status": "fresh", "checked_at": now()}}},
	}.bytes()
}

// formatTraffic is what TestFormats exports.
func formatTraffic(t *testing.T, s *system) {
	t.Helper()
	r := s.runtime(t)
	headers := func(session, call string) []string {
		return []string{"Countersign-Session", session, "Countersign-Tool-Call-Id", call}
	}
	r.admit(t, "aana", aanaCall(object{"note": "tea"}), headers("s-format-aana", "c1")...)
	r.admit(t, "aana", aanaCall(object{"note": "password: " + formatSecrets[0]}), headers("s-format-aana", "c2")...)
	r.admit(t, "tool", aiocCall("save_note").with("rawArguments", `{"x":"`+formatSecrets[0]+`"}`).bytes(), headers("s-format-tool", "c1")...)
	m := shopping("aump_mnd_e2e_format")
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	for i, amount := range []int{0, 5000} {
		body := underMandate("aump_mnd_e2e_format", mandateHash(m), purchase(amount))
		eventually(t, "the mandate is known", func() error {
			a := r.admit(t, "aump", body, headers("s-format-try", now())...)
			if strings.Contains(evaluated(a), "mandate_not_found") {
				return errorf("%s", evaluated(a))
			}
			return nil
		})
		r.admit(t, "aump", body, headers("s-format-aump", "c"+string(rune('1'+i)))...)
	}
	good, bad, asked := allowedCall("s-format-hook", "call-good"), deniedCall("s-format-hook", "call-bad"), askedCall("s-format-hook", "call-asked")
	for _, call := range []object{good.with("tool_input.password", formatSecrets[0]), bad, asked} {
		r.admit(t, "agenthook", call.bytes())
	}
	r.publish(t, bad)
	r.publish(t, postToolUse(bad)) // it ran all the same
	s.settle(t)
}

// Every format, from a running system: its lines satisfy our schema and the
// published one, nothing that is redacted is in them, and the file is there whole
// or not at all.
func TestFormats(t *testing.T) {
	t.Parallel()
	s := start(t)
	begin := time.Now().UTC()
	formatTraffic(t, s)
	end := time.Now().UTC()
	dir := t.TempDir()
	for _, f := range formatLines {
		t.Run(f.format, func(t *testing.T) {
			out := filepath.Join(dir, f.format)
			s.run(t, "export", "--format", f.format, "--session", f.session, "--out", out).want(t, 0)
			text, err := os.ReadFile(out)
			ok(t, err)
			lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
			if f.lines > 0 && len(lines) != f.lines {
				t.Errorf("%d lines, want %d", len(lines), f.lines)
			}
			for _, must := range f.must {
				if !bytes.Contains(text, []byte(must)) {
					t.Errorf("no %s in\n%s", must, text)
				}
			}
			for _, secret := range formatSecrets {
				if bytes.Contains(text, []byte(secret)) {
					t.Errorf("%s is in the lines", secret)
				}
			}
			for _, schema := range f.schemas {
				judged(t, schema, lines)
			}
			if f.format != "ocsf" && !longSweeps { // one has the lines of every kind of record
				return
			}
			ranged := s.run(t, "export", "--format", f.format, "--from", begin.Format(time.RFC3339Nano), "--to", end.Format(time.RFC3339Nano), "--out", "-").want(t, 0)
			if strings.Count(ranged.out, "\n") < len(lines) {
				t.Errorf("the range has fewer lines than the session:\n%s", ranged.out)
			}
			for _, secret := range formatSecrets {
				if strings.Contains(ranged.out, secret) {
					t.Errorf("%s is in the lines of the range", secret)
				}
			}
		})
	}
	first := formatLines[0] // no format writes to standard output itself
	text, err := os.ReadFile(filepath.Join(dir, first.format))
	ok(t, err)
	if r := s.run(t, "export", "--format", first.format, "--session", first.session, "--out", "-").want(t, 0); r.out != string(text) {
		t.Errorf("standard output has other lines:\n%s", r.out)
	}
	formatRefusals(t, s, dir)
}

// formatRefusals: one line each, and no file.
func formatRefusals(t *testing.T, s *system, dir string) {
	t.Helper()
	none := filepath.Join(dir, "none")
	s.run(t, "export", "--format", "aioc-run", "--session", "s-format-hook", "--out", none).want(t, 1).oneLine(t, "nothing to write in this format")
	s.run(t, "export", "--format", "cef", "--session", "nobody", "--out", none).want(t, 1).oneLine(t, "no record of this session")
	s.run(t, "export", "--format", "cef", "--from", "2020-01-01", "--to", "2020-01-02", "--out", none).want(t, 1).oneLine(t, "no record in this time range")
	s.run(t, "export", "--format", "csv", "--session", "s-format-hook", "--out", none).want(t, 2).oneLine(t, "aana-audit-records")
	s.run(t, "export", "--format", "cef", "--session", "s-format-hook", "--out", none, "--pdf", none).want(t, 2).oneLine(t, "--pdf is for bundles")
	s.run(t, "export", "--format", "cef", "--session", "s-format-hook", "--out", filepath.Join(dir, "cef")).want(t, 2).oneLine(t, "--force")
	if list, err := filepath.Glob(filepath.Join(dir, "*none*")); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
	// A record that was changed in the database is noticed.
	change(t, s.owner(t), "ALTER TABLE evidence UPDATE record = replaceOne(record, 'call-good', 'call-evil') WHERE session = 's-format-hook' SETTINGS mutations_sync = 2")
	s.run(t, "export", "--format", "cef", "--session", "s-format-hook", "--out", none).want(t, 1).oneLine(t, "countersign verify")
}

// judged validates lines by a schema; a published one that is not here is
// skipped, visibly.
func judged(t *testing.T, schema string, lines [][]byte) {
	t.Helper()
	file := filepath.Join(root, schema)
	if strings.HasPrefix(schema, "upstream/") {
		shared := os.Getenv("COUNTERSIGN_SHARED")
		if shared == "" {
			shared = filepath.Join(root, "..", "shared")
		}
		file = filepath.Join(shared, schema)
	}
	text, err := os.ReadFile(file)
	if err != nil && strings.HasPrefix(schema, "upstream/") {
		t.Skipf("the published schema is not here (%v); set COUNTERSIGN_SHARED to the folder that holds upstream/", err)
	}
	ok(t, err)
	c := jsonschema.NewCompiler()
	c.Draft, c.AssertFormat = jsonschema.Draft2020, true
	ok(t, c.AddResource("mem:///schema", bytes.NewReader(text)))
	compiled, err := c.Compile("mem:///schema")
	ok(t, err)
	for _, line := range lines {
		var v any
		ok(t, json.Unmarshal(line, &v))
		if err := compiled.Validate(v); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
