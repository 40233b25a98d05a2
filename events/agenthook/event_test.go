package agenthook_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func decode(t testing.TB, doc string) *agenthook.Event {
	t.Helper()
	e, err := agenthook.Decode([]byte(doc), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// full has every field and every block that the model knows, and members that
// it does not know.
const full = `{
 "schema_version": 1, "event_id": "0B9E7A60-0B1C-4C5E-9D55-0D8A3C7BE001", "event_type": "PostToolUse",
 "timestamp": "2026-11-20T07:41:50.125+01:00", "source": "rt-a", "agent_id": "agent-7", "session_id": "s 1",
 "correlation_id": "corr", "evidence_phase": "post_hoc", "tool_name": "send", "tool_input": {"to": "x", "n": 1.0},
 "action": "send", "resource_kind": "email", "resource": {"b": 1, "a": "x"}, "resource_scope": "remote", "operation_risk": "external_transfer",
 "annotations": {"bus": {"x": 1}}, "x_unknown": [1],
 "metadata": {
  "tool_call_id": "call/1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "duration_ms": 7, "exit_code": 3,
  "tool_input_executed": {"n": 1, "to": "x"}, "x_other": {"y": null},
  "admission_verdict": {"verdict": "ask", "reason": "r", "subscriber": "countersign", "claim_reference": "c", "policy_id": "p", "decided_at": "2026-11-20T06:41:49Z"},
  "approval": {"required": true, "status": "approved", "workflow_id": "wf", "action_id": "act", "department": "d", "reviewer_ref": "group:x",
   "requested_at": "t1", "decided_at": "t2", "expires_at": "t3", "resume_policy": "publisher_waits", "decision_ref": "dr", "approval_url": "https://x"},
  "tool_identity": {"canonical_name": "email.send", "provider_name": "send", "source": "mcp_tools_call", "schema_hash": "sha256:1A"},
  "provider_translation": {"provider_surface": "mcp_tools_call", "model_facing_tool": "m", "provider": "pr", "adapter_version": "1", "schema_hash": "sha256:2"},
  "risk": {"risk_class": "external_side_effect", "requires_human_approval": true, "data_exfiltration_risk": "low", "writes_external_system": true, "idempotent": false, "contains_secret": false},
  "validation": {"status": "passed", "validator": "v", "schema_hash": "sha256:3"},
  "redaction": {"applied": true, "fields": ["tool_input.body", "/metadata/x"], "policy_id": "rp"},
  "retry": {"attempt": 2, "previous_tool_call_id": "call/0", "reason": "timeout"},
  "execution": {"outcome": "succeeded", "started_at": "t4", "completed_at": "t5", "duration_ms": 431, "exit_code": 0, "result_ref": "rr", "result_hash": "sha256:4", "mutation_reason": "mr"}
 }}`

func ptr[T any](v T) *T { return &v }

func TestDecodeReadsEverything(t *testing.T) {
	e := decode(t, full)
	envelope := map[string]any{
		"EventID": e.EventID, "EventType": e.EventType, "Timestamp": e.Timestamp, "Source": e.Source, "AgentID": e.AgentID,
		"SessionID": e.SessionID, "CorrelationID": e.CorrelationID, "EvidencePhase": e.EvidencePhase, "ToolName": e.ToolName,
		"Action": e.Action, "ResourceKind": e.ResourceKind, "ResourceScope": e.ResourceScope, "OperationRisk": e.OperationRisk,
		"Resource": e.Resource, "ToolCallID": e.ToolCallID(), "Trace": e.Trace(),
		"DurationMS": *e.DurationMS(), "RedactedFields": e.RedactedFields(),
	}
	want := map[string]any{
		"EventID": "0b9e7a60-0b1c-4c5e-9d55-0d8a3c7be001", "EventType": "PostToolUse", "Timestamp": "2026-11-20T07:41:50.125+01:00",
		"Source": "rt-a", "AgentID": "agent-7", "SessionID": "s 1", "CorrelationID": "corr", "EvidencePhase": "post_hoc", "ToolName": "send",
		"Action": "send", "ResourceKind": "email", "ResourceScope": "remote", "OperationRisk": "external_transfer",
		"Resource": `{"a":"x","b":1}`, "ToolCallID": "call/1", "Trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"DurationMS": int64(431), "RedactedFields": []string{"tool_input.body", "/metadata/x"},
	}
	if d := cmp.Diff(want, envelope); d != "" {
		t.Error(d)
	}
	if !e.Time.Equal(time.Date(2026, 11, 20, 6, 41, 50, 125_000_000, time.UTC)) {
		t.Errorf("Time: %s", e.Time)
	}
	if string(e.Raw) != full {
		t.Error("Raw is not what was decoded")
	}
	whole, err := strictjson.Parse([]byte(full), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole, any(e.Tree())); d != "" {
		t.Errorf("the tree is not the document:\n%s", d)
	}
}

func TestEventID(t *testing.T) {
	for in, want := range map[string]string{
		"0B9E7A60-0B1C-4C5E-9D55-0D8A3C7BE001":          "0b9e7a60-0b1c-4c5e-9d55-0d8a3c7be001",
		"urn:uuid:0B9E7A60-0B1C-4C5E-9D55-0D8A3C7BE001": "urn:uuid:0B9E7A60-0B1C-4C5E-9D55-0D8A3C7BE001",
		"0B9E7A600B1C4C5E9D550D8A3C7BE001":              "0B9E7A600B1C4C5E9D550D8A3C7BE001",
		"Not-A-UUID":                                    "Not-A-UUID",
		"0G9E7A60-0B1C-4C5E-9D55-0D8A3C7BE001":          "0G9E7A60-0B1C-4C5E-9D55-0D8A3C7BE001",
	} {
		e := decode(t, `{"event_id":"`+in+`"}`)
		if e.EventID != want || e.Tree()["event_id"] != in {
			t.Errorf("%s: %s, in the tree %v", in, e.EventID, e.Tree()["event_id"])
		}
	}
}

func TestDecodeIsCaseExact(t *testing.T) {
	e := decode(t, `{"Tool_Name":"secretTool","EVENT_TYPE":"PreToolUse","metadata":{"Tool_call_id":"c","Risk":{"risk_class":"x"}}}`)
	if e.ToolName != "" || e.EventType != "" || e.ToolCallID() != "" || e.Risk != nil {
		t.Errorf("%+v", e)
	}
}

func TestUnknownTypesAndFieldsSurvive(t *testing.T) {
	e := decode(t, `{"event_type":"QuantumLeapObserved","brand_new":{"a":[1,null]},"metadata":{"web":{"url":"https://x"},"tool_call_id":"c"}}`)
	if e.EventType != "QuantumLeapObserved" || e.ToolCallID() != "c" || !e.Doc.Get("brand_new").Exists() || !e.Metadata.Get("web").Exists() {
		t.Errorf("%+v", e)
	}
}

func TestWrongTypes(t *testing.T) {
	tests := []struct{ doc, path string }{
		{`{"event_id":7}`, "/event_id"},
		{`{"event_type":null}`, "/event_type"},
		{`{"timestamp":1700000000}`, "/timestamp"},
		{`{"source":[]}`, "/source"},
		{`{"agent_id":{}}`, "/agent_id"},
		{`{"session_id":true}`, "/session_id"},
		{`{"correlation_id":1}`, "/correlation_id"},
		{`{"evidence_phase":1}`, "/evidence_phase"},
		{`{"tool_name":["a"]}`, "/tool_name"},
		{`{"tool_input":"{}"}`, "/tool_input"},
		{`{"tool_input":null}`, "/tool_input"},
		{`{"tool_input":[]}`, "/tool_input"},
		{`{"action":1}`, "/action"},
		{`{"resource_kind":1}`, "/resource_kind"},
		{`{"resource_scope":1}`, "/resource_scope"},
		{`{"operation_risk":1}`, "/operation_risk"},
		{`{"resource":1}`, "/resource"},
		{`{"resource":null}`, "/resource"},
		{`{"resource":["a"]}`, "/resource"},
		{`{"metadata":[]}`, "/metadata"},
		{`{"annotations":""}`, "/annotations"},
		{`{"metadata":{"tool_call_id":1}}`, "/metadata/tool_call_id"},
		{`{"metadata":{"traceparent":{}}}`, "/metadata/traceparent"},
		{`{"metadata":{"tool_input_executed":[]}}`, "/metadata/tool_input_executed"},
		{`{"metadata":{"duration_ms":"1"}}`, "/metadata/duration_ms"},
		{`{"metadata":{"exit_code":0.5}}`, "/metadata/exit_code"},
		{`{"metadata":{"admission_verdict":"allow"}}`, "/metadata/admission_verdict"},
		{`{"metadata":{"admission_verdict":{"verdict":true}}}`, "/metadata/admission_verdict/verdict"},
		{`{"metadata":{"approval":{"required":"yes"}}}`, "/metadata/approval/required"},
		{`{"metadata":{"tool_identity":{"schema_hash":1}}}`, "/metadata/tool_identity/schema_hash"},
		{`{"metadata":{"provider_translation":{"provider":1}}}`, "/metadata/provider_translation/provider"},
		{`{"metadata":{"risk":"high"}}`, "/metadata/risk"},
		{`{"metadata":{"risk":{"idempotent":1}}}`, "/metadata/risk/idempotent"},
		{`{"metadata":{"validation":{"status":1}}}`, "/metadata/validation/status"},
		{`{"metadata":{"redaction":{"fields":"a"}}}`, "/metadata/redaction/fields"},
		{`{"metadata":{"redaction":{"fields":["a",1]}}}`, "/metadata/redaction/fields/1"},
		{`{"metadata":{"retry":{"attempt":"2"}}}`, "/metadata/retry/attempt"},
		{`{"metadata":{"execution":{"outcome":1}}}`, "/metadata/execution/outcome"},
		{`{"metadata":{"execution":null}}`, "/metadata/execution"},
		{`{"metadata":{"fail_mode_triggered":"true"}}`, "/metadata/fail_mode_triggered"},
		{`{"source":1,"metadata":{"risk":1}}`, "/source"}, // the first one, in the envelope's order
	}
	for _, tt := range tests {
		e, err := agenthook.Decode([]byte(tt.doc), strictjson.DefaultLimits)
		var fe *agenthook.FieldError
		if !errors.As(err, &fe) || fe.Path != tt.path || fe.Want == "" {
			t.Errorf("%s: %v, want %s", tt.doc, err, tt.path)
		}
		if e == nil || !e.Doc.Exists() || string(e.Raw) != tt.doc {
			t.Errorf("%s: the event is lost", tt.doc)
		}
	}
}

// An event with one bad field still names what it is about.
func TestBadFieldLosesNothingElse(t *testing.T) {
	doc := strings.Replace(full, `"session_id": "s 1"`, `"session_id": 4242`, 1)
	e, err := agenthook.Decode([]byte(doc), strictjson.DefaultLimits)
	if err == nil || strings.Contains(err.Error(), "4242") {
		t.Fatalf("error %v", err)
	}
	x := e.Execution
	if e.SessionID != "" || e.Source != "rt-a" || e.ToolCallID() != "call/1" || x == nil || x.Outcome != "succeeded" {
		t.Errorf("%+v", e)
	}
}

func TestNotJSON(t *testing.T) {
	for _, doc := range []string{``, `[]`, `{"a":1,"A":2}`, `{} {}`, `{"metadata":{"tool_call_id":"a","tool_call_id":"b"}}`} {
		e, err := agenthook.Decode([]byte(doc), strictjson.DefaultLimits)
		var se *strictjson.Error
		if !errors.As(err, &se) || e != nil {
			t.Errorf("%s: %v, %v", doc, e, err)
		}
	}
	if _, err := agenthook.Decode([]byte(full), strictjson.Limits{MaxBytes: 10}); err == nil {
		t.Error("limits are ignored")
	}
}

func TestInputCanonical(t *testing.T) {
	tests := []struct {
		name, doc, want string
	}{
		{"sorted and normalised", `{"tool_input":{"b":1.0,"a":"\u0041"}}`, `{"a":"A","b":1}`},
		{"empty", `{"tool_input":{}}`, `{}`},
		{"absent", `{}`, ``},
	}
	for _, tt := range tests {
		got := decode(t, tt.doc).InputCanonical()
		if string(got) != tt.want || (got == nil) != (tt.want == "") {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}
