package agenthook_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events/agenthook"
)

func TestBlocks(t *testing.T) {
	e := decode(t, full)
	got := []any{
		e.AdmissionVerdict, e.Approval, e.ToolIdentity, e.ProviderTranslation,
		e.Risk, e.Validation, e.Redaction, e.Retry, e.Execution,
	}
	want := []any{
		&agenthook.AdmissionVerdict{Verdict: "ask", Reason: "r", Subscriber: "countersign", ClaimReference: "c", PolicyID: "p", DecidedAt: "2026-11-20T06:41:49Z"},
		&agenthook.Approval{Required: ptr(true), Status: "approved", WorkflowID: "wf", ActionID: "act", Department: "d", ReviewerRef: "group:x",
			RequestedAt: "t1", DecidedAt: "t2", ExpiresAt: "t3", ResumePolicy: "publisher_waits", DecisionRef: "dr", ApprovalURL: "https://x"},
		&agenthook.ToolIdentity{CanonicalName: "email.send", ProviderName: "send", Source: "mcp_tools_call", SchemaHash: "sha256:1a"},
		&agenthook.ProviderTranslation{ProviderSurface: "mcp_tools_call", ModelFacingTool: "m", Provider: "pr", AdapterVersion: "1", SchemaHash: "sha256:2"},
		&agenthook.Risk{RiskClass: "external_side_effect", RequiresHumanApproval: ptr(true), DataExfiltrationRisk: "low",
			WritesExternalSystem: ptr(true), Idempotent: ptr(false), ContainsSecret: ptr(false)},
		&agenthook.Validation{Status: "passed", Validator: "v", SchemaHash: "sha256:3"},
		&agenthook.Redaction{Applied: ptr(true), Fields: []string{"tool_input.body", "/metadata/x"}, PolicyID: "rp"},
		&agenthook.Retry{Attempt: ptr(int64(2)), PreviousToolCallID: "call/0", Reason: "timeout"},
		&agenthook.Execution{Outcome: "succeeded", StartedAt: "t4", CompletedAt: "t5", DurationMS: ptr(int64(431)), ExitCode: ptr(int64(0)),
			ResultRef: "rr", ResultHash: "sha256:4", MutationReason: "mr"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, doc := range []string{`{}`, `{"metadata":{}}`} {
		e := decode(t, doc)
		for i, v := range []any{
			e.AdmissionVerdict, e.Approval, e.ToolIdentity, e.ProviderTranslation,
			e.Risk, e.Validation, e.Redaction, e.Retry, e.Execution, e.FailMode,
		} {
			if !reflect.ValueOf(v).IsNil() {
				t.Errorf("%s: block %d is there", doc, i)
			}
		}
	}
}

func TestRedactedFields(t *testing.T) {
	for doc, want := range map[string][]string{
		`{}`: nil,
		`{"metadata":{"redaction":{"applied":false,"fields":["a"]}}}`: nil,
		`{"metadata":{"redaction":{"fields":["a"]}}}`:                 nil,
		`{"metadata":{"redaction":{"applied":true}}}`:                 nil,
		`{"metadata":{"redaction":{"applied":true,"fields":[]}}}`:     {},
		`{"metadata":{"redaction":{"applied":true,"fields":["a"]}}}`:  {"a"},
	} {
		if d := cmp.Diff(want, decode(t, doc).RedactedFields()); d != "" {
			t.Errorf("%s: %s", doc, d)
		}
	}
}

func TestFailMode(t *testing.T) {
	for doc, want := range map[string]*agenthook.FailMode{
		`{"metadata":{"outcome":{"free":"form"}}}`:                                                      nil,
		`{"metadata":{"error_type":"admission_fail_mode","fail_mode_triggered":true,"outcome":"deny"}}`: {Triggered: true, Outcome: "deny"},
		`{"metadata":{"fail_mode_triggered":false}}`:                                                    {},
		`{"metadata":{"error_type":"admission_fail_mode"}}`:                                             {},
		`{"metadata":{"error_type":"other","outcome":"deny"}}`:                                          nil,
	} {
		got := decode(t, doc).FailMode
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", doc, d)
		}
	}
}
