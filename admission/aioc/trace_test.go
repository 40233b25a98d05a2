package aioc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission"
	wire "github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

func TestTraceEvents(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		snap *admission.Config
		want string
	}{
		"tool deny": {toolCall, nil, `{"agent":"Finance Agent","callId":"call-1","decision":"deny","level":"warn","metadata":{"argsDigest":"ARGS","decisionId":"ID","verdict":"deny"},"reason":"policy_not_configured","resultMode":"throw","timestamp":"2026-11-20T12:00:00.000000000Z","toolName":"export_report","turn":3,"type":"tool_policy_evaluated"}`},
		"tool allow": {toolCall, snapshot(t, pol("p", "", "allow ok: true # Fine.")),
			`{"agent":"Finance Agent","callId":"call-1","decision":"allow","expiresAt":"2026-11-20T12:01:00.000000000Z","level":"info","metadata":{"argsDigest":"ARGS","decisionId":"ID","policyDigest":"DIGEST","verdict":"allow"},"policyVersion":"p@3","publicReason":"Fine.","reason":"ok","timestamp":"2026-11-20T12:00:00.000000000Z","toolName":"export_report","turn":3,"type":"tool_policy_evaluated"}`},
		"tool error": {toolCall, snapshot(t, pol("p", "", "allow ok: args.nope == 1")),
			`{"agent":"Finance Agent","callId":"call-1","decision":"deny","level":"warn","metadata":{"argsDigest":"ARGS","decisionId":"ID","errorName":"Error","policyDigest":"DIGEST","verdict":"deny"},"policyVersion":"p@3","reason":"policy_error","resultMode":"throw","timestamp":"2026-11-20T12:00:00.000000000Z","toolName":"export_report","turn":3,"type":"tool_policy_evaluated"}`},
		"handoff approval": {handoffCall, snapshot(t, pol("p", "{toAgents: ['*']}", "ask a soft: true")),
			`{"agent":"Triage Agent","callId":"call-1","decision":"require_approval","expiresAt":"2026-11-20T12:15:00.000000000Z","handoffName":"handoff_to_finance_agent","level":"warn","metadata":{"argsDigest":"ARGS","decisionId":"ID","policyDigest":"DIGEST","verdict":"ask","workflowId":"wf-ID"},"policyVersion":"p@3","reason":"a","resultMode":"tool_result","timestamp":"2026-11-20T12:00:00.000000000Z","toAgent":"Finance Agent","turn":2,"type":"handoff_policy_evaluated"}`},
	} {
		t.Run(name, func(t *testing.T) {
			out := decide(c.body, c.snap)
			list, err := out.AccompanyingEvents()
			if err != nil || len(list) != 1 {
				t.Fatalf("%v %v", list, err)
			}
			want := strings.ReplaceAll(strings.Replace(c.want, "ARGS", out.Decision.ArgsDigest, 1), "ID\"", out.Decision.DecisionID+"\"")
			if c.snap != nil {
				want = strings.Replace(want, "DIGEST", c.snap.Policies.Digest(), 1)
			}
			e := list[0]
			if diff := cmp.Diff(want, string(e.Body)); diff != "" {
				t.Error(diff)
			}
			if e.ID != out.Decision.DecisionID+"-"+e.Type || e.EventType != wire.CloudEventType {
				t.Errorf("%+v", e)
			}
			tree, err := strictjson.ParseObject(e.Body, strictjson.DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			if vs := schemas.Default().Validate("aioc/"+e.Type, strictjson.FromTree(tree)); vs != nil {
				t.Error(vs)
			}
			if _, err := wire.DecodePolicyEvaluated(e.Body); err != nil {
				t.Error(err)
			}
		})
	}
}

// A trace event tells what was answered, and there is none where nothing was
// proposed.
func TestTraceFollowsTheAnswer(t *testing.T) {
	out := decide(toolCall, anything(t))
	out.Fail(admission.CodeAuditUnavailable)
	list, err := out.AccompanyingEvents()
	if err != nil || len(list) != 1 {
		t.Fatal(err)
	}
	e, err := wire.DecodePolicyEvaluated(list[0].Body)
	if err != nil || e.Decision != wire.Deny || e.Reason != "audit_unavailable" || e.Level != wire.LevelWarn {
		t.Errorf("%+v %v", e, err)
	}
	for name, out := range map[string]admission.Outcome{
		"not JSON":       decide("{", anything(t)),
		"no turn":        decide(edit(t, toolCall, `,"turn":3`, ""), anything(t)),
		"unknown tenant": admission.Decide(request("tool", toolCall), anything(t), admission.Inputs{Now: noon}),
		"other protocol": admission.Decide(request("aaep", toolCall), anything(t), inputs()),
	} {
		if list, err := out.AccompanyingEvents(); err != nil || list != nil {
			t.Errorf("%s: %v %v", name, list, err)
		}
	}
}
