package aaep_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

func decode(t testing.TB, doc string) *aaep.Event {
	t.Helper()
	e, err := aaep.Decode([]byte(doc), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func ptr[T any](v T) *T { return &v }

// event makes an event of a type with a whole envelope; fields begins with a
// comma or is empty.
func event(typ, fields string) string {
	return `{"@context":["https://aaep-protocol.org/context/v1","https://example.test/ctx"],"type":"` + typ + `","event_id":"evt_1","session_id":"sess_1",` +
		`"timestamp":"2026-11-20T07:41:50.125+01:00","producer":{"agent_id":"a","agent_version":"1"},"aaep_version":"1.0.0","sequence_number":3,` +
		`"urgency":"critical","correlation_id":"c","localization_hints":{"primary_language":"yo"},` +
		`"extensions":{"medai":{"x":[1]}},"x_unknown":{"y":null},"summary_normal":"N"` + fields + `}`
}

func TestEnvelope(t *testing.T) {
	doc := event("aaep:agent.session.started", "")
	e := decode(t, doc)
	want := &aaep.Event{
		Type: "aaep:agent.session.started", TypeAsSent: "aaep:agent.session.started", EventID: "evt_1", SessionID: "sess_1",
		Timestamp: "2026-11-20T07:41:50.125+01:00", Time: e.Time,
		Producer:       aaep.Producer{AgentID: "a", AgentVersion: "1"},
		SequenceNumber: ptr(int64(3)), Urgency: "critical", Language: "yo", CorrelationID: "c",
		Extensions: map[string]map[string]any{"medai": e.Extensions["medai"]},
		Payload:    &aaep.SessionStarted{},
		Raw:        []byte(doc),
	}
	if d := cmp.Diff(want, e, cmpopts.IgnoreTypes(strictjson.Value{})); d != "" {
		t.Error(d)
	}
	if !e.Time.Equal(time.Date(2026, 11, 20, 6, 41, 50, 125_000_000, time.UTC)) {
		t.Errorf("Time: %s", e.Time)
	}
	whole, err := strictjson.Parse([]byte(doc), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole, any(e.Tree())); d != "" {
		t.Errorf("the tree is not the document:\n%s", d)
	}
}

func TestPayloads(t *testing.T) {
	tests := []struct {
		local, fields string
		want          any
	}{
		{"session.started", `,"tools_available":["a","b"]`, &aaep.SessionStarted{ToolsAvailable: []string{"a", "b"}}},
		{"session.completed", `,"duration_ms":0,"tool_invocations_count":2`,
			&aaep.SessionCompleted{DurationMS: ptr(int64(0)), ToolInvocationsCount: ptr(int64(2))}},
		{"session.errored", `,"error_category":"transient"`, &aaep.SessionErrored{}},
		{"session.cancelled", `,"cancelled_by":"user"`, &aaep.SessionCancelled{}},
		{"state.changed", `,"from_state":"idle","to_state":"thinking"`, &aaep.StateChanged{Summary: "N", FromState: "idle", ToState: "thinking"}},
		{"progress.updated", `,"progress":{"percent":12.5}`, &aaep.ProgressUpdated{Summary: "N"}},
		{"tool.invoked", `,"tool":"t","tool_call_id":"call_1","expected_duration_ms":7,"risk_level":"high","irreversible":true`,
			&aaep.ToolInvoked{Tool: "t", ToolCallID: "call_1", ExpectedDurationMS: ptr(int64(7)), RiskLevel: "high", Irreversible: ptr(true)}},
		{"tool.completed", `,"tool":"t","tool_call_id":"call_1","status":"error","duration_ms":8,"error_message":"e"`,
			&aaep.ToolCompleted{Summary: "N", Tool: "t", ToolCallID: "call_1", Status: "error", DurationMS: ptr(int64(8)), ErrorMessage: "e"}},
		{"output.streaming", `,"chunk":"ọ̀","position":0,"complete":false,"output_id":"out_1","language":"yo"`,
			&aaep.OutputStreaming{Chunk: "ọ̀", Position: ptr(int64(0)), Complete: ptr(false), OutputID: "out_1", Language: "yo"}},
		{"awaiting.confirmation", `,"action":"a","reply_token":"rpl_1","timeout_seconds":60,"default_decision":"reject","risk_level":"high",` +
			`"irreversible":false,"reversibility":"reversible","allowed_replies":["accept"],"extra_context":{"k":1}`,
			&aaep.AwaitingConfirmation{Summary: "N", Action: "a", ReplyToken: "rpl_1", TimeoutSeconds: ptr(int64(60)), DefaultDecision: "reject",
				RiskLevel: "high", Irreversible: ptr(false), Reversibility: "reversible", AllowedReplies: []string{"accept"}, ExtraContext: decode(t, `{"x":{"k":1}}`).Tree()["x"].(map[string]any)}},
		{"awaiting.clarification", `,"reply_token":"rpl_2","timeout_seconds":30,"accepted_response_kinds":["multiple_choice"],` +
			`"choices":[{"value":"v","label":"l"},{"value":"w"}],"default_response":""`,
			&aaep.AwaitingClarification{Summary: "N", ReplyToken: "rpl_2", TimeoutSeconds: ptr(int64(30)), AcceptedResponseKinds: []string{"multiple_choice"},
				Choices: []string{"v", "w"}, DefaultResponse: ptr("")}},
		{"handoff.requested", `,"reason":"r"`, &aaep.HandoffRequested{Summary: "N"}},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		for _, prefix := range []string{"aaep:agent.", "https://aaep-protocol.org/types/agent."} {
			t.Run(prefix+tt.local, func(t *testing.T) {
				e := decode(t, event(prefix+tt.local, tt.fields))
				if d := cmp.Diff(tt.want, e.Payload); d != "" {
					t.Error(d)
				}
				if e.Type != "aaep:agent."+tt.local || e.TypeAsSent != prefix+tt.local || e.SubjectType() != "agent."+tt.local || e.IsReply() {
					t.Errorf("type %s, as sent %s, in the subject %s", e.Type, e.TypeAsSent, e.SubjectType())
				}
				if want := strings.HasPrefix(tt.local, "session.") && tt.local != "session.started"; e.IsTerminal() != want {
					t.Errorf("terminal: %v", e.IsTerminal())
				}
				if tool := strings.HasPrefix(tt.local, "tool."); (e.Tool() == "t") != tool || (e.ToolCallID() == "call_1") != tool {
					t.Errorf("tool %q, call %q", e.Tool(), e.ToolCallID())
				}
				seen[e.Type] = true
			})
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d core types are tested", len(seen))
	}
}

func TestAbsentFieldsAreNil(t *testing.T) {
	for typ, want := range map[string]any{
		aaep.TypeToolInvoked:           &aaep.ToolInvoked{},
		aaep.TypeToolCompleted:         &aaep.ToolCompleted{},
		aaep.TypeProgressUpdated:       &aaep.ProgressUpdated{},
		aaep.TypeAwaitingClarification: &aaep.AwaitingClarification{},
		aaep.TypeAwaitingConfirmation:  &aaep.AwaitingConfirmation{},
		aaep.TypeConfirmationReply:     &aaep.ConfirmationReply{},
		aaep.TypeClarificationReply:    &aaep.ClarificationReply{},
	} {
		e := decode(t, `{"type":"`+typ+`"}`)
		if d := cmp.Diff(want, e.Payload); d != "" {
			t.Errorf("%s: %s", typ, d)
		}
		if e.SequenceNumber != nil || e.Extensions != nil {
			t.Errorf("%s: %+v", typ, e)
		}
	}
}

func TestReplies(t *testing.T) {
	e := decode(t, `{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept","subscription_id":"sub_1","timestamp":"2026-11-20T06:41:50.125Z",`+
		`"decided_by":"user:x","modified_action":{"a":true},"correlation_id":"c"}`)
	at := time.Date(2026, 11, 20, 6, 41, 50, 125_000_000, time.UTC)
	want := &aaep.ConfirmationReply{ReplyToken: "rpl_1", Decision: "accept", SubscriptionID: "sub_1", Timestamp: "2026-11-20T06:41:50.125Z", Time: at,
		DecidedBy: "user:x", ModifiedAction: map[string]any{"a": true}, CorrelationID: "c"}
	if d := cmp.Diff(want, e.Payload); d != "" {
		t.Error(d)
	}
	if !e.IsReply() || e.SubjectType() != "confirmation.reply" || e.Timestamp != "" || e.CorrelationID != "" || !e.Time.IsZero() || e.IsTerminal() {
		t.Errorf("a reply has no envelope: %+v", e)
	}
	for response, want := range map[string][2]string{
		`"67"`: {"67", "string"}, `""`: {"", "string"}, `true`: {"true", "boolean"}, `false`: {"false", "boolean"},
		`1200`: {"1200", "number"}, `1200.0`: {"1200", "number"}, `1.2e3`: {"1200", "number"},
	} {
		e := decode(t, `{"type":"clarification.reply","reply_token":"rpl_2","response":`+response+`,"subscription_id":"sub_1","timestamp":"x","decided_by":"u"}`)
		want := &aaep.ClarificationReply{ReplyToken: "rpl_2", Response: want[0], ResponseKind: want[1], SubscriptionID: "sub_1", Timestamp: "x", DecidedBy: "u"}
		if d := cmp.Diff(want, e.Payload); d != "" || e.SubjectType() != "clarification.reply" {
			t.Errorf("%s: %s", response, d)
		}
	}
}

func TestForeignTypesSurvive(t *testing.T) {
	tests := []struct{ sent, typ, subject string }{
		{"medai:alert.raised", "medai:alert.raised", "medai:alert.raised"},
		{"https://example.test/types/x", "https://example.test/types/x", "https://example.test/types/x"},
		{"aaep:agent.purple.flamingo", "aaep:agent.purple.flamingo", "agent.purple.flamingo"},
		{"https://aaep-protocol.org/types/agent.purple", "aaep:agent.purple", "agent.purple"},
		// The aaep prefix gives nothing a name that means something in a subject.
		{"aaep:confirmation.reply", "aaep:confirmation.reply", "aaep:confirmation.reply"},
		{"https://aaep-protocol.org/types/confirmation.reply", "aaep:confirmation.reply", "https://aaep-protocol.org/types/confirmation.reply"},
		{"aaep:request", "aaep:request", "aaep:request"},
		{"https://aaep-protocol.org/types/", "https://aaep-protocol.org/types/", "https://aaep-protocol.org/types/"},
		{"AAEP:agent.tool.invoked", "AAEP:agent.tool.invoked", "AAEP:agent.tool.invoked"},
		{"agent.tool.invoked", "agent.tool.invoked", "agent.tool.invoked"},
		{"subscription.request", "subscription.request", "subscription.request"},
		{"", "", ""},
	}
	for _, tt := range tests {
		e := decode(t, event(tt.sent, `,"tool":{"any":"thing"},"tool_call_id":7`))
		if e.Payload != nil || e.Type != tt.typ || e.TypeAsSent != tt.sent || e.SubjectType() != tt.subject || e.IsReply() {
			t.Errorf("%s: %s in the subject %s, payload %T", tt.sent, e.Type, e.SubjectType(), e.Payload)
		}
		if e.SessionID != "sess_1" || !e.Doc.Get("tool").Exists() || e.ToolCallID() != "" {
			t.Errorf("%s: the envelope is lost", tt.sent)
		}
	}
}

func TestWrongTypes(t *testing.T) {
	tests := []struct{ typ, fields, path string }{
		{"", `"type":1`, "/type"},
		{"", `"event_id":1`, "/event_id"},
		{"", `"session_id":null`, "/session_id"},
		{"", `"timestamp":1`, "/timestamp"},
		{"", `"producer":"a"`, "/producer"},
		{"", `"producer":{"agent_id":1}`, "/producer/agent_id"},
		{"", `"sequence_number":"1"`, "/sequence_number"},
		{"", `"sequence_number":1.5`, "/sequence_number"},
		{"", `"urgency":1`, "/urgency"},
		{"", `"correlation_id":1`, "/correlation_id"},
		{"", `"localization_hints":[]`, "/localization_hints"},
		{"", `"localization_hints":{"primary_language":1}`, "/localization_hints/primary_language"},
		{"", `"extensions":[]`, "/extensions"},
		{"", `"extensions":{"a":{},"b":1}`, "/extensions"},
		{aaep.TypeToolCompleted, `"summary_normal":1`, "/summary_normal"},
		{aaep.TypeToolInvoked, `"tool":["x"]`, "/tool"},
		{aaep.TypeToolInvoked, `"irreversible":"false"`, "/irreversible"},
		{aaep.TypeToolInvoked, `"tool_call_id":1`, "/tool_call_id"},
		{aaep.TypeToolCompleted, `"duration_ms":"5"`, "/duration_ms"},
		{aaep.TypeSessionStarted, `"tools_available":["a",null]`, "/tools_available/1"},
		{aaep.TypeOutputStreaming, `"complete":"true"`, "/complete"},
		{aaep.TypeAwaitingConfirmation, `"allowed_replies":"accept"`, "/allowed_replies"},
		{aaep.TypeAwaitingConfirmation, `"timeout_seconds":0.5`, "/timeout_seconds"},
		{aaep.TypeAwaitingClarification, `"choices":{}`, "/choices"},
		{aaep.TypeAwaitingClarification, `"choices":[{"value":"v"},7]`, "/choices/1"},
		{aaep.TypeAwaitingClarification, `"choices":[{"value":7}]`, "/choices/0/value"},
		{aaep.TypeAwaitingClarification, `"default_response":null`, "/default_response"},
		{aaep.TypeConfirmationReply, `"decision":{"decision":1}`, "/decision"},
		{aaep.TypeClarificationReply, `"response":null`, "/response"},
		{aaep.TypeClarificationReply, `"response":[]`, "/response"},
	}
	for _, tt := range tests {
		doc := fmt.Sprintf(`{%s}`, tt.fields)
		if tt.typ != "" {
			doc = fmt.Sprintf(`{"type":%q,%s}`, tt.typ, tt.fields)
		}
		e, err := aaep.Decode([]byte(doc), strictjson.DefaultLimits)
		var fe *aaep.FieldError
		if !errors.As(err, &fe) || fe.Path != tt.path || fe.Want == "" {
			t.Errorf("%s: %v, want %s", doc, err, tt.path)
		}
		if e == nil || !e.Doc.Exists() || string(e.Raw) != doc {
			t.Errorf("%s: the event is lost", doc)
		}
	}
}

func TestBadFieldLosesNothingElse(t *testing.T) {
	e, err := aaep.Decode([]byte(event(aaep.TypeToolInvoked, `,"tool":"t","tool_call_id":"call_1","irreversible":"hunter2"`)), strictjson.DefaultLimits)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("error %v", err)
	}
	if e.SessionID != "sess_1" || e.Tool() != "t" || e.ToolCallID() != "call_1" {
		t.Errorf("%+v", e)
	}
}

func TestNotJSON(t *testing.T) {
	for _, doc := range []string{``, `[]`, `{"type":"a","Type":"b"}`, `{} {}`, `{"producer":{"agent_id":"a","agent_id":"b"}}`} {
		e, err := aaep.Decode([]byte(doc), strictjson.DefaultLimits)
		var se *strictjson.Error
		if !errors.As(err, &se) || e != nil {
			t.Errorf("%s: %v, %v", doc, e, err)
		}
	}
	if _, err := aaep.Decode([]byte(event("x:y", "")), strictjson.Limits{MaxBytes: 10}); err == nil {
		t.Error("limits are ignored")
	}
}
