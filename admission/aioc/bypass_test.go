package aioc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// invariants hold for every request whatsoever.
func invariants(t interface{ Fatalf(string, ...any) }, out admission.Outcome, body string) {
	d := out.Decision
	reply, err := out.Reply()
	if err != nil || !d.Verdict.Valid() || len(d.Reasons) == 0 {
		t.Fatalf("%v: %+v", err, d)
	}
	for _, r := range d.Reasons {
		if r.Code == admission.CodeInternal {
			t.Fatalf("an evaluator panicked on %s", body)
		}
	}
	var r wire.PolicyResult
	if err := json.Unmarshal(reply, &r); err != nil || strings.TrimSpace(r.Reason) == "" || r.Decision != d.NativeVerdict {
		t.Fatalf("%v: %s", err, reply)
	}
	if (r.Decision == wire.Allow) != (d.Verdict == events.Allow) || (r.ResultMode == "") != (r.Decision == wire.Allow) {
		t.Fatalf("%s for %s", reply, d.Verdict)
	}
	list, err := out.AccompanyingEvents()
	if err != nil || len(list) != 1 && !out.Malformed || len(list) != 0 && out.Malformed {
		t.Fatalf("%d trace events, %v: %s", len(list), err, body)
	}
	for _, e := range list {
		trace, err := wire.DecodePolicyEvaluated(e.Body)
		if err != nil || trace.Decision != r.Decision || trace.Reason != r.Reason || trace.ResultMode != r.ResultMode || trace.Turn < 1 || trace.Agent == "" {
			t.Fatalf("%v: %s beside %s", err, e.Body, reply)
		}
	}
	record, err := events.Encode(d)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if _, err := events.DecodeRecord[events.Decision](record); err != nil {
		t.Fatalf("%v", err)
	}
	if _, err := strictjson.ParseObject([]byte(body), strictjson.DefaultLimits); err != nil && d.Verdict != events.Deny {
		t.Fatalf("%s for what cannot be parsed", d.Verdict)
	}
}

// A rule may have any word for its reason; it must not pass for one of the
// policies' own.
func TestReasonsOfRulesAreTakenAsTheyAre(t *testing.T) {
	for _, word := range []string{"no_policy", "no_policy_match", "policy_error", "tool_name_case", "invalid_arguments", "policy_not_configured", "invalid_policy_result"} {
		for verdict, want := range map[string]string{"allow": "allow " + word, "ask": "require_approval " + word + " throw", "deny": "deny " + word + " throw"} {
			out := decide(toolCall, snapshot(t, pol("p", "", verdict+" "+word+": true")))
			if got := says(t, out); got != want || resultOf(t, out).Metadata["errorName"] != nil {
				t.Errorf("%s %s: %s", verdict, word, got)
			}
		}
	}
}

func TestRuleNamesAreInNoReply(t *testing.T) {
	out := decide(toolCall, snapshot(t, pol("p", "", "deny no: true")))
	b, err := out.Reply()
	if err != nil || bytes.Contains(b, []byte("r0")) {
		t.Errorf("%v %s", err, b)
	}
}

func keys(t testing.TB) (signing.PrivateKey, signing.KeySet) {
	t.Helper()
	k, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k, signing.KeySet{k.ID: k.Public()}
}

// A permission to hand over to one agent does not cover another agent with the same tool name,
// nor a tool, another payload or another source agent.
func TestBypassReceiptOfAHandoff(t *testing.T) {
	out := decide(handoffCall, anything(t))
	k, ks := keys(t)
	token, _, err := receipt.Issue(k, out.Claims)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(tool, from, to string, payload any) error {
		args, err := wire.HandoffArguments(from, to, payload)
		if err != nil {
			t.Fatal(err)
		}
		_, err = receipt.Verify(ks, token, receipt.Expectation{Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "call-1", Tool: tool, ArgsCanonical: args}, noon)
		return err
	}
	payload := map[string]any{"reason": secret}
	if err := verify("handoff_to_finance_agent", "Triage Agent", "Finance Agent", payload); err != nil {
		t.Fatal(err)
	}
	if err := verify("handoff_to_finance_agent", "Triage Agent", "finance-agent", payload); !errors.Is(err, receipt.ErrOtherArguments) {
		t.Error(err)
	}
	if err := verify("handoff_to_finance_agent", "Intern", "Finance Agent", payload); !errors.Is(err, receipt.ErrOtherArguments) {
		t.Error(err)
	}
	if err := verify("handoff_to_finance_agent", "Triage Agent", "Finance Agent", nil); !errors.Is(err, receipt.ErrOtherArguments) {
		t.Error(err)
	}
	if err := verify("delete_db", "Triage Agent", "Finance Agent", payload); !errors.Is(err, receipt.ErrOtherCall) {
		t.Error(err)
	}
}

func TestBypassArgumentsChangedAfterAllow(t *testing.T) {
	out := decide(toolCall, anything(t))
	k, ks := keys(t)
	token, _, err := receipt.Issue(k, out.Claims)
	if err != nil {
		t.Fatal(err)
	}
	want := receipt.Expectation{Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "call-1", Tool: "export_report", ArgsCanonical: []byte(`{"n":1,"reportId":"hunter2-secret"}`)}
	if _, err := receipt.Verify(ks, token, want, noon); err != nil {
		t.Fatal(err)
	}
	want.ArgsCanonical = []byte(`{"n":1,"reportId":"other"}`)
	if _, err := receipt.Verify(ks, token, want, noon); !errors.Is(err, receipt.ErrOtherArguments) {
		t.Error(err)
	}
}

func TestBypassApprovedByToolNameInsteadOfArguments(t *testing.T) {
	snap := snapshot(t, pol("p", "", `allow ok: args.reportId == "public"`))
	if got := decide(toolCall, snap); got.Decision.Verdict != events.Deny {
		t.Error(codes(got))
	}
	// The text that a person reads and the value that runs must be one.
	body := edit(t, toolCall, `"parsedArguments":{"reportId":"hunter2-secret"`, `"parsedArguments":{"reportId":"public"`)
	if got := decide(body, snap); codes(got) != "deny arguments_mismatch@/parsedArguments" {
		t.Error(codes(got))
	}
}

func TestBypassPublisherApprovesItself(t *testing.T) {
	body := edit(t, toolCall, `"context":{`, `"approvalGrants":[{"proposalHash":"x","approvedAt":"2026-11-20T11:00:00Z"}],"context":{"approved":true,"isApproved":true,"approval_granted":true,"humanApproval":true,`)
	for _, when := range []string{"event.runContext.context.approved == true", "has(event.runContext.approvalGrants)", "has(event.runContext.context.approved)",
		"event.runContext.context.isApproved == true", "event.runContext.context.approval_granted == true", "event.runContext.context.humanApproval == true"} {
		out := decide(body, snapshot(t, pol("p", "", "allow claimed: "+when)))
		if out.Decision.Verdict != events.Deny || !strings.Contains(codes(out), "publisher_approval_ignored@/runContext") {
			t.Errorf("%s: %s", when, codes(out))
		}
	}
	if out := decide(body, anything(t)); out.Decision.Verdict != events.Allow {
		t.Error(codes(out))
	}
}

func TestBypassEmptyOrMisspeltPolicyDirectory(t *testing.T) {
	for _, files := range []fstest.MapFS{{}, {"polices.yaml.txt": {Data: []byte("builtin: evaluators-only")}}} {
		_, err := policy.LoadDir(files)
		if got := says(t, decide(toolCall, &admission.Config{PolicyErr: err})); got != "deny policy_not_configured throw" {
			t.Error(got)
		}
	}
}

func TestBypassPrototypeNames(t *testing.T) {
	names := []string{"__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"}
	exact := snapshot(t, pol("t", "{tools: ["+strings.Join(names, ", ")+"]}", "allow ok: true"), pol("h", "{toAgents: ["+strings.Join(names, ", ")+"]}", "allow ok: true"))
	for _, name := range names {
		for _, snap := range []*admission.Config{anything(t), exact} {
			if got := says(t, decide(edit(t, toolCall, "export_report", name), snap)); got != "deny deny_unconfigured_tool_"+name+" throw" {
				t.Error(got)
			}
			if got := says(t, decide(edit(t, handoffCall, "Finance Agent", name), snap)); got != "deny deny_unconfigured_handoff_"+name+" throw" {
				t.Error(got)
			}
		}
	}
}

// A tool's policy is no handoff's, and the other way round, even where one
// request is sent to the other protocol.
func TestBypassByTheOtherProtocol(t *testing.T) {
	for protocol, body := range map[string]string{"handoff": toolCall, "tool": handoffCall} {
		out := admission.Decide(request(protocol, body), anything(t), inputs())
		if out.Decision.Verdict != events.Deny || !out.Malformed {
			t.Errorf("%s: %s", protocol, codes(out))
		}
	}
	// A tool with the name of a handoff is a tool.
	out := decide(edit(t, toolCall, "export_report", "handoff_to_finance_agent"), snapshot(t, pol("h", "{toAgents: ['*']}", "allow ok: true"), pol("t", "{tools: [x]}", "allow ok: true")))
	if got := says(t, out); got != "deny deny_unconfigured_tool_handoff_to_finance_agent throw" {
		t.Error(got)
	}
}

// An upstream grant holds forever and for every caller that makes the same proposal. Here a
// result is bound to the call, whatever its proposal hash is.
func TestBypassProposalHashIsNoAuthority(t *testing.T) {
	a := decide(toolCall, anything(t))
	req := request("tool", toolCall)
	req.Header[events.HeaderSession] = []string{"s2"}
	b := admission.Decide(req, anything(t), inputs())
	if resultOf(t, a).Metadata["proposalHash"] != resultOf(t, b).Metadata["proposalHash"] {
		t.Error("the proposal hash covers more than upstream's")
	}
	if a.Claims.Session == b.Claims.Session {
		t.Error("the receipt covers less")
	}
	asks := snapshot(t, pol("p", "", "ask a: true"))
	if x, y := decide(toolCall, asks), admission.Decide(req, asks, inputs()); x.Decision.Approval.ActionID == y.Decision.Approval.ActionID {
		t.Error("two sessions ask about one action")
	}
}

// Over requests and policies at random: invariants hold, an allow has a rule, no
// policy is ever policy_not_configured, and one more restricting policy never
// loosens.
func TestGateProperties(t *testing.T) {
	names := []string{"export_report", "Export_Report", "x", "constructor", "Finance Agent", "finance agent", "HR", "a\u200b", " "}
	args := []string{`{}`, `{"n":1}`, `{"n":"1"}`, `[]`, `null`, `{"__raw":"x"}`, `{"1":2}`, `{"n":{"__proto__":1}}`}
	matches := []string{"", "{tools: [export_report]}", "{tools: ['*']}", "{protocols: [tool]}", "{toAgents: ['*']}", "{toAgents: [Finance Agent]}", "{fromAgents: ['?*'], protocols: [handoff]}", "{protocols: [handoff]}"}
	rules := []string{"allow ok: true", "allow n: args.n == 1", "ask a soft: true", "defer d: true", "deny no soft: true", "deny hard: true", "allow never: false"}
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(list []string, what string) string { return rapid.SampledFrom(list).Draw(rt, what) }
		protocol, body := "tool", fmt.Sprintf(`{"agentName":"A","toolName":%q,"parsedArguments":%s,"turn":1}`, pick(names, "tool"), pick(args, "args"))
		if rapid.Bool().Draw(rt, "handoff") {
			protocol, body = "handoff", fmt.Sprintf(`{"fromAgentName":%q,"toAgentName":%q,"handoffPayload":%s,"turn":1}`, pick(names, "from"), pick(names, "to"), pick(args, "payload"))
		}
		var docs []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "policies") {
			docs = append(docs, pol(fmt.Sprintf("p%d", i), pick(matches, "match"), pick(rules, "rule")))
		}
		ask := func(snap *admission.Config) admission.Outcome {
			out := admission.Decide(request(protocol, body), snap, inputs())
			invariants(rt, out, body)
			return out
		}
		if got := ask(nil); !got.Malformed && got.Decision.Reasons[len(got.Decision.Reasons)-1].Code != policy.CodeNoPolicy {
			rt.Fatalf("%s", codes(got))
		}
		before := ask(snapshot(t, docs...))
		if d := before.Decision; d.Verdict == events.Allow && (d.Policy == nil || d.Policy.Name == "") {
			rt.Fatalf("nobody allowed it: %s", codes(before))
		}
		after := ask(snapshot(t, append(docs, pol("z", pick([]string{"{protocols: [tool]}", "{protocols: [handoff]}", "{toAgents: ['*']}", "{tools: ['*']}"}, "more"), pick(rules[2:6], "restricts")))...))
		if before.Decision.Verdict != events.Deny && after.Decision.Verdict.Strictness() < before.Decision.Verdict.Strictness() || before.Decision.Verdict == events.Deny && after.Decision.Verdict == events.Allow {
			rt.Fatalf("%s became %s", codes(before), codes(after))
		}
	})
}
