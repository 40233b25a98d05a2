package aioc_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

// Every way to a reason, in both protocols: what the reply says, and what the
// record does.
func TestDecisionTable(t *testing.T) {
	loop := "args.l.all(x, args.l.all(y, x == y || x + y < 9))"
	long := `{"l":[` + strings.Repeat("0,", 1999) + `0]}`
	for name, c := range map[string]struct {
		body          string
		snap          *admission.Config
		reply, record string
	}{
		"tool, no snapshot":          {toolCall, nil, "deny policy_not_configured throw", "deny no_policy"},
		"tool, empty directory":      {toolCall, &admission.Config{PolicyErr: policy.ErrNoPolicies}, "deny policy_not_configured throw", "deny no_policy"},
		"tool, evaluators only":      {toolCall, admission.EvaluatorsOnly(), "deny policy_not_configured throw", "deny no_policy"},
		"tool, only handoffs":        {toolCall, snapshot(t, pol("h", "{toAgents: ['*']}", "allow ok: true")), "deny policy_not_configured throw", "deny no_policy"},
		"tool, only another tenant":  {toolCall, snapshot(t, pol("p", "{tenants: [evil]}", "allow ok: true")), "deny policy_not_configured throw", "deny no_policy"},
		"tool, broken set":           {toolCall, &admission.Config{Policies: anything(t).Policies, PolicyErr: errors.New("p.yaml:1: " + secret)}, "deny policy_error throw", "deny policy_error"},
		"tool, condition fails":      {toolCall, snapshot(t, pol("p", "", "allow ok: args.nope == 1")), "deny policy_error throw", "deny policy_error"},
		"tool, one of several fails": {toolCall, snapshot(t, pol("p", "", "deny no: true", "allow ok: args.nope == 1")), "deny policy_error throw", "deny no policy_error"},
		"tool, too costly":           {edit(t, toolCall, `{"reportId":"hunter2-secret","n":1.0}`, long, `"{\"reportId\":\"hunter2-secret\",\"n\":1.0}"`, `"`+strings.ReplaceAll(long, `"`, `\"`)+`"`), snapshot(t, pol("p", "", "allow ok: "+loop)), "deny policy_error throw", "deny policy_error"},
		"tool, no match":             {toolCall, snapshot(t, pol("p", "{tools: [import_report]}", "allow ok: true")), "deny deny_unconfigured_tool_export_report throw", "deny no_policy_match"},
		"tool, no rule matches":      {toolCall, snapshot(t, pol("p", "", "allow ok: tool == 'x'")), "deny deny_unconfigured_tool_export_report throw", "deny no_policy_match"},
		"tool, other case":           {edit(t, toolCall, "export_report", "Export_Report"), snapshot(t, pol("p", "{tools: [export_report]}", "ask a: true")), "deny deny_unconfigured_tool_Export_Report throw", "deny tool_name_case"},
		"tool, deceptive name":       {edit(t, toolCall, "export_report", `export\u200breport`), anything(t), "deny invalid_tool_name throw", "deny invalid_tool_name"},
		"tool, allow":                {toolCall, snapshot(t, pol("p", "", "allow allow_export_report: true")), "allow allow_export_report", "allow allow_export_report"},
		"tool, allow by argument":    {toolCall, snapshot(t, pol("p", "", `allow fin: args.n == 1 && "finance" in event.runContext.context.actor.groups && agent == "Finance Agent"`)), "allow fin", "allow fin"},
		"tool, hard deny":            {toolCall, snapshot(t, pol("p", "", "allow ok: true", "deny tool_not_allowlisted: true")), "deny tool_not_allowlisted throw", "deny ok tool_not_allowlisted"},
		"tool, soft deny":            {toolCall, snapshot(t, pol("p", "", "deny tool_not_allowlisted soft: true")), "deny tool_not_allowlisted tool_result", "deny tool_not_allowlisted"},
		"tool, hard approval":        {toolCall, snapshot(t, pol("p", "", "ask manager_approval_required: true")), "require_approval manager_approval_required throw", "ask manager_approval_required"},
		"tool, soft approval":        {toolCall, snapshot(t, pol("p", "", "ask manager_approval_required soft: true")), "require_approval manager_approval_required tool_result", "ask manager_approval_required"},
		"tool, defer":                {toolCall, snapshot(t, pol("p", "", "defer later: true")), "require_approval later throw", "defer later"},
		"tool, soft and hard":        {toolCall, snapshot(t, pol("p", "", "deny a soft: true", "deny b: true")), "deny a throw", "deny a b"},

		"handoff, no snapshot":        {handoffCall, nil, "deny policy_not_configured throw", "deny no_policy"},
		"handoff, evaluators only":    {handoffCall, admission.EvaluatorsOnly(), "deny policy_not_configured throw", "deny no_policy"},
		"handoff, only tools":         {handoffCall, snapshot(t, pol("p", "", "allow ok: true")), "deny policy_not_configured throw", "deny no_policy"},
		"handoff, broken set":         {handoffCall, &admission.Config{PolicyErr: errors.New("x")}, "deny policy_error throw", "deny policy_error"},
		"handoff, condition fails":    {handoffCall, snapshot(t, pol("p", "{protocols: [handoff]}", "allow ok: args.nope == 1")), "deny policy_error throw", "deny policy_error"},
		"handoff, no match":           {handoffCall, snapshot(t, pol("p", "{toAgents: [HR]}", "allow ok: true")), "deny deny_unconfigured_handoff_Finance Agent throw", "deny no_policy_match"},
		"handoff, other case":         {edit(t, handoffCall, "Finance Agent", "finance agent"), snapshot(t, pol("p", "{toAgents: [Finance Agent]}", "deny no: true")), "deny deny_unconfigured_handoff_finance agent throw", "deny agent_name_case"},
		"handoff, deceptive name":     {edit(t, handoffCall, "Finance", `F\u0456nance`), anything(t), "deny invalid_agent_name throw", "deny invalid_agent_name"},
		"handoff, allow":              {handoffCall, snapshot(t, pol("p", "{fromAgents: ['Triage *'], toAgents: [Finance Agent]}", "allow allow_finance_handoff: has(args.reason)")), "allow allow_finance_handoff", "allow allow_finance_handoff"},
		"handoff, hard deny":          {handoffCall, snapshot(t, pol("p", "{toAgents: ['*']}", "deny target_not_allowlisted: true")), "deny target_not_allowlisted throw", "deny target_not_allowlisted"},
		"handoff, soft deny":          {handoffCall, snapshot(t, pol("p", "{toAgents: ['*']}", "deny target_not_allowlisted soft: true")), "deny target_not_allowlisted tool_result", "deny target_not_allowlisted"},
		"handoff, hard approval":      {handoffCall, snapshot(t, pol("p", "{toAgents: ['*']}", "ask a: true")), "require_approval a throw", "ask a"},
		"handoff, soft approval":      {handoffCall, snapshot(t, pol("p", "{toAgents: ['*']}", "ask a soft: true")), "require_approval a tool_result", "ask a"},
		"handoff, by from alone":      {handoffCall, snapshot(t, pol("p", "{fromAgents: [Triage Agent]}", "allow ok: to_agent == 'Finance Agent' && from_agent == agent")), "allow ok", "allow ok"},
		"handoff, from another agent": {edit(t, handoffCall, "Triage Agent", "Intern"), snapshot(t, pol("p", "{fromAgents: [Triage Agent]}", "allow ok: true")), "deny deny_unconfigured_handoff_Finance Agent throw", "deny no_policy_match"},
	} {
		t.Run(name, func(t *testing.T) {
			out := decide(c.body, c.snap)
			if got := says(t, out); got != c.reply {
				t.Errorf("reply  %s\nwant   %s", got, c.reply)
			}
			if got := codes(out); got != c.record {
				t.Errorf("record %s\nwant   %s", got, c.record)
			}
			if out.Decision.NativeVerdict != resultOf(t, out).Decision {
				t.Errorf("the record says %s", out.Decision.NativeVerdict)
			}
			noSecrets(t, out)
		})
	}
}

func TestMetadataOfFailures(t *testing.T) {
	for name, c := range map[string]struct {
		out  admission.Outcome
		want any
	}{
		"condition": {decide(toolCall, snapshot(t, pol("p", "", "allow ok: args.nope == 1"))), "Error"},
		"cost":      {decide(`{"agentName":"a","toolName":"t","rawArguments":"{\"l\":[`+strings.Repeat("0,", 1999)+`0]}","turn":1}`, snapshot(t, pol("p", "", "allow ok: args.l.all(x, args.l.all(y, x == y || x + y < 9))"))), "DeadlineExceeded"},
		"set":       {decide(toolCall, &admission.Config{PolicyErr: errors.New("x")}), "Error"},
		"deny":      {decide(toolCall, snapshot(t, pol("p", "", "deny no: true"))), nil},
	} {
		if got := resultOf(t, c.out).Metadata["errorName"]; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	deadline := decide(toolCall, anything(t))
	deadline.Fail("deadline_exceeded")
	internal := decide(handoffCall, anything(t))
	internal.Fail(admission.CodeInternal)
	audit := decide(toolCall, anything(t))
	audit.Fail(admission.CodeAuditUnavailable)
	for want, out := range map[string]admission.Outcome{"policy_error DeadlineExceeded": deadline, "policy_error Error": internal, "audit_unavailable": audit} {
		r := resultOf(t, out)
		name, _ := r.Metadata["errorName"].(string)
		if got := strings.TrimSpace(r.Reason + " " + name); got != want || r.Decision != wire.Deny || r.ResultMode != wire.ModeThrow || r.ExpiresAt != "" {
			t.Errorf("%s: %+v", want, r)
		}
	}
}

func TestGoldenReplies(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		snap *admission.Config
		want string
	}{
		"tool allow": {`{"agentName":"Finance Agent","toolName":"export_report","rawArguments":"{\"reportId\":\"rpt-1\"}","parsedArguments":{"reportId":"rpt-1"},"runContext":{},"turn":1}`,
			snapshot(t, pol("finance", "{tools: [export_report]}", "allow allow_export: true # Reports are fine.")),
			`{"decision":"allow","expiresAt":"2026-11-20T12:01:00.000000000Z","metadata":{"argsHash":"84e3dfd8193e396a68d8e4d0a3e12f21f27b6dd44bbbc053dcc41bfe267e202e","decisionId":"01939d5e-0000-7000-8000-000000000001","policyDigest":"DIGEST","proposalHash":"f198e59aabb5bc2d82b2e1784d0333a193c392c8412bf510169db9f9fa58a6d0","verdict":"allow"},"policyVersion":"finance@3","publicReason":"Reports are fine.","reason":"allow_export"}`},
		"tool missing policy": {`{"agentName":"Policy unit agent","toolName":"ping","rawArguments":"","parsedArguments":{},"runContext":{},"turn":1}`, nil,
			`{"decision":"deny","metadata":{"argsHash":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","decisionId":"01939d5e-0000-7000-8000-000000000001","proposalHash":"486e7d858f077daf704366bd7f7742a58955c40c0e173da363ab9fa5f47f4a41","verdict":"deny"},"reason":"policy_not_configured","resultMode":"throw"}`},
		"handoff soft approval": {`{"fromAgentName":"Source Agent","toAgentName":"Target Agent","handoffPayload":{"reason":"route"},"runContext":{},"turn":1}`,
			snapshot(t, pol("route", "{toAgents: ['*']}", "ask needs_lead soft: true # A lead has to agree.")),
			`{"decision":"require_approval","expiresAt":"2026-11-20T12:15:00.000000000Z","metadata":{"approval":{"actionId":"ACTION","expiresAt":"2026-11-20T12:15:00.000000000Z","requestedAt":"2026-11-20T12:00:00.000000000Z","resumePolicy":"retry_same_event","status":"pending","workflowId":"wf-01939d5e-0000-7000-8000-000000000001"},"argsHash":"PAYLOAD","decisionId":"01939d5e-0000-7000-8000-000000000001","payloadHash":"PAYLOAD","policyDigest":"DIGEST","proposalHash":"40070bc4293c7ea858c49a49b59b74010f516f1060d5eac023a5283c33acfb37","verdict":"ask"},"policyVersion":"route@3","publicReason":"A lead has to agree.","reason":"needs_lead","resultMode":"tool_result"}`},
		"not JSON": {`{`, anything(t), `{"decision":"deny","metadata":{"decisionId":"01939d5e-0000-7000-8000-000000000001","verdict":"deny"},"reason":"not_json","resultMode":"throw"}`},
	} {
		t.Run(name, func(t *testing.T) {
			out := decide(c.body, c.snap)
			got, err := out.Reply()
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(c.want, "PAYLOAD", strings.TrimPrefix(digest.Plain([]byte(`{"reason":"route"}`)), digest.PrefixPlain))
			if c.snap != nil {
				want = strings.Replace(want, "DIGEST", c.snap.Policies.Digest(), 1)
			}
			if a := out.Decision.Approval; a != nil {
				want = strings.Replace(want, "ACTION", a.ActionID, 1)
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Error(diff)
			}
			doc, err := strictjson.ReadObject(got, strictjson.DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			if vs := schemas.Default().Validate("aioc/policy-result", doc); vs != nil {
				t.Error(vs)
			}
		})
	}
}

func TestDecisionRecords(t *testing.T) {
	key := inputs().TenantKey
	tool := decide(toolCall, anything(t)).Decision
	if tool.Tool != "export_report" || tool.Agent != "Finance Agent" || tool.Action != "" || tool.Session != "s1" || tool.ToolCallID != "call-1" || tool.Protocol != "tool" ||
		tool.ArgsDigest != digest.Keyed(key, []byte(`{"n":1,"reportId":"hunter2-secret"}`)) || !tool.ExpiresAt.Equal(noon.Add(time.Minute)) {
		t.Errorf("%+v", tool)
	}
	handoff := decide(handoffCall, anything(t)).Decision
	if handoff.Tool != "handoff_to_finance_agent" || handoff.Agent != "Triage Agent" || handoff.Action != "handoff" || handoff.Protocol != "handoff" ||
		handoff.ArgsDigest != digest.Keyed(key, []byte(`{"fromAgentName":"Triage Agent","handoffPayload":{"reason":"hunter2-secret"},"toAgentName":"Finance Agent"}`)) {
		t.Errorf("%+v", handoff)
	}
	for _, d := range []events.Decision{tool, handoff} {
		b, err := events.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := strictjson.ReadObject(b, strictjson.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if vs := schemas.Default().Validate("countersign/decision", doc); vs != nil {
			t.Error(vs)
		}
	}
}

func TestSessionAndCallOfTheBody(t *testing.T) {
	body := edit(t, toolCall, `"turn":3`, `"turn":3,"callId":"c9","runId":"run-7"`)
	req := request("tool", body)
	req.Header = nil
	d := admission.Decide(req, anything(t), inputs()).Decision
	if d.Session != "run-7" || d.ToolCallID != "c9" {
		t.Errorf("%+v", d)
	}
	req.Header = map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c9"}}
	if d := admission.Decide(req, anything(t), inputs()).Decision; d.Session != "s1" || d.Verdict != events.Allow {
		t.Errorf("%+v", d)
	}
	req.Header[events.HeaderToolCallID] = []string{"other"}
	if out := admission.Decide(req, anything(t), inputs()); codes(out) != "deny header_conflict" {
		t.Error(codes(out))
	}
	req = request("tool", toolCall)
	req.Header = nil
	if out := admission.Decide(req, anything(t), inputs()); codes(out) != "allow tool_call_id_missing@/callId weak_scope ok" {
		t.Error(codes(out))
	}
}

func TestEvaluateLine(t *testing.T) {
	for protocol, body := range map[string]string{"tool": toolCall, "handoff": handoffCall} {
		for snap, want := range map[*admission.Config]string{nil: "policy_not_configured", anything(t): `"reason":"ok"`} {
			got := admission.EvaluateLine([]byte(body), admission.Offline{Protocol: protocol, Now: noon, Config: snap})
			var v admission.OfflineResult
			if err := json.Unmarshal(got, &v); err != nil || !strings.Contains(string(v.Reply), want) || (snap == nil) != (v.Verdict == events.Deny) {
				t.Errorf("%v: %s", err, got)
			}
		}
	}
}

func FuzzDecide(f *testing.F) {
	for _, s := range []string{toolCall, handoffCall, "", "{}", "[]", `{"toolName":"a","agentName":"b","turn":1,"rawArguments":"{bad"}`, `{"toAgentName":"x","fromAgentName":"y","turn":1,"handoffPayload":null}`} {
		f.Add(s, true)
		f.Add(s, false)
	}
	snap := snapshot(f, pol("t", "", "allow ok: true", "ask a: has(args.x)"), pol("h", "{toAgents: ['?*']}", "allow ok: true", "deny no soft: has(args.x)"))
	f.Fuzz(func(t *testing.T, body string, handoff bool) {
		protocol := "tool"
		if handoff {
			protocol = "handoff"
		}
		out := admission.Decide(request(protocol, body), snap, inputs())
		invariants(t, out, body)
	})
}

func BenchmarkDecide(b *testing.B) {
	snap := anything(b)
	for name, body := range map[string]string{"tool": toolCall, "handoff": handoffCall} {
		req, in := request(name, body), inputs()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out := admission.Decide(req, snap, in)
				if _, err := out.Reply(); err != nil || out.Decision.Verdict != events.Allow {
					b.Fatal(codes(out))
				}
				if _, err := out.AccompanyingEvents(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
