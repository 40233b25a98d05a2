package build_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

// governedEvent is an event with what the action-governance profile adds, and an address in its arguments.
const governedEvent = `{"schema_version":1,"event_id":"e-1","event_type":"PreToolUse","timestamp":"2026-11-20T00:00:00Z","source":"mail-agent","session_id":"s-1","tool_name":"send_email",` +
	`"action":"send","resource_kind":"email","resource":"outbox","operation_risk":"write","tool_input":{"to":"dana@acme.example"},"metadata":{"tool_call_id":"call-1",` +
	`"tool_identity":{"canonical_name":"email.send_message","provider_name":"send_mail","source":"mcp_tools_call"},"risk":{"risk_class":"external_side_effect","idempotent":false},` +
	`"provider_translation":{"provider_surface":"mcp_tools_call","model_facing_tool":"send_mail","provider":"smtp","adapter_version":"1.4.2"},"redaction":{"applied":false,"fields":[]}}}`

func BenchmarkBuild(b *testing.B) {
	const sprinkled = "AKIA sk- ghp_ xoxb- eyJ password token secret api_key bearer of basic x -----BEGIN x ://a key=1 "
	for _, bc := range []struct {
		name string
		body []byte
	}{
		{"600B", evidencetest.Sized(evidencetest.PlainEvent, evidencetest.CleanText, 600)},
		{"1800B", evidencetest.Sized(evidencetest.PlainEvent, evidencetest.CleanText, 1800)},
		{"1800B_sprinkled", evidencetest.Sized(evidencetest.PlainEvent, sprinkled, 1800)},
		{"64K", evidencetest.Sized(evidencetest.PlainEvent, evidencetest.CleanText, 64<<10)},
		{"64K_sprinkled", evidencetest.Sized(evidencetest.PlainEvent, sprinkled, 64<<10)},
		{"64K_hostile", evidencetest.Sized(evidencetest.PlainEvent, "keY=keY=pw:key=", 64<<10)},
		{"600B_redacted", evidencetest.Sized(evidencetest.SecretEvent, evidencetest.CleanText, 600)},
		{"1800B_one_address", evidencetest.Sized(governedEvent, evidencetest.CleanText, 1800)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			f := evidencetest.New(b)
			m := events.LogMessage{Seq: 7, Time: evidencetest.Start, Subject: evidencetest.EventSubject, Body: bc.body, Header: map[string][]string{"ce-id": {"1"}, "ce-type": {"x"}}}
			b.SetBytes(int64(len(bc.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Builder.Build(m, evidence.Head{Index: 3}, f.Keys); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// What it costs to look for credentials in our own records.
func BenchmarkBuildDecision(b *testing.B) {
	f := evidencetest.New(b)
	body := f.Encode(events.Decision{DecisionID: "0199a000-0000-7000-8000-000000000001", EventID: "evt_b8c4e9a2f5d1a8c4", Tenant: "acme", Protocol: "agenthook", Source: "runtime-1",
		Agent: "agent-7", Session: "sess-a", ToolCallID: "call_3f8d", Tool: "write_file", Action: "write", ResourceKind: "file", ArgsDigest: evidencetest.DigestOf("sess-a", "a"),
		RequestDigest: evidencetest.DigestOf("sess-a", "r"), Verdict: events.Allow, NativeVerdict: "allow", Reasons: []events.Reason{{Evaluator: "tool_policy", Code: "rule", Policy: "files/workspace"}},
		Policy: &events.PolicyRef{Name: "files", Revision: 7, Digest: "sha256:" + strings.Repeat("ab", 32)}, DecidedAt: events.At(evidencetest.Start), ReceivedAt: events.At(evidencetest.Start),
		ReceiptHash: "sha256:" + strings.Repeat("0c", 32), Durability: "fsync"})
	signed, err := f.Receipt.SignRecords([][]byte{body})
	evidencetest.Must(b, err)
	m := events.LogMessage{Seq: 7, Time: evidencetest.Start, Subject: "gov.decisions.acme.allow.sess-a", Body: body, Header: map[string][]string{events.HeaderSignature: {signed[0]}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Builder.Build(m, evidence.Head{Index: 3}, f.Keys); err != nil {
			b.Fatal(err)
		}
	}
}
