package schemas

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/strictjson"
)

const (
	stateChanged = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.state.changed","event_id":"evt_1","session_id":"sess_1",
		"timestamp":"2026-11-20T10:00:00.000Z","producer":{"agent_id":"a"},"from_state":"idle","to_state":"thinking"}`
	confirmation = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.awaiting.confirmation","event_id":"evt_1","session_id":"sess_1",
		"timestamp":"2026-11-20T10:00:00.000Z","producer":{"agent_id":"a"},"urgency":"critical","action":"a","consequence":"b","reply_token":"rpl_1",
		"timeout_seconds":60,"default_decision":"accept","risk_level":"high","reversibility":"reversible"}`
	clarifying = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.awaiting.clarification","event_id":"evt_1","session_id":"sess_1",
		"timestamp":"2026-11-20T10:00:00.000Z","producer":{"agent_id":"a"},"urgency":"critical","question":"q","reply_token":"rpl_1","timeout_seconds":60,
		"accepted_response_kinds":["multiple_choice"],"choices":[{"value":"a","label":"A"},{"value":"b","label":"B"}]}`
	progressing = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.progress.updated","event_id":"evt_1","session_id":"sess_1",
		"timestamp":"2026-11-20T10:00:00.000Z","producer":{"agent_id":"a"},"progress":{"step":2,"total_steps":3}}`
	preToolUse = `{"event_id":"0d9f8b7a-1c2d-4e3f-8a9b-0c1d2e3f4a5b","event_type":"PreToolUse","timestamp":"2026-11-20T10:00:00Z","source":"runtime","tool_name":"t"}`
)

// edit lays a JSON object over a document; null takes a member away and
// "\u0000null" stands for null itself.
func edit(t *testing.T, base, over string) map[string]any {
	t.Helper()
	doc := parse(t, base)
	for k, v := range parse(t, over) {
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

func TestStrict(t *testing.T) {
	for _, tc := range []struct {
		name, base, over string
		want             string // "check level path", one a line, "" for nothing
	}{
		{"aaep as it is", stateChanged, `{}`, ""},
		{"full core URI", stateChanged, `{"type":"https://aaep-protocol.org/types/agent.state.changed"}`, ""},
		{"full core URI, field missing", stateChanged, `{"type":"https://aaep-protocol.org/types/agent.state.changed","to_state":null}`, "AAEP-C-030 error "},
		{"missing envelope key", stateChanged, `{"producer":null}`, "AAEP-C-002 error "},
		{"no type", stateChanged, `{"type":null}`, "AAEP-C-002 error "},
		{"type not text", stateChanged, `{"type":7}`, "AAEP-C-004 error /type"},
		{"type without vocabulary", stateChanged, `{"type":"thing"}`, "AAEP-C-004 error /type"},
		{"type with a space", stateChanged, `{"type":"aaep x:agent"}`, "AAEP-C-004 error /type"},
		{"unknown core type", stateChanged, `{"type":"aaep:agent.purple.flamingo"}`, "AAEP-C-005 error /type"},
		{"unknown core type as URI", stateChanged, `{"type":"https://aaep-protocol.org/types/agent.purple"}`, "AAEP-C-005 error /type"},
		{"core type with a trailing space", stateChanged, `{"type":"aaep:agent.state.changed "}`, "AAEP-C-005 error /type"},
		{"a schema of ours is no core type", stateChanged, `{"type":"aaep:envelope"}`, "AAEP-C-005 error /type"},
		{"a reply is no core type", stateChanged, `{"type":"aaep:confirmation.reply"}`, "AAEP-C-005 error /type"},
		{"a path is no core type", stateChanged, `{"type":"aaep:agent./../envelope"}`, "AAEP-C-005 error /type"},
		{"foreign type, declared", stateChanged, `{"type":"parcels:moved","@context":["https://aaep-protocol.org/context/v1","https://a.example/v1"],"depot":"K7"}`, ""},
		{"foreign type, not declared", stateChanged, `{"type":"parcels:moved"}`, "AAEP-C-006 error /type"},
		{"foreign type as URI", stateChanged, `{"type":"https://a.example/moved"}`, ""},
		{"foreign type, envelope broken", stateChanged, `{"type":"https://a.example/moved","event_id":"x"}`, "AAEP-C-007 error /event_id"},
		{"no fraction", stateChanged, `{"timestamp":"2026-11-20T10:00:00Z"}`, "AAEP-C-009 warning /timestamp"},
		{"one fraction digit", stateChanged, `{"timestamp":"2026-11-20T10:00:00.1Z"}`, "AAEP-C-009 error /timestamp"},
		{"six fraction digits and offset", stateChanged, `{"timestamp":"2026-11-20T10:00:00.123456-05:00"}`, ""},
		{"nine fraction digits", stateChanged, `{"timestamp":"2026-11-20T10:00:00.123456789+01:00"}`, "AAEP-C-009 error /timestamp"},
		{"no time at all", stateChanged, `{"timestamp":"now"}`, "AAEP-C-009 error /timestamp"},
		{"version 1.0.7", stateChanged, `{"aaep_version":"1.0.7"}`, ""},
		{"the draft", stateChanged, `{"aaep_version":"0.1.0-draft"}`, ""},
		{"version nobody published", stateChanged, `{"aaep_version":"0.2.0"}`, "AAEP-C-016 error /aaep_version"},
		{"next major", stateChanged, `{"aaep_version":"2.0.0"}`, "AAEP-C-016 error /aaep_version"},
		{"no version", stateChanged, `{"aaep_version":"one"}`, "AAEP-C-016 error /aaep_version"},
		{"newer minor with a new field", stateChanged, `{"aaep_version":"1.1.0","mood":"calm"}`, "AAEP-C-016 warning /aaep_version\nAAEP-C-019 warning /mood"},
		{"producer with extra key", stateChanged, `{"producer":{"agent_id":"a","x":1}}`, "AAEP-C-010 error /producer/x"},
		{"reserved prefix", stateChanged, `{"@context":["https://aaep-protocol.org/context/v1","https://a.example/v1"],"extensions":{"xsd":{},"@x":{},"ok":{}}}`,
			"AAEP-C-018 error /extensions/@x\nAAEP-C-018 error /extensions/xsd"},
		{"undeclared prefix", stateChanged, `{"extensions":{"medai":{}}}`, "AAEP-C-018 error /extensions/medai"},
		{"unknown field", stateChanged, `{"custom_field":1}`, "AAEP-C-019 error /custom_field"},
		{"field of another event", stateChanged, `{"reply_token":"rpl_1"}`, "AAEP-C-019 error /reply_token"},
		{"reserved names", stateChanged, `{"@id":"x","aaep_trace":1}`, "AAEP-C-019 error /@id\nAAEP-C-019 error /aaep_trace"},
		{"language variant", stateChanged, `{"summary_normal_yo":"x","amount_raw":1,"currency":"NGN"}`,
			"AAEP-C-019 warning /amount_raw\nAAEP-C-019 warning /currency\nAAEP-C-019 warning /summary_normal_yo"},
		{"confirmation as it is", confirmation, `{}`, ""},
		{"critical event without urgency", confirmation, `{"urgency":null}`, "AAEP-C-031 error "},
		{"critical event, not critical", confirmation, `{"urgency":"normal"}`, "AAEP-C-031 error /urgency"},
		{"urgency of no kind", stateChanged, `{"urgency":"loud"}`, "AAEP-C-012 error /urgency"},
		{"irreversible by flag", confirmation, `{"irreversible":true}`, "AAEP-C-032 error /default_decision"},
		{"irreversible by reversibility", confirmation, `{"reversibility":"irreversible"}`, "AAEP-C-032 error /default_decision"},
		{"irreversible by both, once", confirmation, `{"reversibility":"irreversible","irreversible":true}`, "AAEP-C-032 error /default_decision"},
		{"irreversible but low", confirmation, `{"reversibility":"irreversible","risk_level":"low"}`, ""},
		{"irreversible, silence is no", confirmation, `{"reversibility":"irreversible","default_decision":"reject"}`, ""},
		{"clarification as it is", clarifying, `{}`, ""},
		{"no choices", clarifying, `{"choices":null}`, "AAEP-C-034 error "},
		{"choice value twice", clarifying, `{"choices":[{"value":"a","label":"A"},{"value":"b","label":"B"},{"value":"a","label":"C"}]}`, "AAEP-C-034 error /choices/2/value"},
		{"step beyond total", progressing, `{"progress":{"step":4,"total_steps":3.0}}`, "AAEP-C-036 error /progress/step"},
		{"last step", progressing, `{"progress":{"step":3,"total_steps":3}}`, ""},
		{"bad reply", `{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept","subscription_id":"sub_1","timestamp":"2026-11-20T10:00:00Z"}`,
			`{"decision":"maybe","x":1}`, "AAEP-C-024 error /decision\nAAEP-C-024 error /x"},

		{"agenthook as it is", preToolUse, `{}`, ""},
		{"offset", preToolUse, `{"timestamp":"2026-11-20T11:00:00+01:00"}`, "AH-C-006 warning /timestamp"},
		{"offset zero", preToolUse, `{"timestamp":"2026-11-20T11:00:00+00:00"}`, ""},
		{"no source", preToolUse, `{"source":null}`, "AH-C-003 error "},
		{"empty source", preToolUse, `{"source":""}`, "AH-C-007 error /source"},
		{"source with a space", preToolUse, `{"source":"my runtime"}`, "AH-C-007 warning /source"},
		{"version 2", preToolUse, `{"schema_version":2}`, "AH-C-008 error /schema_version"},
		{"version 0", preToolUse, `{"schema_version":0}`, "AH-C-008 error /schema_version"},
		{"version 1.0", preToolUse, `{"schema_version":1.0}`, ""},
		{"version as text", preToolUse, `{"schema_version":"1"}`, "AH-C-008 error /schema_version"},
		{"no tool", preToolUse, `{"tool_name":null}`, "AH-C-009 error "},
		{"empty tool", preToolUse, `{"tool_name":"","event_type":"PostToolUse"}`, "AH-C-009 error /tool_name"},
		{"null tool", preToolUse, `{"tool_name":"\u0000null"}`, "AH-C-009 error /tool_name"},
		{"another event needs no tool", preToolUse, `{"tool_name":null,"event_type":"SessionStart"}`, ""},
		{"unknown event type", preToolUse, `{"event_type":"ParcelMoved"}`, ""},
		{"post before commit", preToolUse, `{"event_type":"PostToolUse","evidence_phase":"pre_commit"}`, "AH-C-012 error /evidence_phase"},
		{"post after the fact", preToolUse, `{"event_type":"PostToolUse","evidence_phase":"post_hoc"}`, ""},
		{"bad everything", preToolUse, `{"event_id":"x","event_type":"bad_event","metadata":[],"resource":1,"evidence_phase":"now","traceparent":"x"}`,
			"AH-C-004 error /event_id\nAH-C-005 error /event_type\nAH-C-011 error /evidence_phase\nAH-C-010 error /metadata\nAH-C-010 error /resource\nAH-C-002 error /traceparent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := edit(t, tc.base, tc.over)
			before := maps.Clone(doc)
			judge := StrictAAEP
			if tc.base == preToolUse {
				judge = StrictAgentHook
			}
			var lines []string
			for _, v := range judge(strictjson.FromTree(doc)) {
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
		for _, v := range AgentHookProfile(strictjson.FromTree(doc), tc.form) {
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
	for _, s := range corpus(t) {
		if s.file == file {
			return s.document
		}
	}
	t.Fatalf("%s is not in the corpus", file)
	return nil
}

// TestWarningsHideNoError: a producer that fills its event with what only
// deserves a warning must not push the error out of the answer.
func TestWarningsHideNoError(t *testing.T) {
	doc := edit(t, stateChanged, `{"to_state":null}`)
	for i := range 20 * MaxViolations {
		doc[fmt.Sprintf("summary_normal_aa_%d", i)] = "x"
	}
	doc["zz_custom"] = 1
	vs := StrictAAEP(strictjson.FromTree(doc))
	if len(vs) != MaxViolations {
		t.Errorf("%d violations, want the limit of %d", len(vs), MaxViolations)
	}
	errors := 0
	for _, v := range vs {
		if v.Level == LevelError {
			errors++
		}
	}
	if !HasErrors(vs) || errors != 2 {
		t.Errorf("%d errors survive, want 2", errors)
	}
	if HasErrors([]Violation{{Level: LevelWarning}}) || HasErrors(nil) {
		t.Error("a warning is no error")
	}
}
