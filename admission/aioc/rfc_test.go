package aioc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aioc"
	wire "github.com/countersign-dev/countersign/events/aioc"
)

// runtime is the little of an aioc runtime that the RFC's tests need: it asks,
// puts the answer through the default-deny matrix, and runs or changes agent
// only then.
type runtime struct {
	t     *testing.T
	snap  *admission.Config
	agent string
	ran   int
	trace []wire.PolicyEvaluated
}

func (r *runtime) ask(body string) wire.PolicyResult {
	r.t.Helper()
	out := decide(body, r.snap)
	reply, err := out.Reply()
	if err != nil {
		r.t.Fatal(err)
	}
	list, err := out.AccompanyingEvents()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range list {
		trace, err := wire.DecodePolicyEvaluated(e.Body)
		if err != nil {
			r.t.Fatal(err)
		}
		r.trace = append(r.trace, trace)
	}
	return aioc.ApplyDenyMatrix(aioc.PolicyReturn{Configured: true, Value: reply}, noon)
}

func (r *runtime) tool(body, name string) (wire.ToolResultEnvelope, error) {
	result := r.ask(body)
	var data any
	if result.Decision == wire.Allow {
		r.ran++
		data = "output"
	}
	e, told := result.Envelope(data, nil)
	if !told {
		return e, &wire.Refused{Kind: "tool", Name: name, Result: result}
	}
	return e, nil
}

func (r *runtime) handoff(body, to string) (wire.ToolResultEnvelope, error) {
	result := r.ask(body)
	from := r.agent
	var data any
	if result.Decision == wire.Allow {
		r.agent = to
		data = map[string]any{"handoffTo": to, "accepted": true}
	}
	e, told := result.Envelope(data, nil)
	if !told {
		return e, &wire.Refused{Kind: "handoff", Name: to, From: from, Result: result}
	}
	return e, nil
}

// RFC-0002, Minimal Test Matrix; 1 to 7 are the text as accepted, 8 to 10 came
// later.
func TestMinimalTestMatrix(t *testing.T) {
	toHandoffs := "{toAgents: ['*']}"
	for name, c := range map[string]struct {
		body    string
		snap    *admission.Config
		status  string // of the envelope
		refused string // the typed error
		ran     int
		agent   string
	}{
		"1 tool allow":                  {toolCall, snapshot(t, pol("p", "", "allow ok: true")), "ok", "", 1, ""},
		"2 tool deny":                   {toolCall, snapshot(t, pol("p", "", "deny no: true")), "", `Tool "export_report" denied by policy: no`, 0, ""},
		"3 tool missing policy":         {toolCall, nil, "", `Tool "export_report" denied by policy: policy_not_configured`, 0, ""},
		"4 handoff allow":               {handoffCall, snapshot(t, pol("p", toHandoffs, "allow ok: true")), "ok", "", 0, "Finance Agent"},
		"5 handoff deny":                {handoffCall, snapshot(t, pol("p", toHandoffs, "deny no: true")), "", `Handoff "Triage Agent" -> "Finance Agent" denied by policy: no`, 0, ""},
		"5 handoff missing policy":      {handoffCall, nil, "", `Handoff "Triage Agent" -> "Finance Agent" denied by policy: policy_not_configured`, 0, ""},
		"6 tool policy throws":          {toolCall, snapshot(t, pol("p", "", "allow ok: args.nope == 1")), "", `Tool "export_report" denied by policy: policy_error`, 0, ""},
		"6 handoff policy throws":       {handoffCall, snapshot(t, pol("p", toHandoffs, "allow ok: args.nope == 1")), "", `Handoff "Triage Agent" -> "Finance Agent" denied by policy: policy_error`, 0, ""},
		"8 tool soft deny":              {toolCall, snapshot(t, pol("p", "", "deny no soft: true")), "denied", "", 0, ""},
		"9 handoff soft deny":           {handoffCall, snapshot(t, pol("p", toHandoffs, "deny no soft: true")), "denied", "", 0, ""},
		"approval hard":                 {toolCall, snapshot(t, pol("p", "", "ask lead: true")), "", `Tool "export_report" requires approval: lead`, 0, ""},
		"approval soft":                 {toolCall, snapshot(t, pol("p", "", "ask lead soft: true")), "approval_required", "", 0, ""},
		"handoff approval hard":         {handoffCall, snapshot(t, pol("p", toHandoffs, "ask lead: true")), "", `Handoff "Triage Agent" -> "Finance Agent" requires approval: lead`, 0, ""},
		"handoff approval soft":         {handoffCall, snapshot(t, pol("p", toHandoffs, "ask lead soft: true")), "approval_required", "", 0, ""},
		"a tool without parameters":     {edit(t, toolCall, `"{\"reportId\":\"hunter2-secret\",\"n\":1.0}"`, `""`, `{"reportId":"hunter2-secret","n":1.0}`, "{}"), snapshot(t, pol("p", "", "allow ok: size(args) == 0")), "ok", "", 1, ""},
		"a tool that nobody registered": {edit(t, toolCall, "export_report", "never_heard_of"), snapshot(t, pol("p", "{tools: [export_report]}", "allow ok: true")), "", `Tool "never_heard_of" denied by policy: deny_unconfigured_tool_never_heard_of`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runtime{t: t, snap: c.snap, agent: "Triage Agent"}
			var e wire.ToolResultEnvelope
			var err error
			if protocolOf(c.body) == "tool" {
				var in struct{ ToolName string }
				if err := json.Unmarshal([]byte(c.body), &in); err != nil {
					t.Fatal(err)
				}
				e, err = r.tool(c.body, in.ToolName)
			} else {
				e, err = r.handoff(c.body, "Finance Agent")
			}
			var refused *wire.Refused
			if errors.As(err, &refused) != (c.refused != "") || refused != nil && refused.Error() != c.refused {
				t.Errorf("%v", err)
			}
			if want := c.agent; want == "" && r.agent != "Triage Agent" || want != "" && r.agent != want {
				t.Errorf("the agent is %s", r.agent)
			}
			if e.Status != c.status || r.ran != c.ran || len(r.trace) != 1 {
				t.Errorf("%+v, ran %d times, %d trace events", e, r.ran, len(r.trace))
			}
		})
	}
	t.Run("7 invalid result", func(t *testing.T) {
		for _, reply := range []string{"", "null", "{}", `{"decision":"allow"}`, `{"decision":"yes","reason":"r"}`, `{"verdict":"allow","reason":"r"}`} {
			if got := aioc.ApplyDenyMatrix(aioc.PolicyReturn{Configured: true, Value: []byte(reply)}, noon); got.Reason != "invalid_policy_result" || got.Decision != wire.Deny {
				t.Errorf("%s: %+v", reply, got)
			}
		}
	})
	t.Run("10 envelope of an allow", func(t *testing.T) {
		r := &runtime{t: t, snap: anything(t)}
		e, err := r.tool(toolCall, "export_report")
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(e)
		if err != nil || string(b) != `{"status":"ok","code":null,"publicReason":null,"data":"output"}` {
			t.Errorf("%v %s", err, b)
		}
	})
}

// RFC-0010, as policies: the exact name, then *, then deny.
func TestComposition(t *testing.T) {
	star := func(name, match, rule string) string {
		return strings.Replace(pol(name, match, rule), "spec:\n", "spec:\n  fallback: true\n", 1)
	}
	tools := snapshot(t, pol("lookup", "{tools: [get_report]}", "allow allow_get_report: true"), star("star", "{tools: ['*']}", "deny deny_tool: true"))
	exact := snapshot(t, pol("lookup", "{tools: [get_report]}", "allow allow_get_report: true"))
	handoffs := snapshot(t, pol("route", "{toAgents: [Support Agent]}", "allow allow_support: true"), star("star", "{toAgents: ['*']}", "deny deny_handoff: true"))
	only := snapshot(t, pol("route", "{toAgents: [Support Agent]}", "allow allow_support: true"))
	tool := func(name string) string { return edit(t, toolCall, "export_report", name) }
	handoff := func(name string) string { return edit(t, handoffCall, "Finance Agent", name) }
	for name, c := range map[string]struct {
		body string
		snap *admission.Config
		want string
	}{
		"tool, exact":           {tool("get_report"), tools, "allow allow_get_report"},
		"tool, *":               {tool("export_report"), tools, "deny deny_tool throw"},
		"tool, unconfigured":    {tool("unconfigured_tool"), exact, "deny deny_unconfigured_tool_unconfigured_tool throw"},
		"tool, other case":      {tool("Get_Report"), exact, "deny deny_unconfigured_tool_Get_Report throw"},
		"handoff, exact":        {handoff("Support Agent"), handoffs, "allow allow_support"},
		"handoff, *":            {handoff("Finance Agent"), handoffs, "deny deny_handoff throw"},
		"handoff, unconfigured": {handoff("Finance Agent"), only, "deny deny_unconfigured_handoff_Finance Agent throw"},
	} {
		if got := says(t, decide(c.body, c.snap)); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// record is what of an aioc run record the gate can be compared with.
type record struct {
	AgentName       string
	PromptSnapshots []struct {
		Turn      int
		AgentName string
	}
	PolicyDecisions []struct {
		Turn                                    int
		CallID, Decision, Reason, PolicyVersion string
		Resource                                struct{ Kind, Name string }
	}
	Items []struct {
		Type, CallID, Name string
		RawItem            struct{ Arguments string }
		Arguments          json.RawMessage
		Output             *wire.ToolResultEnvelope
	}
}

// TestRunRecords puts every proposal of the published run records before
// policies that say what the recorded policies said, and compares the answers.
func TestRunRecords(t *testing.T) {
	for file, decisions := range map[string]int{
		"simple-run.json": 0, "tool-allow.json": 1, "handoff-allow.json": 1, "handoff-deny.json": 1, "compare-v1.json": 1, "compare-v2.json": 0, "reported-runrecord-1.json": 0,
	} {
		t.Run(file, func(t *testing.T) {
			var r record
			if err := json.Unmarshal(shared(t, "run-records/"+file), &r); err != nil {
				t.Fatal(err)
			}
			if len(r.PolicyDecisions) != decisions {
				t.Fatalf("%d policy decisions", len(r.PolicyDecisions))
			}
			for i := range r.PolicyDecisions {
				replay(t, r, i)
			}
		})
	}
}

func replay(t *testing.T, r record, i int) {
	d := r.PolicyDecisions[i]
	agent, name, raw, parsed := "", "", "", json.RawMessage(nil)
	for _, p := range r.PromptSnapshots {
		if p.Turn == d.Turn {
			agent = p.AgentName
		}
	}
	var output *wire.ToolResultEnvelope
	for _, item := range r.Items {
		switch {
		case item.CallID != d.CallID:
		case item.Type == "tool_call_item":
			name, raw, parsed = item.Name, item.RawItem.Arguments, item.Arguments
		case item.Output != nil:
			output = item.Output
		}
	}
	soft, public := "", ""
	if output != nil && output.Status != "ok" {
		soft, public = " soft", " # "+*output.PublicReason
	}
	req := request(d.Resource.Kind, "")
	rule := fmt.Sprintf("%s %s%s: true%s", d.Decision, d.Reason, soft, public)
	in := map[string]any{"runContext": map[string]any{}, "turn": d.Turn, "callId": d.CallID}
	doc := pol(d.PolicyVersion, "{tools: ["+name+"]}", rule)
	if d.Resource.Kind == "handoff" {
		doc = pol(d.PolicyVersion, "{fromAgents: ["+agent+"], toAgents: ["+d.Resource.Name+"]}", rule)
		in["fromAgentName"], in["toAgentName"], in["handoffPayload"], in["handoffName"] = agent, d.Resource.Name, parsed, name
	} else {
		in["agentName"], in["toolName"], in["rawArguments"], in["parsedArguments"] = agent, d.Resource.Name, raw, parsed
	}
	req.Body, _ = json.Marshal(in)
	req.Header = nil
	snap := snapshot(t, doc)
	snap.Revision = 0
	out := admission.Decide(req, snap, inputs())
	got := resultOf(t, out)
	if got.Decision != d.Decision || got.Reason != d.Reason || got.PolicyVersion != d.PolicyVersion || out.Decision.ToolCallID != d.CallID {
		t.Errorf("%+v, recorded %+v", got, d)
	}
	if output != nil {
		envelope, told := got.Envelope(output.Data, nil)
		if diff := cmp.Diff(*output, envelope); diff != "" || !told {
			t.Errorf("told %v %s", told, diff)
		}
	}
	if out.Decision.Tool != name {
		t.Errorf("the record names %s, the model called %s", out.Decision.Tool, name)
	}
	if got := says(t, admission.Decide(req, nil, inputs())); got != "deny policy_not_configured throw" {
		t.Error(got)
	}
	if r.AgentName == agent != (d.Decision != wire.Allow || d.Resource.Kind == "tool") {
		t.Errorf("the run ended with %s", r.AgentName)
	}
}
