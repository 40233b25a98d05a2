package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
	"github.com/countersign-dev/countersign/streams"
)

const preTime = "2026-11-20T12:00:00Z"

const preEvent = `{"schema_version":1,"event_id":"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f","event_type":"PreToolUse","timestamp":"` + preTime + `",
"source":"agent-x","agent_id":"agent-7","session_id":"s1","evidence_phase":"pre_commit","tool_name":"send_email",
"tool_input":{"to":"dana@acme.example","amount":10},"action":"send","resource_kind":"email","resource":"dana","resource_scope":"public_web","operation_risk":"external_transfer",
"metadata":{"tool_call_id":"c1","tool_identity":{"canonical_name":"mail.send_email","provider_name":"send_email","source":"other"},"risk":{"risk_class":"external_side_effect"}}}`

var preCall = client.Call{Protocol: "agenthook", Body: []byte(preEvent), Tool: "send_email", Session: "s1", ToolCallID: "c1", Arguments: arguments}

// reporting is a client that keeps what it could not report.
func (w *world) reporting(t testing.TB, timeout time.Duration) (*client.Client, chan error) {
	t.Helper()
	nc, err := w.conn("rt1")
	ok(t, err)
	lost := make(chan error, 1024)
	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "rt1", PublicKey: w.publicKey, Timeout: timeout,
		OnUnreported: func(_ []byte, err error) { lost <- err }})
	ok(t, err)
	t.Cleanup(c.Close)
	return c, lost
}

// Every deny that is the client's own is an event on the log, as AgentHook wants
// it (AH-C-073); what is no such deny is none.
func TestFailModeIsReported(t *testing.T) {
	w := start(t, streams.Shard{})
	var answer func(*nats.Msg) *nats.Msg
	header := func(name, value string) func(*grant) { return func(g *grant) { g.header[name] = []string{value} } }
	allow := func(change func(*grant)) func(*nats.Msg) *nats.Msg {
		return func(*nats.Msg) *nats.Msg { return w.allow(change) }
	}
	sent := strings.Replace(preEvent, `"tool_call_id":"c1",`, "", 1)
	for _, c := range []struct {
		name, reason string // no reason: no event
		answer       func(*nats.Msg) *nats.Msg
		call         client.Call
		timeout      time.Duration
	}{
		{name: "nobody listens", reason: client.ReasonNoResponders, call: preCall},
		{name: "nobody answers", reason: client.ReasonTimeout, answer: func(*nats.Msg) *nats.Msg { return nil }, call: preCall, timeout: 20 * time.Millisecond},
		{name: "no verdict", reason: client.ReasonBadReply, answer: allow(header(events.HeaderVerdict, "perhaps")), call: preCall},
		{name: "no receipt", reason: client.ReasonReceiptMissing, answer: allow(header(events.HeaderReceipt, "")), call: preCall},
		{name: "forged receipt", reason: client.ReasonReceiptInvalid, answer: allow(forgedKey), call: preCall},
		{name: "refused without a decision", reason: "overloaded", answer: func(*nats.Msg) *nats.Msg {
			m := nats.NewMsg("")
			m.Header.Set(events.HeaderVerdict, "deny")
			m.Data = []byte(`{"decision":"deny","reason":"overloaded"}`)
			return m
		}, call: preCall},
		{name: "id in the header alone", reason: client.ReasonBadReply, answer: allow(header(events.HeaderVerdict, "x")),
			call: client.Call{Protocol: "agenthook", Body: []byte(sent), Session: "s1", ToolCallID: "c1"}},
		{name: "allowed", answer: allow(nil), call: preCall},
		{name: "denied", answer: allow(func(g *grant) { g.claims.Verdict = events.Deny }), call: preCall},
		{name: "asked", answer: allow(func(g *grant) { g.claims.Verdict = events.Ask }), call: preCall},
		{name: "observational", answer: allow(header(events.HeaderVerdict, "x")), call: client.Call{Protocol: "agenthook", Body: hook(1)}},
		{name: "another protocol", answer: allow(header(events.HeaderVerdict, "x")), call: client.Call{Protocol: "aaep", Body: []byte(preEvent)}},
		{name: "bad arguments", answer: allow(nil), call: client.Call{Protocol: "agenthook", Body: []byte(preEvent), Tool: "send_email",
			Session: "s1", ToolCallID: "c1", Arguments: []byte(`{`)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.answer != nil && answer == nil {
				ok(t, w.answer(func(m *nats.Msg) *nats.Msg { return answer(m) }))
			}
			answer = c.answer
			before := len(w.log(t))
			timeout := testTimeout
			if c.timeout > 0 {
				timeout = c.timeout
			}
			cl, lost := w.reporting(t, timeout)
			v := cl.Admit(t.Context(), c.call)
			if c.reason != "" && (v.Allowed() || v.Reason != c.reason) {
				t.Fatalf("%+v", v)
			}
			ok(t, cl.Flush(t.Context()))
			log := w.log(t)[before:]
			if c.reason == "" {
				if len(log) != 0 {
					t.Errorf("reported: %s", log[0].Body)
				}
				return
			}
			if len(log) != 1 || len(lost) != 0 || cl.UnreportedCount() != 0 {
				t.Fatalf("%d events, %d lost", len(log), len(lost))
			}
			checkReport(t, log[0], c.reason)
		})
	}
}

func checkReport(t *testing.T, m events.LogMessage, reason string) {
	t.Helper()
	var e struct {
		EventID       string `json:"event_id"`
		EventType     string `json:"event_type"`
		Source        string `json:"source"`
		AgentID       string `json:"agent_id"`
		SessionID     string `json:"session_id"`
		CorrelationID string `json:"correlation_id"`
		EvidencePhase string `json:"evidence_phase"`
		ToolName      string `json:"tool_name"`
		Metadata      struct {
			ErrorType  string `json:"error_type"`
			Triggered  bool   `json:"fail_mode_triggered"`
			Outcome    string `json:"outcome"`
			ToolCallID string `json:"tool_call_id"`
			FailMode   string `json:"fail_mode"`
			Reason     string `json:"reason"`
		} `json:"metadata"`
	}
	ok(t, json.Unmarshal(m.Body, &e))
	got := []string{m.Subject, e.EventType, e.Source, e.AgentID, e.SessionID, e.CorrelationID, e.EvidencePhase, e.ToolName,
		e.Metadata.ErrorType, e.Metadata.Outcome, e.Metadata.ToolCallID, e.Metadata.FailMode, e.Metadata.Reason}
	want := []string{"gov.events.acme.rt1.agenthook.s1.ErrorOccurred", "ErrorOccurred", "agent-x", "agent-7", "s1",
		"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f", "post_hoc", "send_email", "admission_fail_mode", "deny", "c1", "fail_closed", reason}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
	if !e.Metadata.Triggered || len(e.EventID) != 36 || e.EventID == e.CorrelationID {
		t.Errorf("%s", m.Body)
	}
	doc, err := strictjson.ReadObject(m.Body, strictjson.DefaultLimits)
	ok(t, err)
	if vs := hookschema.Strict(doc); len(vs) > 0 {
		t.Errorf("not a valid event: %v", vs)
	}
}

// The correlator accepts this: a call whose fail mode fired needs no verdict and no completion
// (AH-C-032, AH-C-079).
func TestFailModeSatisfiesTheCorrelator(t *testing.T) {
	w := start(t, streams.Shard{})
	c, _ := w.reporting(t, testTimeout)
	if v := c.Admit(t.Context(), preCall); v.Reason != client.ReasonNoResponders {
		t.Fatalf("%+v", v)
	}
	ok(t, c.Flush(t.Context()))
	report := json.RawMessage(w.log(t)[0].Body)
	// The report bears the time of now, so the events around it must.
	pre := json.RawMessage(strings.Replace(preEvent, preTime, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), 1))
	end := json.RawMessage(fmt.Sprintf(`{"schema_version":1,"event_id":"8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e70","event_type":"SessionEnd",
		"timestamp":"%s","source":"agent-x","agent_id":"agent-7","session_id":"s1","metadata":{}}`, time.Now().Add(time.Minute).UTC().Format(time.RFC3339)))
	broken := func(recording ...json.RawMessage) string {
		found, err := correlation.Check("agenthook", recording, correlation.CheckOptions{})
		ok(t, err)
		var list []string
		for _, f := range found {
			for _, rule := range []string{"AH-C-032", "AH-C-073", "AH-C-079", "missing_completion", "executed_without_verdict"} {
				if f.Rule == rule {
					list = append(list, f.Rule)
				}
			}
		}
		return strings.Join(list, " ")
	}
	if got := broken(pre, end); !strings.Contains(got, "AH-C-032") || !strings.Contains(got, "missing_completion") {
		t.Errorf("without the report: %s; this test shows nothing", got)
	}
	if got := broken(pre, report, end); got != "" {
		t.Errorf("with it: %s", got)
	}
}

// Nothing waits for what cannot be reported, and nothing of it is silent.
func TestFailModeThatCannotBeReported(t *testing.T) {
	w := start(t, streams.Shard{})
	c, lost := w.reporting(t, testTimeout)
	broken := preCall
	broken.Body = []byte("{nope")
	if v := c.Admit(t.Context(), broken); v.Reason != client.ReasonNoResponders {
		t.Errorf("%+v", v)
	}
	if err := <-lost; err == nil || c.UnreportedCount() != 1 {
		t.Errorf("%v, %d", err, c.UnreportedCount())
	}
	nc := w.conns[len(w.conns)-1]
	nc.Close()
	if v := c.Admit(t.Context(), preCall); v.Reason != client.ReasonNotSent {
		t.Errorf("%+v", v)
	}
	if err := <-lost; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v", err)
	}
	c.Close()
	if v := c.Admit(t.Context(), preCall); v.Reason != client.ReasonNotSent {
		t.Errorf("%+v", v)
	}
	if err := <-lost; !errors.Is(err, client.ErrReportsClosed) || c.UnreportedCount() != 3 {
		t.Errorf("after Close: %v, %d", err, c.UnreportedCount())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ok(t, c.Flush(ctx)) // nothing waits
}
