package format_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/internal/testkit"
)

const (
	tenant  = "acme"
	mandate = "aump_mnd_kitchen"
)

var (
	begin       = evidencetest.Start
	mandateHash = "sha256-" + strings.Repeat("ab", 32)
	// planted must be in no line, whatever the format.
	planted = []string{"hunter2-open-sesame", "AKIAIOSFODNN7EXAMPLE", "press@newspaper.example", "PLAN-FOR-THE-MERGER"}
)

// world is evidence of a log, made as the auditor makes it.
type world struct {
	*evidencetest.Fixture
	items []encode.Item
}

func newWorld(t testing.TB) *world {
	f := evidencetest.New(t)
	f.Step = time.Second
	return &world{Fixture: f}
}

var ok = testkit.OK

func (w *world) log(subj string, header map[string][]string, body []byte) {
	w.T.Helper()
	built := w.Log(subj, header, body)
	w.items = append(w.items, encode.Item{Record: built.Record, Hash: built.Hash})
}

// decided logs a request and its decision.
func (w *world) decided(session string, request string, d events.Decision) events.Decision {
	w.T.Helper()
	n := len(w.items)
	d.DecisionID = fmt.Sprintf("0199a000-0000-7000-8000-%012d", n)
	d.Tenant, d.Source, d.Session = tenant, "runtime-1", session
	d.ReceivedAt, d.DecidedAt = events.At(begin.Add(time.Duration(n)*time.Second)), events.At(begin.Add(time.Duration(n)*time.Second+1500*time.Microsecond))
	d.RequestDigest, d.ArgsDigest = digest.Keyed(evidencetest.Derived("d"), []byte(request)), digest.Keyed(evidencetest.Derived("d"), []byte("args"))
	if d.Reasons == nil {
		d.Reasons = []events.Reason{{Evaluator: "tool_policy", Code: "rule_matched", Policy: "mail/inside"}}
	}
	d.Policy = &events.PolicyRef{Name: "mail", Revision: 7, Digest: digest.Plain([]byte("policies"))}
	w.log(subject.Space{}.Request(tenant, "runtime-1", d.Protocol, session), map[string][]string{events.HeaderDecisionID: {d.DecisionID}}, []byte(request))
	w.log(subject.Space{}.Decision(tenant, string(d.Verdict), session), nil, w.Encode(d))
	return d
}

// traced logs the trace event of an aioc decision.
func (w *world) traced(d events.Decision, e aioc.PolicyEvaluated) {
	w.T.Helper()
	e.Timestamp, e.Level, e.CallID, e.Agent = d.DecidedAt.String(), "warn", d.ToolCallID, d.Agent
	w.log(subject.Space{}.Event(tenant, "runtime-1", d.Protocol, d.Session, e.Type), map[string][]string{events.HeaderDecisionID: {d.DecisionID}}, w.Encode(e))
}

func (w *world) call(d events.Decision, state events.CallState) {
	w.T.Helper()
	at := func(n int) events.Time { return events.At(begin.Add(time.Duration(n) * time.Second)) }
	c := events.Call{CallID: "call_" + d.DecisionID, Tenant: tenant, Source: d.Source, Protocol: d.Protocol, Agent: d.Agent, Session: d.Session, ToolCallID: d.ToolCallID,
		Occurrence: 1, Tool: d.Tool, State: state, Verdict: d.Verdict, DecisionID: d.DecisionID, DecisionSeq: uint64(len(w.items)),
		Timeline: []events.TimelineEntry{{Step: "decided", Seq: 2, At: at(2)}, {Step: "completed", Seq: 3, At: at(5)}}}
	w.log(subject.Space{}.Call(tenant, string(state), d.Session), nil, w.Encode(c))
}

func aanaRequest(args string) string {
	return `{"tool_name":"send_email","tool_category":"write","authorization_state":"confirmed","risk_domain":"customer_support","recommended_route":"accept","agent_id":"bot",
		"evidence_refs":[{"source_id":"approval.1","kind":"approval","trust_tier":"verified","redaction_status":"redacted","provenance":"runtime","summary":"Confirmed by press@newspaper.example.",
		"freshness":{"status":"fresh"}}],"proposed_arguments":` + args + `}`
}

func hookRequest(call string) string {
	return `{"schema_version":1,"event_id":"` + uuid.NewSHA1(uuid.NameSpaceURL, []byte(call)).String() + `","event_type":"PreToolUse","timestamp":"2026-11-20T06:42:00Z","source":"agent","session_id":"s-hook","evidence_phase":"pre_commit",
		"tool_name":"send_email","tool_input":{"to":"press@newspaper.example","password":"hunter2-open-sesame","key":"AKIAIOSFODNN7EXAMPLE"},
		"action":"send","resource_kind":"email","resource":"r","resource_scope":"external","operation_risk":"write",
		"metadata":{"tool_call_id":"` + call + `","tool_identity":{"canonical_name":"email.send","provider_name":"send_email","source":"mcp_tools_call"},"risk":{"risk_class":"external_side_effect"},
		"admission_verdict":{"verdict":"allow","reason":"says the publisher"},"redaction":{"applied":true,"fields":["tool_input.to"]}}}`
}

func aumpRequest(action string) string {
	return `{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":"` + mandate + `","hash":"` + mandateHash + `","version":"0.1.0"},
		"proposed_action":{"type":"` + action + `","summary":"PLAN-FOR-THE-MERGER"}}`
}

// everything is a log with every protocol, every verdict, and what became of it.
func everything(t testing.TB) []encode.Item {
	t.Helper()
	w := newWorld(t)
	for _, v := range events.Verdicts {
		native := map[events.Verdict]string{events.Allow: "accept", events.Ask: "ask", events.Defer: "defer", events.Deny: "refuse"}[v]
		reasons := []events.Reason{{Evaluator: "aana", Code: "write_needs_validation_and_confirmation"}, {Evaluator: "aana", Code: "write_missing_validation_or_confirmation"}, {Evaluator: "tool_policy", Code: "noted", Action: "audit"}}
		w.decided("s-aana", aanaRequest(`{"to":"press@newspaper.example","api-key":"AKIAIOSFODNN7EXAMPLE","note":"hunter2-open-sesame"}`),
			events.Decision{Protocol: "aana", Verdict: v, NativeVerdict: native, Tool: "send_email", Agent: "bot", ToolCallID: "a-" + string(v), Reasons: reasons})
		d := w.decided("s-hook", hookRequest("h-"+string(v)), events.Decision{Protocol: "agenthook", Verdict: v, Tool: "send_email", Action: "create", ToolCallID: "h-" + string(v), Agent: "bot",
			Approval: &events.ApprovalRef{WorkflowID: "wf-1", Status: "pending", RequestedAt: events.At(begin)}})
		w.call(d, map[bool]events.CallState{true: events.CallCompleted, false: events.CallDenied}[v == events.Allow])
		w.decided("s-aump", aumpRequest("buy_tea"), events.Decision{Protocol: "aump", Verdict: v, Tool: "buy_tea", Mandate: &events.MandateRef{ID: mandate, Hash: mandateHash},
			Reasons: []events.Reason{{Evaluator: "aump", Code: "price_above_budget", Path: "$.authority.budget.max_total_minor"}}})
		aiocCalls(w, v)
	}
	w.log(subject.Space{}.Approval(tenant, "approved", "wf-1"), nil, w.Encode(events.Approval{WorkflowID: "wf-1", Tenant: tenant, Status: "approved", Act: "approve", Approver: "jo", Session: "s-hook",
		ActionDigest: digest.Keyed(evidencetest.Derived("x"), nil), RequestedAt: events.At(begin)}))
	for _, s := range []events.Severity{events.SeverityInfo, events.SeverityCritical} {
		w.log(subject.Space{}.Finding(tenant, string(s), "s-hook"), nil, w.Encode(events.Finding{FindingID: "fnd_" + string(s), Rule: "executed_despite_deny", Severity: s, Tenant: tenant,
			Session: "s-hook", EventIDs: []string{}, Explanation: "it ran = all | the same\nand \\ then", Remedy: "Stop it."}))
	}
	w.log(subject.Space{}.Event(tenant, "runtime-1", "agenthook", "s-tool", "SessionEnd"), nil, []byte(`{"event_type":"SessionEnd"}`))
	w.log(subject.Space{}.Control("GOV", events.ControlTick), nil, w.Encode(events.Tick{Shard: "GOV", Due: events.At(begin)}))
	w.items = w.items[:len(w.items)-1] // control records have no tenant
	return w.items
}

func aiocCalls(w *world, v events.Verdict) {
	decision := map[events.Verdict]string{events.Allow: aioc.Allow, events.Ask: aioc.RequireApproval, events.Defer: aioc.RequireApproval, events.Deny: aioc.Deny}[v]
	mode := map[bool]string{true: "", false: aioc.ModeToolResult}[v == events.Allow]
	d := w.decided("s-tool", `{"agentName":"Desk","toolName":"export_report","rawArguments":"{\"k\":\"AKIAIOSFODNN7EXAMPLE\"}","runContext":{"u":"press@newspaper.example"},"turn":1}`,
		events.Decision{Protocol: "tool", Verdict: v, Tool: "export_report", Agent: "Desk", ToolCallID: "t-" + string(v)})
	w.traced(d, aioc.PolicyEvaluated{Type: aioc.TypeToolEvaluated, Turn: 1, ToolName: "export_report", Decision: decision, Reason: "reason_" + string(v), PublicReason: "Because.", ResultMode: mode})
	if v == events.Allow {
		w.call(d, events.CallCompleted)
	}
	h := w.decided("s-handoff", `{"fromAgentName":"Desk","toAgentName":"Finance","handoffPayload":{"why":"PLAN-FOR-THE-MERGER"},"runContext":{},"turn":2}`,
		events.Decision{Protocol: "handoff", Verdict: v, Tool: "handoff_to_finance", Action: "handoff", Agent: "Desk", ToolCallID: "f-" + string(v)})
	w.traced(h, aioc.PolicyEvaluated{Type: aioc.TypeHandoffEvaluated, Turn: 2, HandoffName: "handoff_to_finance", ToAgent: "Finance", Decision: decision, Reason: "reason_" + string(v),
		ResultMode: map[bool]string{true: "", false: aioc.ModeThrow}[v == events.Allow]})
}

// written gives the lines of a format.
func written(t testing.TB, name string, items []encode.Item, mandates func(id, hash string) (encode.Mandate, bool)) ([][]byte, format.Summary) {
	t.Helper()
	var lines [][]byte
	enc, err := format.New(name, encode.Options{Tenant: tenant, Mandate: mandates}, func(line []byte) error {
		lines = append(lines, bytes.Clone(line))
		return nil
	})
	ok(t, err)
	for _, i := range items {
		ok(t, enc.Add(i))
	}
	ok(t, enc.Close())
	return lines, enc.Summary()
}

func keeps(class string, types ...string) func(id, hash string) (encode.Mandate, bool) {
	return func(id, hash string) (encode.Mandate, bool) {
		return encode.Mandate{Retention: class, EventsRequired: types}, id == mandate && hash == mandateHash
	}
}

// bodyObject is a line as a reader has it.
func bodyObject(t testing.TB, line []byte) map[string]any {
	t.Helper()
	tree, err := strictjson.ParseObject(line, strictjson.DefaultLimits)
	ok(t, err)
	return tree
}

var compiledSchemas sync.Map // by their text

func compiled(t testing.TB, name string, text []byte) *jsonschema.Schema {
	t.Helper()
	if s, done := compiledSchemas.Load(string(text)); done {
		return s.(*jsonschema.Schema)
	}
	c := jsonschema.NewCompiler()
	c.Draft, c.AssertFormat = jsonschema.Draft2020, true
	c.LoadURL = nil
	ok(t, c.AddResource("mem:///"+name, bytes.NewReader(text)))
	s, err := c.Compile("mem:///" + name)
	ok(t, err)
	compiledSchemas.Store(string(text), s)
	return s
}

func loose(t testing.TB, line []byte) (v any) {
	t.Helper()
	ok(t, json.Unmarshal(line, &v))
	return v
}
