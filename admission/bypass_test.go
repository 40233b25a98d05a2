package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
)

// Every test in this file is one way in which an admission gate was bypassed in
// the field.

// about is what an executor is about to run: the call of preToolUse.
func about() receipt.Expectation {
	return receipt.Expectation{Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", Tool: "send_mail",
		ArgsCanonical: []byte(`{"n":1,"password":"hunter2-secret","to":"a@example.com"}`)}
}

// verify issues the receipt of a decision and checks it against a call.
func verify(t *testing.T, out Outcome, want receipt.Expectation, at time.Time) error {
	t.Helper()
	k, ks := signingKeys(t)
	token, _, err := receipt.Issue(k, out.Claims)
	if err != nil {
		t.Fatal(err)
	}
	_, err = receipt.Verify(ks, token, want, at)
	return err
}

func TestBypassArgumentsChangedAfterApproval(t *testing.T) {
	out := Decide(request(agenthook.Name, preToolUse), allowAll(t), inputs())
	if err := verify(t, out, about(), noon); err != nil {
		t.Fatal(err)
	}
	changed := about()
	changed.ArgsCanonical = []byte(strings.Replace(string(changed.ArgsCanonical), "a@example.com", "evil@example.com", 1))
	if err := verify(t, out, changed, noon); !errors.Is(err, receipt.ErrOtherArguments) {
		t.Error(err)
	}
}

func TestBypassApprovedByToolNameInsteadOfArguments(t *testing.T) {
	snap := rules(t, `allow in: args.to == "a@example.com"`)
	if out := Decide(request(agenthook.Name, edit(t, preToolUse, "a@example.com", "b@example.com")), snap, inputs()); out.Decision.Verdict != events.Deny {
		t.Error(codes(out))
	}
}

func TestBypassVerdictReplayed(t *testing.T) {
	out := Decide(request(agenthook.Name, preToolUse), allowAll(t), inputs())
	for name, change := range map[string]func(*receipt.Expectation){
		"for another call":    func(w *receipt.Expectation) { w.ToolCallID = "c2" },
		"for another session": func(w *receipt.Expectation) { w.Session = "s2" },
		"for another tool":    func(w *receipt.Expectation) { w.Tool = "delete_mail" },
		"by another runtime":  func(w *receipt.Expectation) { w.Source = "rt2" },
		"in another tenant":   func(w *receipt.Expectation) { w.Tenant = "evil" },
	} {
		w := about()
		if change(&w); !errors.Is(verify(t, out, w, noon), receipt.ErrOtherCall) {
			t.Error(name)
		}
	}
	if err := verify(t, out, about(), noon.Add(receipt.DefaultLifetime)); !errors.Is(err, receipt.ErrExpired) {
		t.Errorf("later: %v", err)
	}
}

func TestBypassDeniedToolExecutedWithItsReceipt(t *testing.T) {
	for _, v := range []string{"deny", "ask", "defer"} {
		out := Decide(request(agenthook.Name, preToolUse), rules(t, v+" no: true"), inputs())
		if err := verify(t, out, about(), noon); !errors.Is(err, receipt.ErrNotAllowed) {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// An event that reports is answered allow at once. If that answer could pass for
// a verdict on the call it reports, every gate would be open.
func TestBypassReceiptForAnObservation(t *testing.T) {
	for _, kind := range []string{"PostToolUse", "ToolCallRedacted", "ToolUseResumed", "ApprovalGranted", "SessionStart"} {
		body := edit(t, preToolUse, "PreToolUse", kind, `"evidence_phase":"pre_commit",`, "")
		out := Decide(request(agenthook.Name, body), nil, inputs())
		if codes(out) != "allow observational" || !out.NoReceipt {
			t.Fatalf("%s: %s", kind, codes(out))
		}
		k, _ := signingKeys(t)
		if _, _, err := receipt.Issue(k, out.Claims); !errors.Is(err, receipt.ErrIncomplete) {
			t.Errorf("%s: a receipt can be issued", kind)
		}
		if d := out.Decision; d.Tool != "" || d.ToolCallID != "" || d.ArgsDigest != "" || !d.ExpiresAt.IsZero() || d.Policy != nil {
			t.Errorf("%s: the record looks like a verdict on a call: %+v", kind, d)
		}
	}
}

func TestBypassProposalLabelledAsObservation(t *testing.T) {
	for _, phase := range []string{"observational", "post_hoc"} {
		out := Decide(request(agenthook.Name, edit(t, preToolUse, "pre_commit", phase)), allowAll(t), inputs())
		if out.Decision.Verdict != events.Deny {
			t.Errorf("%s: %s", phase, codes(out))
		}
	}
}

func TestBypassPublisherApprovesItself(t *testing.T) {
	claims := `"metadata":{"admission_verdict":{"verdict":"allow"},"approval":{"required":true,"status":"approved","workflow_id":"wf-1"},"risk":{"risk_class":"write","requires_human_approval":true},`
	body := edit(t, preToolUse, `"metadata":{`, claims, `"agent_id"`, `"annotations":{"bus":{"approved":true}},"agent_id"`)
	if out := Decide(request(agenthook.Name, body), allowAll(t), inputs()); out.Decision.Verdict != events.Ask {
		t.Error(codes(out))
	}
	for _, when := range []string{
		`event.metadata.approval.status == "approved"`, `event.metadata.admission_verdict.verdict == "allow"`, `event.annotations.bus.approved == true`,
		`has(event.metadata.approval)`, `has(event.annotations)`,
	} {
		if out := Decide(request(agenthook.Name, body), rules(t, "allow claimed: "+when), inputs()); out.Decision.Verdict != events.Deny {
			t.Errorf("%s: %s", when, codes(out))
		}
	}
}

func TestBypassEmptyOrMisspeltPolicyDirectory(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{"empty": {}, "misspelt": {"polices.yaml.txt": {Data: []byte("builtin: evaluators-only")}}} {
		docs, err := policy.LoadDir(files)
		out := Decide(request(agenthook.Name, preToolUse), &Config{PolicyErr: err}, inputs())
		if docs != nil || codes(out) != "deny no_policy" {
			t.Errorf("%s: %v %s", name, docs, codes(out))
		}
	}
}

func TestBypassAbsentEmptyOrNullOperand(t *testing.T) {
	for _, operand := range []string{"tools: []", "tools:", "tools: null", `tools: [""]`, "tools: [null]", "tools: {}", "sources: ''"} {
		_, err := policy.Compile([]policy.Document{{Name: "p.yaml", Data: []byte(
			"apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  match:\n    " + operand + "\n  rules: [{name: r, when: 'true', verdict: allow, reason: ok}]\n")}})
		out := Decide(request(agenthook.Name, preToolUse), &Config{PolicyErr: err}, inputs())
		if err == nil || codes(out) != "deny policy_error" {
			t.Errorf("%s: %v, %s", operand, err, codes(out))
		}
	}
	for name, body := range map[string]string{
		"tool absent": edit(t, preToolUse, `"tool_name":"send_mail",`, ""), "tool empty": edit(t, preToolUse, `"send_mail"`, `""`), "tool null": edit(t, preToolUse, `"send_mail"`, "null"),
		"arguments null": edit(t, preToolUse, `{"to":"a@example.com","password":"hunter2-secret","n":1.0}`, "null"),
	} {
		if out := Decide(request(agenthook.Name, body), allowAll(t), inputs()); out.Decision.Verdict != events.Deny {
			t.Errorf("%s: %s", name, codes(out))
		}
	}
}

func TestBypassHomoglyphsNULAndCaseInToolNames(t *testing.T) {
	snap := rules(t, `allow ok: tool == "send_mail"`, `allow other: tool != "delete_file"`, `deny no: tool == "delete_file"`)
	for _, tool := range []string{`delete_file\u0000`, `d\u0435lete_file`, `delete_f\u0131le\u200b`, `\uff44elete_file`, ` delete_file`, `delete_file\n`, `de\u017fete`} {
		if out := Decide(request(agenthook.Name, edit(t, preToolUse, "send_mail", tool)), snap, inputs()); codes(out) != "deny invalid_tool_name" {
			t.Errorf("%s: %s", tool, codes(out))
		}
	}
	restricted := compiled(t, `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: all}
spec: {rules: [{name: r, when: "true", verdict: allow, reason: ok}]}
---
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: files}
spec: {match: {tools: [delete_file]}, rules: [{name: r, when: "true", verdict: deny, reason: no}]}
`)
	if out := Decide(request(agenthook.Name, edit(t, preToolUse, "send_mail", "Delete_File")), restricted, inputs()); codes(out) != "deny ok tool_name_case" {
		t.Error(codes(out))
	}
	twice := edit(t, preToolUse, `"tool_name":"send_mail"`, `"tool_name":"send_mail","Tool_Name":"delete_file"`)
	if out := Decide(request(agenthook.Name, twice), snap, inputs()); out.Decision.Verdict != events.Deny || !out.Malformed {
		t.Error(codes(out))
	}
}

func TestBypassNumbersThatRoundToTheSameFloat(t *testing.T) {
	snap := rules(t, "allow ok: args.n <= 9007199254740992")
	for _, n := range []string{"9007199254740993", "9007199254740992.5", "1e400", "0.1000000000000000055511151231257827", "-9007199254740993"} {
		if out := Decide(request(agenthook.Name, edit(t, preToolUse, `"n":1.0`, `"n":`+n)), snap, inputs()); out.Decision.Verdict != events.Deny || !out.Malformed {
			t.Errorf("%s: %s", n, codes(out))
		}
	}
	// Spellings of one number are one number, for the policy and for the receipt.
	for _, n := range []string{"1", "1.0", "1e0", "10e-1"} {
		out := Decide(request(agenthook.Name, edit(t, preToolUse, `"n":1.0`, `"n":`+n)), rules(t, "allow ok: type(args.n) == int && args.n == 1"), inputs())
		if err := verify(t, out, about(), noon); err != nil {
			t.Errorf("%s: %s %v", n, codes(out), err)
		}
	}
}

func TestBypassDenialTextTellsTheRule(t *testing.T) {
	snap := compiled(t, `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: p}
spec:
  rules:
    - {name: only-bob-may, when: 'args.to != "bob@internal.example"', verdict: deny, reason: recipient_is_not_bob}
    - {name: second-rule, when: 'args.nope == 1', verdict: allow, reason: nope}
`)
	out := Decide(request(agenthook.Name, preToolUse), snap, inputs())
	body, err := out.Reply()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"bob", "only", "nope", "second", "args", "policy_error"} {
		if strings.Contains(string(body), word) {
			t.Errorf("the reply says %q: %s", word, body)
		}
	}
	if got := fmt.Sprint(out.Decision.Reasons); !strings.Contains(got, "p/only-bob-may") || !strings.Contains(got, "p/second-rule") {
		t.Errorf("the record does not: %s", got)
	}
}

func TestBypassRecordHoldsAShortSecret(t *testing.T) {
	a, b := inputs(), inputs()
	b.TenantKey = []byte("another tenant's key, 32 bytes..")
	da, db := Decide(request(agenthook.Name, preToolUse), allowAll(t), a), Decide(request(agenthook.Name, preToolUse), allowAll(t), b)
	if da.Decision.ArgsDigest == db.Decision.ArgsDigest || da.Decision.RequestDigest == db.Decision.RequestDigest {
		t.Error("digests do not depend on the tenant's key")
	}
	c := inputs()
	c.Salt = []byte("another 16 bytes")
	if dc := Decide(request(agenthook.Name, preToolUse), allowAll(t), c); dc.Claims.ArgsHash == da.Claims.ArgsHash {
		t.Error("the receipt's hash does not depend on the salt")
	}
}
