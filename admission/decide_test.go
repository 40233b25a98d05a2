package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

func TestDecisionTable(t *testing.T) {
	irreversible := edit(t, toolInvoked, `"tool":`, `"irreversible":true,"tool":`)
	human := edit(t, preToolUse, `"metadata":{`, `"metadata":{"risk":{"risk_class":"write","requires_human_approval":true},`)
	for name, c := range map[string]struct {
		protocol, body string
		snap           *Config
		want, reason   string
	}{
		"allow":                   {agenthook.Name, preToolUse, allowAll(t), "allow ok", "allowed_by_policy"},
		"ask":                     {agenthook.Name, preToolUse, rules(t, "allow ok: true", "ask hm: true"), "ask ok hm", "approval_required"},
		"defer":                   {agenthook.Name, preToolUse, rules(t, "defer hm: true", "ask a: true"), "defer hm a", "decision_deferred"},
		"deny":                    {agenthook.Name, preToolUse, rules(t, "allow ok: true", "deny never: true"), "deny ok never", "denied_by_policy"},
		"by argument":             {agenthook.Name, preToolUse, rules(t, `allow in: args.to.endsWith("@example.com") && args.n == 1`), "allow in", "allowed_by_policy"},
		"no match":                {agenthook.Name, preToolUse, rules(t, "allow ok: tool == 'x'"), "deny no_policy_match", "no_policy_match"},
		"evaluation error":        {agenthook.Name, preToolUse, rules(t, "allow ok: args.nope == 1"), "deny policy_error", "denied_by_policy"},
		"no snapshot":             {agenthook.Name, preToolUse, nil, "deny no_policy", "no_policy"},
		"zero snapshot":           {agenthook.Name, preToolUse, &Config{}, "deny no_policy", "no_policy"},
		"empty directory":         {agenthook.Name, preToolUse, &Config{PolicyErr: policy.ErrNoPolicies}, "deny no_policy", "no_policy"},
		"broken file":             {agenthook.Name, preToolUse, &Config{PolicyErr: errors.New("p.yaml:1: no")}, "deny policy_error", "policy_error"},
		"broken file beside good": {agenthook.Name, preToolUse, &Config{Policies: allowAll(t).Policies, PolicyErr: errors.New("no")}, "deny policy_error", "policy_error"},
		"claim of a human":        {agenthook.Name, human, allowAll(t), "ask human_approval_required@/metadata/risk/requires_human_approval profile_invalid profile_invalid@/metadata ok", "human_approval_required"},
		"deny beats the claim":    {agenthook.Name, human, rules(t, "deny no: true"), "deny human_approval_required@/metadata/risk/requires_human_approval profile_invalid profile_invalid@/metadata no", "denied_by_policy"},
		"deceptive tool":          {agenthook.Name, edit(t, preToolUse, "send_mail", `send\u0000mail`), allowAll(t), "deny invalid_tool_name", "invalid_tool_name"},
		"observational":           {agenthook.Name, edit(t, preToolUse, "PreToolUse", "PostToolUse", `"evidence_phase":"pre_commit",`, ""), nil, "allow observational", "observational"},
		"malformed":               {agenthook.Name, "{", allowAll(t), "deny not_json", "not_json"},
		"unknown version":         {agenthook.Name, edit(t, preToolUse, `{"event_id"`, `{"schema_version":9,"event_id"`), allowAll(t), "deny unknown_schema_version@/schema_version", "unknown_schema_version"},
		"aaep":                    {aaep.Name, toolInvoked, allowAll(t), "allow ok", ""},
		"aaep irreversible":       {aaep.Name, irreversible, allowAll(t), "ask confirmation_required@/irreversible ok", ""},
		"aaep has no arguments":   {aaep.Name, toolInvoked, rules(t, "allow ok: args.to == 'x'"), "deny policy_error", ""},
		"aaep confirmation":       {aaep.Name, awaiting, rules(t, "allow ok: action == 'confirm' && risk.irreversible"), "allow ok", ""},
		"aaep malformed":          {aaep.Name, `{"type":1}`, allowAll(t), "deny not_a_request@/type", ""},
		"unknown protocol":        {"telnet", preToolUse, allowAll(t), "deny unknown_protocol", "unknown_protocol"},
		"protocol in other case":  {"AgentHook", preToolUse, allowAll(t), "deny unknown_protocol", "unknown_protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(request(c.protocol, c.body), c.snap, inputs())
			if codes(out) != c.want {
				t.Errorf("got  %s\nwant %s", codes(out), c.want)
			}
			reply := replyOf(t, out)
			if c.reason != "" && reply["reason"] != c.reason {
				t.Errorf("reason %v, want %s", reply["reason"], c.reason)
			}
			noSecrets(t, out)
			if strings.Contains(fmt.Sprint(reply), "p/r") && c.protocol == agenthook.Name {
				t.Errorf("the reply names a rule: %v", reply)
			}
		})
	}
}

func TestGoldenReplies(t *testing.T) {
	message := compiled(t, `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: mail}
spec:
  match: {tools: [send_mail]}
  expiresAfter: 5m
  rules:
    - {name: inside, when: 'args.to.endsWith("@example.com")', verdict: ask, reason: mail, message: "Mail needs a second pair of eyes."}
`)
	for name, c := range map[string]struct {
		protocol, body string
		snap           *Config
		want           string
	}{
		"agenthook allow":   {agenthook.Name, preToolUse, allowAll(t), `{"event_id":"7D444840-9dc0-11d1-b245-5ffdce74fad2","decision":"allow","reason":"allowed_by_policy","agent_id":"bot","metadata":{"admission_verdict":{"verdict":"allow","reason":"allowed_by_policy","subscriber":"countersign","policy_id":"p","decided_at":"2026-11-20T12:00:00.000000000Z"}}}`},
		"agenthook ask":     {agenthook.Name, preToolUse, message, `{"event_id":"7D444840-9dc0-11d1-b245-5ffdce74fad2","decision":"ask","reason":"Mail needs a second pair of eyes.","agent_id":"bot","metadata":{"admission_verdict":{"verdict":"ask","reason":"Mail needs a second pair of eyes.","subscriber":"countersign","policy_id":"mail","decided_at":"2026-11-20T12:00:00.000000000Z"},"approval":{"required":true,"status":"pending","workflow_id":"wf-01939d5e-0000-7000-8000-000000000001","action_id":"ACTION","requested_at":"2026-11-20T12:00:00.000000000Z","expires_at":"2026-11-20T12:05:00.000000000Z","resume_policy":"retry_same_event"}}}`},
		"agenthook refusal": {agenthook.Name, `{"event_id":"x"}`, allowAll(t), `{"decision":"deny","reason":"schema_invalid","metadata":{"admission_verdict":{"verdict":"deny","reason":"schema_invalid","subscriber":"countersign","decided_at":"2026-11-20T12:00:00.000000000Z"}}}`},
		"aaep refusal":      {aaep.Name, `[]`, allowAll(t), `{"decided_at":"2026-11-20T12:00:00.000000000Z","decision_id":"01939d5e-0000-7000-8000-000000000001","durability":"fsync","occurrence":1,"protocol":"aaep","reasons":[{"code":"not_object","evaluator":"aaep"}],"received_at":"2026-11-20T11:59:59.999000000Z","request_digest":"REQUEST","source":"rt1","tenant":"acme","verdict":"deny"}`},
		"generic":           {"x", `[]`, allowAll(t), `{"decision":"deny","reason":"unknown_protocol"}`},
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(request(c.protocol, c.body), c.snap, inputs())
			got, err := out.Reply()
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(c.want, "REQUEST", digest.Keyed(inputs().TenantKey, []byte(c.body)), 1)
			if out.Decision.Approval != nil {
				want = strings.Replace(want, "ACTION", out.Decision.Approval.ActionID, 1)
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecisionRecord(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	req := request(agenthook.Name, edit(t, preToolUse, `"tool_name"`, `"action":"send","resource_kind":"email","tool_name"`))
	req.Header = map[string][]string{events.HeaderTrace: {trace}}
	snap := allowAll(t)
	got := Decide(req, snap, inputs())
	key := inputs().TenantKey
	want := events.Decision{
		DecisionID: "01939d5e-0000-7000-8000-000000000001", EventID: "7d444840-9dc0-11d1-b245-5ffdce74fad2", Tenant: "acme", Protocol: "agenthook",
		Source: "rt1", Agent: "bot", Session: "s1", ToolCallID: "c1", Occurrence: 1, Tool: "send_mail", Action: "send", ResourceKind: "email",
		ArgsDigest:    digest.Keyed(key, []byte(`{"n":1,"password":"hunter2-secret","to":"a@example.com"}`)),
		RequestDigest: digest.Keyed(key, req.Body), Verdict: events.Allow, NativeVerdict: "allow",
		Reasons:    []events.Reason{{Evaluator: policy.EvaluatorName, Code: "ok", Policy: "p/r0"}},
		Policy:     &events.PolicyRef{Name: "p", Revision: 3, Digest: snap.Policies.Digest()},
		ReceivedAt: events.At(noon.Add(-time.Millisecond)), DecidedAt: events.At(noon), ExpiresAt: events.At(noon.Add(time.Minute)),
		Durability: "fsync", Traceparent: trace,
	}
	if diff := cmp.Diff(want, got.Decision); diff != "" {
		t.Error(diff)
	}
	if got.Session != "s1" || got.Malformed || got.ErrorCode != "" || got.NoReceipt {
		t.Errorf("%+v", got)
	}
	b, err := events.Encode(got.Decision)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.DecodeRecord[events.Decision](b); err != nil {
		t.Error(err)
	}
	again := Decide(req, snap, inputs())
	if diff := cmp.Diff(got.Decision, again.Decision); diff != "" {
		t.Error("not deterministic", diff)
	}
}

func TestLifetimes(t *testing.T) {
	long := `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: p}
spec: {expiresAfter: 2h, rules: [{name: r, when: "true", verdict: VERDICT, reason: ok}]}
`
	for verdict, want := range map[string]time.Duration{"allow": 2 * time.Hour, "ask": 2 * time.Hour, "defer": 2 * time.Hour, "deny": 0} {
		d := Decide(request(agenthook.Name, preToolUse), compiled(t, strings.Replace(long, "VERDICT", verdict, 1)), inputs()).Decision
		if got := d.ExpiresAt; want == 0 && !got.IsZero() || want != 0 && !got.Equal(noon.Add(want)) {
			t.Errorf("%s: %v", verdict, got)
		}
		if asks := verdict == "ask" || verdict == "defer"; (d.Approval != nil) != asks {
			t.Errorf("%s: approval %+v", verdict, d.Approval)
		}
	}
	d := Decide(request(agenthook.Name, preToolUse), rules(t, "ask a: true"), inputs()).Decision
	if !d.Approval.ExpiresAt.Equal(noon.Add(DefaultApprovalLifetime)) || d.Approval.WorkflowID != "wf-"+d.DecisionID {
		t.Errorf("%+v", d.Approval)
	}
}

// The same proposal names the same action, whatever the event's id; another one
// another.
func TestActionID(t *testing.T) {
	snap := rules(t, "ask a: true")
	id := func(protocol, body string) string {
		return Decide(request(protocol, body), snap, inputs()).Decision.Approval.ActionID
	}
	base := id(agenthook.Name, preToolUse)
	if !strings.HasPrefix(base, "act-") || len(base) != 36 {
		t.Error(base)
	}
	if id(agenthook.Name, edit(t, preToolUse, "7D444840", "8D444840", `"n":1.0`, `"n":1`)) != base {
		t.Error("an equivalent retry names another action")
	}
	for _, other := range [][2]string{{"a@example.com", "b@example.com"}, {"send_mail", "send_mails"}, {`"s1"`, `"s2"`}} {
		if id(agenthook.Name, edit(t, preToolUse, other[0], other[1])) == base {
			t.Errorf("%s names the same action", other[1])
		}
	}
	if id(aaep.Name, toolInvoked) == id(aaep.Name, edit(t, toolInvoked, "call_1", "call_2")) {
		t.Error("two AAEP calls name the same action")
	}
}

func TestMicroErrors(t *testing.T) {
	big := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, c := range []struct {
		protocol, body, code, description string
		spoil                             func(*Request, *Inputs)
	}{
		{agenthook.Name, preToolUse, "", "", nil},
		{agenthook.Name, "{", "400", "not_json", nil},
		{agenthook.Name, big, "413", "too_large", nil},
		{agenthook.Name, edit(t, preToolUse, "2026-11-20T11:59:59Z", "yesterday"), "400", "schema_invalid at /timestamp", nil},
		{aaep.Name, big, "413", "too_large", nil},
		{"x", "{}", "404", "unknown_protocol", nil},
		{agenthook.Name, preToolUse, "403", "unknown_tenant", func(_ *Request, in *Inputs) { in.KnownTenant = false }},
		{agenthook.Name, preToolUse, "403", "unknown_tenant", func(r *Request, _ *Inputs) { r.Tenant = "" }},
		{agenthook.Name, preToolUse, "403", "unknown_source", func(r *Request, _ *Inputs) { r.Source = "" }},
		{agenthook.Name, preToolUse, "500", "internal_error", func(_ *Request, in *Inputs) { in.Salt = in.Salt[:3] }},
		{agenthook.Name, preToolUse, "500", "internal_error", func(_ *Request, in *Inputs) { in.Nonce = "" }},
		{agenthook.Name, preToolUse, "500", "internal_error", func(_ *Request, in *Inputs) { in.DecisionID = "" }},
		{agenthook.Name, preToolUse, "500", "internal_error", func(_ *Request, in *Inputs) { in.TenantKey = nil }},
		{agenthook.Name, preToolUse, "500", "internal_error", func(_ *Request, in *Inputs) { in.Now = time.Time{} }},
	} {
		req, in := request(c.protocol, c.body), inputs()
		if c.spoil != nil {
			c.spoil(&req, &in)
		}
		out := Decide(req, allowAll(t), in)
		if out.ErrorCode != c.code || out.ErrorDescription != c.description || out.Malformed != (c.code != "") {
			t.Errorf("%s: %q %q", c.description, out.ErrorCode, out.ErrorDescription)
		}
		if c.code != "" && out.Decision.Verdict != events.Deny {
			t.Errorf("%s: %s", c.description, out.Decision.Verdict)
		}
		if c.code == "403" || c.code == "404" || c.code == "500" {
			if !out.NoReceipt || out.Claims.DecisionID != "" {
				t.Errorf("%s comes with a receipt", c.description)
			}
		}
		if c.description == "internal_error" && in.TenantKey == nil && out.Decision.RequestDigest != "" {
			t.Error("a digest without a key")
		}
		replyOf(t, out)
	}
}

func TestFailTurnsAnAllowIntoADeny(t *testing.T) {
	out := Decide(request(agenthook.Name, preToolUse), rules(t, "ask a: true"), inputs())
	out.Decision.ReceiptHash = "sha256:00"
	out.Fail(CodeAuditUnavailable)
	if codes(out) != "deny a audit_unavailable" || !out.NoReceipt || out.Claims.DecisionID != "" || out.Decision.Approval != nil || out.Decision.ReceiptHash != "" || out.Decision.NativeVerdict != "deny" {
		t.Errorf("%+v", out)
	}
	reply := replyOf(t, out)
	if reply["decision"] != "deny" || reply["reason"] != CodeAuditUnavailable {
		t.Errorf("%v", reply)
	}
}

// panicking is a protocol with a bug in it.
type panicking struct{ call.Protocol }

func (panicking) Read(r call.Request) (call.Call, call.Opinion) {
	panic("cannot read " + string(r.Body))
}
func (panicking) NativeVerdict(events.Verdict) string { return "no" }
func (panicking) Reply(call.Call, events.Decision, string) ([]byte, error) {
	panic("cannot write " + secret)
}

func TestPanicsAreDenied(t *testing.T) {
	protocols["panicking"] = protocol{Protocol: panicking{}}
	defer delete(protocols, "panicking")
	out := Decide(request("panicking", secret), allowAll(t), inputs())
	if codes(out) != "deny internal_error" || !out.NoReceipt || out.ErrorCode != "500" {
		t.Errorf("%+v", out)
	}
	record, err := json.Marshal(out.Decision)
	if err != nil || bytes.Contains(record, []byte(secret)) {
		t.Errorf("%v %s", err, record)
	}
	if body, err := out.Reply(); err == nil || body != nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%s %v", body, err)
	}
	if got := EvaluateLine([]byte(secret), Offline{Protocol: "panicking", Now: noon}); string(got) != `{"verdict":"deny","reply":{"decision":"deny","reason":"internal_error"}}` {
		t.Errorf("%s", got)
	}
}

// panicsLater is a table of confirmations with a bug in it: the panic comes from
// the middle of an evaluation.
type panicsLater struct{}

func (panicsLater) Confirmation(call.Invocation) call.Confirmation { panic(secret) }

func TestPanicInsideAnEvaluation(t *testing.T) {
	in := inputs()
	in.Confirmations = panicsLater{}
	out := Decide(request(aaep.Name, toolInvoked), allowAll(t), in)
	if codes(out) != "deny internal_error" || out.Decision.Tool != "" {
		t.Errorf("%s %+v", codes(out), out.Decision)
	}
	noSecrets(t, out)
}

func TestConfirmationsReachTheEvaluator(t *testing.T) {
	in := inputs()
	in.Confirmations = yes{}
	body := edit(t, toolInvoked, `"tool":`, `"irreversible":true,"risk_level":"high","tool":`)
	snap := allowAll(t)
	snap.Strict = true
	out := Decide(request(aaep.Name, body), snap, in)
	if codes(out) != "allow confirmation_accepted ok" || out.Consumption.Confirmation != "q1" || out.Consumption.ConfirmedInvocation == nil || out.Consumption.Unconfirmed != nil {
		t.Errorf("%s %+v", codes(out), out.Consumption)
	}
	// What is not allowed in the end uses nothing up.
	if out := Decide(request(aaep.Name, body), nil, in); out.Decision.Verdict != events.Deny || out.Consumption.Confirmation != "" {
		t.Errorf("%s %+v", codes(out), out.Consumption)
	}
	in.Confirmations = nil
	out = Decide(request(aaep.Name, body), snap, in)
	if codes(out) != "ask confirmation_required@/irreversible high_risk_unconfirmed@/risk_level ok" || out.Consumption.Confirmation != "" || out.Consumption.Unconfirmed == nil {
		t.Errorf("%s %+v", codes(out), out.Consumption)
	}
}

type yes struct{}

func (yes) Confirmation(call.Invocation) call.Confirmation {
	return call.Confirmation{Status: call.ConfirmationAccepted, ID: "q1", Explicit: true, Until: noon.Add(time.Hour)}
}

func TestProtocolsHaveAnEvaluator(t *testing.T) {
	if len(Protocols()) != len(protocols) {
		t.Error("the list and the table differ")
	}
	for _, p := range Protocols() {
		if protocols[p].Protocol == nil {
			t.Errorf("%s has none", p)
		}
	}
}
