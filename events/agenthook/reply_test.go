package agenthook_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func TestReplyGolden(t *testing.T) {
	r := agenthook.Reply{
		EventID: "0b9e7a60-0b1c-4c5e-9d55-0d8a3c7be001", Decision: "ask", Reason: "large_transfer", AgentID: "agent-7",
		Metadata: agenthook.ReplyMetadata{
			AdmissionVerdict: &agenthook.AdmissionVerdict{Verdict: "ask", Reason: "large_transfer", PolicyID: "payments/large",
				Subscriber: "countersign", DecidedAt: "2026-11-20T06:41:50.000000000Z"},
			Approval: &agenthook.Approval{Required: ptr(true), Status: "pending", WorkflowID: "wf-1", ResumePolicy: "retry_same_event"},
		},
	}
	const want = `{"agent_id":"agent-7","decision":"ask","event_id":"0b9e7a60-0b1c-4c5e-9d55-0d8a3c7be001","metadata":{` +
		`"admission_verdict":{"decided_at":"2026-11-20T06:41:50.000000000Z","policy_id":"payments/large","reason":"large_transfer",` +
		`"subscriber":"countersign","verdict":"ask"},` +
		`"approval":{"required":true,"resume_policy":"retry_same_event","status":"pending","workflow_id":"wf-1"}},"reason":"large_transfer"}`
	b, err := events.Encode(r)
	if err != nil || string(b) != want {
		t.Fatalf("got\n%s, %v, want\n%s", b, err, want)
	}
	back, err := agenthook.ParseReply(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, back); d != "" {
		t.Error(d)
	}
	b, err = events.Encode(agenthook.Reply{EventID: "e", Decision: "deny", Reason: "no_policy"})
	if err != nil || string(b) != `{"decision":"deny","event_id":"e","reason":"no_policy"}` {
		t.Errorf("%s, %v", b, err)
	}
}

func TestParseReply(t *testing.T) {
	tests := []struct{ name, doc, decision, path string }{
		{"decision", `{"decision":"allow"}`, "allow", ""},
		{"verdict as alias", `{"verdict":"ask","extra":1}`, "ask", ""},
		{"both, the same", `{"decision":"deny","verdict":"deny"}`, "deny", ""},
		{"both, not the same", `{"decision":"allow","verdict":"deny"}`, "", "/verdict"},
		{"neither", `{}`, "", ""},
		{"other case is another field", `{"Decision":"allow"}`, "", ""},
		{"not one of the three", `{"decision":"maybe"}`, "maybe", ""}, // for the caller to take as deny
		{"wrong type", `{"decision":true}`, "", "/decision"},
		{"wrong type of the alias", `{"decision":"allow","verdict":1}`, "", "/verdict"},
		{"wrong type below", `{"decision":"allow","metadata":{"approval":{"required":1}}}`, "", "/metadata/approval/required"},
	}
	for _, tt := range tests {
		r, err := agenthook.ParseReply([]byte(tt.doc))
		var fe *agenthook.FieldError
		if got := errors.As(err, &fe); got != (tt.path != "") || got && fe.Path != tt.path {
			t.Errorf("%s: %v, want an error at %q", tt.name, err, tt.path)
		}
		if r.Decision != tt.decision {
			t.Errorf("%s: %q, want %q", tt.name, r.Decision, tt.decision)
		}
	}
	for _, doc := range []string{``, `[]`, `{"decision":"deny","decision":"allow"}`, `{"decision":"deny","Decision":"allow"}`} {
		r, err := agenthook.ParseReply([]byte(doc))
		var se *strictjson.Error
		if !errors.As(err, &se) || r.Decision != "" {
			t.Errorf("%s: %+v, %v", doc, r, err)
		}
	}
	if _, err := agenthook.ParseReply([]byte(`{"reason":"` + strings.Repeat("x", 2<<20) + `"}`)); err == nil {
		t.Error("a reply of 2 MiB was accepted")
	}
}
