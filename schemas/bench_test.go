package schemas

import (
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
)

const benchAAEP = `{"@context":"https://aaep-protocol.org/context/v1","aaep_version":"1.0.0","type":"aaep:agent.tool.invoked",
"event_id":"evt_5b1fd0c2a97e4438","session_id":"sess_c0ffee1234567890","sequence_number":7,"timestamp":"2026-11-20T08:15:30.250Z",
"producer":{"agent_id":"ledger-helper","agent_version":"2.3.1","agent_name":"Ledger Helper"},"urgency":"normal",
"tool":"lookup_invoice","tool_call_id":"call_00af31","args_summary":"invoice 2026-0417","summary_normal":"Looking up the invoice.",
"expected_duration_ms":1500,"risk_level":"low","irreversible":false,"localization_hints":{"primary_language":"en-GB"}}`

const benchProfile = `{"schema_version":1,"event_id":"7d3b2f60-7a0e-4a57-9b59-0d4f1f6f3c11","event_type":"PreToolUse","timestamp":"2026-11-20T08:15:30Z",
"source":"ledger-runtime","agent_id":"agent-17","session_id":"run-2026-11-20-0815","evidence_phase":"pre_commit","tool_name":"post_payment",
"tool_input":{"iban":"DE00 0000 0000 0000 0000 00","amount":"120.50","currency":"EUR","purpose_ref":"evidence://inputs/call-77/purpose"},
"action":"send","resource_kind":"database","resource":{"name":"ledger","table":"payments"},"resource_scope":"remote","operation_risk":"external_transfer",
"metadata":{"tool_call_id":"call-77","tool_identity":{"canonical_name":"ledger.post_payment","provider_name":"post_payment","source":"mcp_tools_call",
"schema_hash":"sha256:abababababababababababababababababababababababababababababababab"},
"provider_translation":{"model_facing_tool":"post_payment","provider":"example","provider_surface":"mcp_tools_call","adapter_version":"3.1",
"schema_hash":"sha256:abababababababababababababababababababababababababababababababab"},
"risk":{"risk_class":"external_side_effect","requires_human_approval":true,"data_exfiltration_risk":"low","writes_external_system":true,"idempotent":false,"contains_secret":false},
"validation":{"status":"passed","validator":"runtime","schema_hash":"sha256:abababababababababababababababababababababababababababababababab"},
"redaction":{"applied":true,"fields":["tool_input.purpose"],"policy_id":"redact-purpose-v2"},
"admission_verdict":{"verdict":"ask","policy_id":"payments-v4","subscriber":"countersign","reason":"needs_approval","decided_at":"2026-11-20T08:15:30.120Z"},
"approval":{"required":true,"status":"pending","workflow_id":"wf-5512","action_id":"call-77","requested_at":"2026-11-20T08:15:30.120Z","resume_policy":"retry_same_event"}}}`

func parse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	tree, err := strictjson.ParseObject([]byte(text), strictjson.DefaultLimits)
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

func BenchmarkValidate(b *testing.B) {
	compiled := libraries(b)
	for _, bm := range []struct{ label, schema, text string }{
		{"aaep", "aaep/agent.tool.invoked", benchAAEP},
		{"agenthook", "agenthook/envelope", benchProfile},
		{"profile", "agenthook/action-governance.evidence", benchProfile},
	} {
		var doc strictjson.Document
		value, err := doc.Parse([]byte(bm.text), strictjson.DefaultLimits)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(bm.label, func(b *testing.B) {
			r := Default()
			b.ReportAllocs()
			b.SetBytes(int64(len(bm.text)))
			for b.Loop() {
				if vs := r.Validate(bm.schema, value); vs != nil {
					b.Fatal(vs)
				}
			}
		})
		library, tree := compiled[bm.schema], value.Tree()
		b.Run(bm.label+"/library", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bm.text)))
			for b.Loop() {
				if err := library.Validate(tree); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// libraries are the schemas as the library compiled them: the oracle.
func libraries(tb testing.TB) map[string]*librarySchema {
	tb.Helper()
	sources, err := readSources(protocols)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := newLibrary(sources)
	if err != nil {
		tb.Fatal(err)
	}
	compiled := map[string]*librarySchema{}
	for name := range sources {
		if compiled[name], err = c.Compile(Base + name + "/v1"); err != nil {
			tb.Fatal(err)
		}
	}
	return compiled
}

func BenchmarkStrict(b *testing.B) {
	for _, bm := range []struct {
		label, text string
		validate    func(strictjson.Value) []Violation
	}{{"aaep", benchAAEP, StrictAAEP}, {"agenthook", benchProfile, StrictAgentHook}} {
		var doc strictjson.Document
		value, err := doc.Parse([]byte(bm.text), strictjson.DefaultLimits)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(bm.label, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if vs := bm.validate(value); vs != nil {
					b.Fatal(vs)
				}
			}
		})
	}
}
