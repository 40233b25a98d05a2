package aaep

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/schematest"
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
)

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
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := schematest.Edit(t, tc.base, tc.over)
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

// TestWarningsHideNoError: a producer that fills its event with what only
// deserves a warning must not push the error out of the answer.
func TestWarningsHideNoError(t *testing.T) {
	doc := schematest.Edit(t, stateChanged, `{"to_state":null}`)
	for i := range 20 * schemas.MaxViolations {
		doc[fmt.Sprintf("summary_normal_aa_%d", i)] = "x"
	}
	doc["zz_custom"] = 1
	vs := Strict(strictjson.FromTree(doc))
	if len(vs) != schemas.MaxViolations {
		t.Errorf("%d violations, want the limit of %d", len(vs), schemas.MaxViolations)
	}
	errors := 0
	for _, v := range vs {
		if v.Level == schemas.LevelError {
			errors++
		}
	}
	if !schemas.HasErrors(vs) || errors != 2 {
		t.Errorf("%d errors survive, want 2", errors)
	}
	if schemas.HasErrors([]schemas.Violation{{Level: schemas.LevelWarning}}) || schemas.HasErrors(nil) {
		t.Error("a warning is no error")
	}
}

// TestHostileDocuments: none of these may panic, take long or get a long
// answer. The first one makes the library panic.
func TestHostileDocuments(t *testing.T) {
	many := make([]any, 200_000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	wide := map[string]any{}
	for i := range 50_000 {
		wide[fmt.Sprintf("key%d/%s", i, strings.Repeat("~", 100))] = "x"
	}
	for name, over := range map[string]map[string]any{
		"huge exponent":     schematest.Parse(t, `{"sequence_number":0e99999999999999999999}`),
		"not a number":      {"sequence_number": json.Number("1e999")},
		"not even a number": {"sequence_number": json.Number("x")},
		"foreign Go type":   {"sequence_number": 7, "producer": struct{}{}},
		"many items":        {"tools_available": many, "localization_hints": map[string]any{"available_languages": many}},
		"wide":              {"producer": wide, "extensions": wide, "localization_hints": wide},
	} {
		t.Run(name, func(t *testing.T) {
			doc := schematest.Edit(t, stateChanged, `{"type":"aaep:agent.session.started","summary_normal":"x"}`)
			for k, v := range over {
				doc[k] = v
			}
			first := Strict(strictjson.FromTree(doc))
			if len(first) > schemas.MaxViolations {
				t.Errorf("%d violations", len(first))
			}
			for _, v := range first {
				if len(v.Path) > 3*64 {
					t.Errorf("a path of %d bytes", len(v.Path))
				}
			}
			if d := cmp.Diff(first, Strict(strictjson.FromTree(doc))); d != "" {
				t.Errorf("the answer changes: %s", d)
			}
			if huge := name == "huge exponent"; huge == schemas.HasErrors(validate(strictjson.FromTree(doc))) {
				t.Errorf("verdict of the schema: %v", first)
			}
		})
	}
}

// TestUpstreamFixtures expects the rule that each published fixture breaks.
func TestUpstreamFixtures(t *testing.T) {
	root := schematest.Upstream(t)
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

// TestValidCostsNothing: the correlator judges every message.
func TestValidCostsNothing(t *testing.T) {
	message := schematest.Message(t, "aaep")
	if vs := Strict(message); vs != nil {
		t.Error(vs)
	}
	if n := testing.AllocsPerRun(100, func() { Strict(message) }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestCoreEvents(t *testing.T) {
	if n := len(coreSchemas()); n != 12 {
		t.Errorf("%d core events, want 12: %v", n, coreSchemas())
	}
}

func TestNoValueIsQuoted(t *testing.T) {
	schematest.NoValueIsQuoted(t, folder, func(_ string, document strictjson.Value) string { return fmt.Sprintf("%+v", Strict(document)) })
}

func BenchmarkStrict(b *testing.B) {
	message := schematest.Message(b, "aaep")
	b.ReportAllocs()
	for b.Loop() {
		if vs := Strict(message); vs != nil {
			b.Fatal(vs)
		}
	}
}
