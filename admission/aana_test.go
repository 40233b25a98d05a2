package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

const confirmedWrite = `{"request_id":"req-1","agent_id":"bot","tool_name":"send_mail","tool_category":"write","authorization_state":"confirmed",` +
	`"evidence_refs":[{"source_id":"desk.approval","kind":"approval","trust_tier":"verified","redaction_status":"redacted","summary":"The owner has confirmed it.",` +
	`"retrieved_at":"2026-11-20T11:00:00Z","freshness":{"status":"fresh"},"provenance":"desk"}],"risk_domain":"commerce",` +
	`"proposed_arguments":{"to":"a@example.com","body":"hunter2-secret","n":1.0},"recommended_route":"accept"}`

func aanaRequest(body string) Request {
	r := request(aana.Name, body)
	r.Header = map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}
	return r
}

// For a protocol whose specification is the policy, tool policies can only make
// the verdict stricter; a tenant without any policy is denied all the same.
func TestToolPoliciesTighten(t *testing.T) {
	unconfirmed := edit(t, confirmedWrite, `"confirmed"`, `"user_claimed"`)
	other := compiled(t, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec: {match: {tenants: [evil]}, rules: [{name: r, when: 'true', verdict: allow, reason: ok}]}\n")
	hooks := compiled(t, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec: {match: {protocols: [agenthook]}, rules: [{name: r, when: 'true', verdict: deny, reason: no}]}\n")
	for name, k := range map[string]struct {
		body          string
		snap          *Config
		want          events.Verdict
		route, reason string // reason: the policies' first, "" for none
		blocker       string
	}{
		"no policy matches":               {confirmedWrite, rules(t, "deny no: tool == 'x'"), events.Allow, "accept", "", ""},
		"policies for another protocol":   {confirmedWrite, hooks, events.Allow, "accept", "", ""},
		"a policy allows":                 {confirmedWrite, allowAll(t), events.Allow, "accept", "ok", ""},
		"a policy asks":                   {confirmedWrite, rules(t, "ask hm: args.to == 'a@example.com'"), events.Ask, "ask", "hm", "approval_required"},
		"a policy defers":                 {confirmedWrite, rules(t, "defer hm: risk.irreversible == true"), events.Defer, "defer", "hm", "decision_deferred"},
		"a policy denies":                 {confirmedWrite, rules(t, "deny no: risk.authorization_state == 'confirmed'"), events.Deny, "refuse", "no", "denied_by_policy"},
		"a policy cannot loosen":          {unconfirmed, allowAll(t), events.Ask, "ask", "ok", "high_risk_write_missing_explicit_confirmation"},
		"the silence of policies neither": {unconfirmed, hooks, events.Ask, "ask", "", "high_risk_write_missing_explicit_confirmation"},
		"the stricter one wins":           {unconfirmed, rules(t, "deny no: true"), events.Deny, "refuse", "no", "denied_by_policy"},
		"a policy fails":                  {confirmedWrite, rules(t, "allow ok: args.nope == 1"), events.Deny, "refuse", "policy_error", "denied_by_policy"},
		"a claim is not visible":          {confirmedWrite, rules(t, "allow ok: event.authorization_state == 'confirmed'"), events.Deny, "refuse", "policy_error", "denied_by_policy"},
		"a deceptive name":                {edit(t, confirmedWrite, "send_mail", `send\u200bmail`), allowAll(t), events.Deny, "refuse", "invalid_tool_name", "invalid_tool_name"},
		"no snapshot":                     {confirmedWrite, nil, events.Deny, "refuse", "no_policy", "no_policy"},
		"no policy at all":                {confirmedWrite, &Config{PolicyErr: policy.ErrNoPolicies}, events.Deny, "refuse", "no_policy", "no_policy"},
		"no policy for the tenant":        {confirmedWrite, other, events.Deny, "refuse", "no_policy", "no_policy"},
		"broken policies":                 {confirmedWrite, &Config{PolicyErr: errors.New("p.yaml:1: no")}, events.Deny, "refuse", "policy_error", "policy_error"},
		"evaluators only":                 {confirmedWrite, EvaluatorsOnly(), events.Allow, "accept", "evaluators_only", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(aanaRequest(k.body), k.snap, inputs())
			d := out.Decision
			if d.Verdict != k.want || d.NativeVerdict != k.route {
				t.Errorf("%s %s", codes(out), d.NativeVerdict)
			}
			first := ""
			for _, r := range d.Reasons {
				if r.Evaluator == policy.EvaluatorName && first == "" {
					first = r.Code
				}
			}
			if first != k.reason || d.Reasons[0].Evaluator != aana.Name {
				t.Errorf("%s", codes(out))
			}
			reply := replyOf(t, out)
			if reply["route"] != k.route || reply["recommended_action"] != k.route || reply["architecture_decision"].(map[string]any)["route"] != k.route ||
				reply["execution_policy"].(map[string]any)["execution_allowed"] != (k.want == events.Allow) {
				t.Errorf("%v", reply)
			}
			if blockers, _ := json.Marshal(reply["hard_blockers"]); !strings.Contains(string(blockers), k.blocker) || k.blocker == "" && string(blockers) != "[]" {
				t.Errorf("%s", blockers)
			}
			if approval, _ := reply["approval"].(map[string]any); (approval != nil) != (k.want == events.Ask || k.want == events.Defer) || approval != nil && approval["workflow_id"] != d.Approval.WorkflowID {
				t.Errorf("%v", approval)
			}
			if (d.Policy == nil) != (k.snap == nil) {
				t.Errorf("%+v", d.Policy)
			}
			noSecrets(t, out)
			if text, _ := json.Marshal(reply); strings.Contains(string(text), "p/r") {
				t.Errorf("the reply names a rule: %s", text)
			}
		})
	}
	// For the other protocols silence is no leave.
	if out := Decide(request(agenthook.Name, preToolUse), rules(t, "deny no: tool == 'x'"), inputs()); codes(out) != "deny no_policy_match" {
		t.Error(codes(out))
	}
}

// reticent is a protocol that tightens and gives no reason.
type reticent struct{ call.Protocol }

func (reticent) Read(call.Request) (call.Call, call.Opinion) {
	return call.Call{Tool: "t"}, call.Opinion{Verdict: events.Allow}
}
func (reticent) HasNativeEvaluator() bool                                 { return true }
func (reticent) NativeVerdict(events.Verdict) string                      { return "" }
func (reticent) Reply(call.Call, events.Decision, string) ([]byte, error) { return []byte("{}"), nil }

func TestNoVerdictWithoutAReason(t *testing.T) {
	protocols["reticent"] = protocol{Protocol: reticent{}}
	defer delete(protocols, "reticent")
	if out := Decide(request("reticent", "{}"), rules(t, "deny no: tool == 'x'"), inputs()); codes(out) != "deny internal_error" {
		t.Error(codes(out))
	}
	if out := Decide(request("reticent", "{}"), allowAll(t), inputs()); codes(out) != "allow ok" {
		t.Error(codes(out))
	}
}

func TestAANARecordAndReceipt(t *testing.T) {
	req := aanaRequest(confirmedWrite)
	out := Decide(req, allowAll(t), inputs())
	d := out.Decision
	if d.EventID != "req-1" || d.Agent != "bot" || d.Session != "s1" || d.ToolCallID != "c1" || d.Tool != "send_mail" || d.Protocol != aana.Name || out.NoReceipt {
		t.Errorf("%+v", d)
	}
	const args = `{"body":"hunter2-secret","n":1,"to":"a@example.com"}`
	if d.ArgsDigest != digest.Keyed(inputs().TenantKey, []byte(args)) {
		t.Error(d.ArgsDigest)
	}
	want := receipt.Expectation{Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_mail", ArgsCanonical: []byte(args)}
	if err := verify(t, out, want, noon); err != nil {
		t.Error(err)
	}
	want.ArgsCanonical = []byte(strings.Replace(args, "a@", "b@", 1))
	if err := verify(t, out, want, noon); !errors.Is(err, receipt.ErrOtherArguments) {
		t.Error(err)
	}
	// The same proposal names the same action, whatever its evidence and ids.
	asks := rules(t, "ask hm: true")
	a := Decide(req, asks, inputs()).Decision.Approval.ActionID
	if b := Decide(aanaRequest(edit(t, confirmedWrite, "req-1", "req-2", "desk.approval", "desk.other")), asks, inputs()).Decision.Approval.ActionID; a != b {
		t.Error("another action")
	}
	if b := Decide(aanaRequest(edit(t, confirmedWrite, "a@example.com", "b@example.com")), asks, inputs()).Decision.Approval.ActionID; a == b {
		t.Error("the same action")
	}
}

// What comes in the place of a decision is the protocol's own refusal, and every
// record satisfies the schema of records.
func TestAANARefusals(t *testing.T) {
	for name, k := range map[string]struct {
		body    string
		spoil   func(*Request, *Inputs)
		want    string // code and description of the micro error
		blocker string
	}{
		"null":           {"null", nil, "400 not_object", "schema_validation_failed"},
		"not JSON":       {"{", nil, "400 not_json", "schema_validation_failed"},
		"too large":      {`{"a":"` + strings.Repeat("x", 1<<20) + `"}`, nil, "413 too_large", "schema_validation_failed"},
		"extra key":      {edit(t, confirmedWrite, `{`, `{"session_id":"s1",`), nil, "400 schema_invalid at /session_id", "schema_validation_failed"},
		"other version":  {edit(t, confirmedWrite, `{`, `{"schema_version":"v2",`), nil, "400 unknown_schema_version at /schema_version", "schema_validation_failed"},
		"unknown source": {confirmedWrite, func(r *Request, _ *Inputs) { r.Source = "" }, "403 unknown_source", "unknown_source"},
		"no salt":        {confirmedWrite, func(_ *Request, in *Inputs) { in.Salt = nil }, "500 internal_error", "internal_error"},
		"two sessions":   {confirmedWrite, func(r *Request, _ *Inputs) { r.Header[events.HeaderSession] = []string{"s1", "s2"} }, "400 header_conflict", "schema_validation_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			req, in := aanaRequest(k.body), inputs()
			if k.spoil != nil {
				k.spoil(&req, &in)
			}
			out := Decide(req, allowAll(t), in)
			if got := out.ErrorCode + " " + out.ErrorDescription; got != k.want || out.Decision.Verdict != events.Deny || !out.Malformed {
				t.Errorf("%s %s", got, codes(out))
			}
			reply := replyOf(t, out)
			if reply["route"] != "refuse" || reply["gate_decision"] != "fail" || reply["hard_blockers"].([]any)[0] != k.blocker || reply["contract_version"] != "aana.agent_tool_precheck.v1" {
				t.Errorf("%v", reply)
			}
			noSecrets(t, out)
			validRecord(t, out)
		})
	}
	for _, body := range []string{confirmedWrite, edit(t, confirmedWrite, "confirmed", "none", `"summary":"The owner has confirmed it."`, `"summary":"unknown"`, "verified", "unknown", "accept", "refuse")} {
		for _, p := range []Profile{ProfileHardened, ProfileReferenceSDK} {
			snap := allowAll(t)
			snap.Profile = p
			validRecord(t, Decide(aanaRequest(body), snap, inputs()))
		}
	}
	out := Decide(aanaRequest(confirmedWrite), allowAll(t), inputs())
	out.Fail(CodeAuditUnavailable)
	if reply := replyOf(t, out); reply["route"] != "refuse" || reply["execution_policy"].(map[string]any)["execution_allowed"] != false || reply["hard_blockers"].([]any)[0] != CodeAuditUnavailable {
		t.Errorf("%v", reply)
	}
}

func validRecord(t *testing.T, out Outcome) {
	t.Helper()
	b, err := events.Encode(out.Decision)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := strictjson.ReadObject(b, strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if out.Decision.Source == "" {
		return // the request has no authenticated identity
	}
	if vs := schemas.Default().Validate("countersign/decision", doc); vs != nil {
		t.Errorf("%v in %s", vs, b)
	}
}

func TestEvaluateLineWithProfiles(t *testing.T) {
	approved := edit(t, confirmedWrite, `"trust_tier":"verified"`, `"trust_tier":"unverified"`)
	for p, want := range map[Profile]string{"": `{"verdict":"ask"`, ProfileHardened: `{"verdict":"ask"`, ProfileReferenceSDK: `{"verdict":"allow"`} {
		snap := EvaluatorsOnly()
		snap.Profile = p
		o := Offline{Protocol: aana.Name, Now: noon, Config: snap}
		got := EvaluateLine([]byte(approved), o)
		if !bytes.HasPrefix(got, []byte(want)) || !bytes.Equal(got, EvaluateLine([]byte(approved), o)) {
			t.Errorf("%s: %s", p, got)
		}
	}
	line := `{"now":"2027-01-01T00:00:00Z","headers":{"Countersign-Agent":"bot"},"request":` + confirmedWrite + `}`
	if got := EvaluateLine([]byte(line), Offline{Protocol: aana.Name, Now: noon}); !bytes.Contains(got, []byte("stale_evidence")) || !bytes.HasPrefix(got, []byte(`{"verdict":"defer"`)) {
		t.Errorf("%s", got)
	}
	if got := EvaluateLine([]byte("nonsense"), Offline{Protocol: aana.Name, Now: time.Now()}); !bytes.Contains(got, []byte(`"hard_blockers":["schema_validation_failed"]`)) {
		t.Errorf("%s", got)
	}
}

// FuzzDecideAANA: no panic, no allow for what cannot be parsed, records and
// replies that can be read.
func FuzzDecideAANA(f *testing.F) {
	for _, body := range []string{confirmedWrite, "", "null", "[]", "{}", `{"evidence_refs":["a"]}`, `{"tool_name":"a","Tool_Name":"b"}`, "{\"a\":\"\xff\"}"} {
		f.Add(body, "s", true)
		f.Add(body, "", false)
	}
	snap := rules(f, "allow ok: true", `ask a: has(args.to) && args.to == "x"`)
	loose := *snap
	loose.Profile = ProfileReferenceSDK
	f.Fuzz(func(t *testing.T, body, session string, compare bool) {
		req, s := request(aana.Name, body), snap
		if session != "" {
			req.Header = map[string][]string{events.HeaderSession: {session}}
		}
		if compare {
			s = &loose
		}
		out := Decide(req, s, inputs())
		if len(out.Decision.Reasons) == 0 || strings.Contains(codes(out), CodeInternal) {
			t.Fatal(codes(out))
		}
		if _, err := strictjson.ParseObject(req.Body, strictjson.DefaultLimits); err != nil && out.Decision.Verdict != events.Deny {
			t.Fatalf("%s for what cannot be parsed", out.Decision.Verdict)
		}
		reply, err := out.Reply()
		if err != nil || !json.Valid(reply) {
			t.Fatalf("%v: %s", err, reply)
		}
		record, err := events.Encode(out.Decision)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.DecodeRecord[events.Decision](record); err != nil {
			t.Fatal(err)
		}
	})
}
