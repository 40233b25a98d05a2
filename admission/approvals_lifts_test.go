package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/events"
)

// TestWhatAnApprovalLifts is the table of docs/approvals.md, row by row: the
// workflow of every case is forced to approved, and the call asks again. Only an
// ask that an approval answers becomes an allow.
func TestWhatAnApprovalLifts(t *testing.T) {
	const (
		write   = `"authorization_state":"confirmed"`
		refs    = `"evidence_refs":[{"source_id":"desk.approval","kind":"approval"`
		accept  = `"recommended_route":"accept"`
		unknown = `{"tool_name":"frobnicate","tool_category":"unknown","authorization_state":"none","evidence_refs":[],"risk_domain":"unknown","proposed_arguments":{"n":1},"recommended_route":"defer"}`
	)
	aanaBody := func(old string, more ...string) string {
		return edit(t, confirmedWrite, append([]string{old}, more...)...)
	}
	for _, tc := range []struct {
		name, protocol, body string
		snap                 *Config
		asked, after         events.Verdict
	}{
		{"a policy's ask", agenthook.Name, preToolUse, asking(t), events.Ask, events.Allow},
		{"a policy's defer", agenthook.Name, preToolUse, rules(t, "defer later: true"), events.Defer, events.Defer},
		{"a policy's ask beside a defer", agenthook.Name, preToolUse, rules(t, "ask external: true", "defer later: true"), events.Defer, events.Defer},
		{"a declared need of a person", agenthook.Name, edit(t, preToolUse, `"metadata":{`, `"metadata":{"risk":{"risk_class":"write","requires_human_approval":true},`),
			allowAll(t), events.Ask, events.Allow},

		{"a write without confirmation", aana.Name, aanaBody(write, `"authorization_state":"validated"`), allowAll(t), events.Ask, events.Allow},
		{"a write that only the user claims", aana.Name, aanaBody(write, `"authorization_state":"user_claimed"`), allowAll(t), events.Ask, events.Allow},
		{"a confirmation that no evidence supports", aana.Name, aanaBody(refs, `"evidence_refs":[{"source_id":"desk.approval","kind":"other"`),
			allowAll(t), events.Ask, events.Allow},
		{"the runtime recommends to ask", aana.Name, aanaBody(accept, `"recommended_route":"ask"`), allowAll(t), events.Ask, events.Allow},
		{"a policy's ask about a confirmed write", aana.Name, confirmedWrite, asking(t), events.Ask, events.Allow},
		{"the runtime recommends to defer", aana.Name, aanaBody(accept, `"recommended_route":"defer"`), allowAll(t), events.Defer, events.Defer},
		{"a policy's ask, and the runtime recommends to defer", aana.Name, aanaBody(accept, `"recommended_route":"defer"`), asking(t), events.Defer, events.Defer},
		{"a write without authorization", aana.Name, aanaBody(write, `"authorization_state":"none"`), allowAll(t), events.Defer, events.Defer},
		{"an unknown tool without evidence", aana.Name, unknown, allowAll(t), events.Defer, events.Defer},
		{"stale evidence", aana.Name, aanaBody(write, `"authorization_state":"validated"`, `"status":"fresh"`, `"status":"stale"`), allowAll(t), events.Defer, events.Defer},
		{"a read of a person that is called public", aana.Name,
			aanaBody(`"tool_category":"write"`, `"tool_category":"public_read"`, `"send_mail"`, `"get_note"`, `{"to":"a@example.com"`, `{"customer_id":"c-1"`), allowAll(t), events.Ask, events.Ask},
		{"a private read by who is not authenticated", aana.Name,
			aanaBody(`"tool_category":"write"`, `"tool_category":"private_read"`, `"send_mail"`, `"get_note"`, write, `"authorization_state":"user_claimed"`), allowAll(t), events.Ask, events.Ask},
		{"a policy's ask about a read that is called public", aana.Name,
			aanaBody(`"tool_category":"write"`, `"tool_category":"public_read"`, `"send_mail"`, `"get_note"`, `{"to":"a@example.com"`, `{"customer_id":"c-1"`), asking(t), events.Ask, events.Ask},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShelf()
			header := []string{events.HeaderSession, "s1", events.HeaderToolCallID, "c1"}
			if tc.protocol == agenthook.Name {
				header = nil
			}
			asked := s.ask(t, tc.protocol, tc.body, tc.snap, 0, header...)
			if asked.Decision.Verdict != tc.asked || asked.Decision.Approval == nil {
				t.Fatalf("asked: %s %+v", codes(asked), asked.Decision.Approval)
			}
			s.approveByForce(t, tc.snap, tc.after == events.Allow)
			out := s.ask(t, tc.protocol, tc.body, tc.snap, time.Minute, header...)
			if out.Decision.Verdict != tc.after {
				t.Errorf("approved: %s", codes(out))
			}
			if tc.after == events.Allow {
				return
			}
			if !strings.HasSuffix(codes(out), approval.ReasonNotEnough) || out.Consumption.Approval != nil && out.Consumption.Approval.Consumes {
				t.Errorf("%s: %+v", codes(out), out.Consumption.Approval)
			}
			if tc.protocol == aana.Name {
				sameEnvelope(t, replyOf(t, asked), replyOf(t, out))
			}
		})
	}
}

// approveByForce lets a reviewer approve the only workflow. The one of a verdict
// that no approval lifts refuses, and is made an approved one nonetheless: the
// decision itself must hold.
func (s *shelf) approveByForce(t testing.TB, snap *Config, lifts bool) {
	t.Helper()
	for slot, w := range s.held {
		command := approval.Command{Act: approval.ActApprove, Reviewer: "dana", PreviewDigest: w.PreviewDigest, At: noon.Add(time.Second),
			CurrentPolicy: events.PolicyRef{Revision: snap.Revision, Digest: snap.Policies.Digest()}}
		_, code, changed := w.Resolve(command)
		if changed != lifts || !lifts && code != approval.CodeUnapprovable {
			t.Errorf("the reviewer gets %s", code)
		}
		w.Unapprovable = false
		next, code, changed := w.Resolve(command)
		if !changed {
			t.Fatal(code)
		}
		s.held[slot], s.rev[slot] = next, s.rev[slot]+1
	}
}

// sameEnvelope compares what a client of the contract goes by.
func sameEnvelope(t *testing.T, asked, after map[string]any) {
	t.Helper()
	for _, key := range []string{"recommended_action", "gate_decision"} {
		if asked[key] != after[key] {
			t.Errorf("%s: %v, and %v after the approval", key, asked[key], after[key])
		}
	}
	if blockers, _ := after["hard_blockers"].([]any); len(blockers) == 0 && after["recommended_action"] != "defer" {
		t.Errorf("no hard blocker is left: %v", after)
	}
}

// TestApprovalOfAWeakerRequest: the same call with weaker evidence, or with a
// stricter route of the runtime's own, is not what was approved.
func TestApprovalOfAWeakerRequest(t *testing.T) {
	header := []string{events.HeaderSession, "s1", events.HeaderToolCallID, "c1"}
	asked := edit(t, confirmedWrite, `"authorization_state":"confirmed"`, `"authorization_state":"validated"`)
	for name, weaker := range map[string]string{
		"deferred by the runtime": edit(t, asked, `"recommended_route":"accept"`, `"recommended_route":"defer"`),
		"refused by the runtime":  edit(t, asked, `"recommended_route":"accept"`, `"recommended_route":"refuse"`),
		"an unknown category":     edit(t, asked, `"tool_category":"write"`, `"tool_category":"unknown"`),
		"no authorization":        edit(t, asked, `"authorization_state":"validated"`, `"authorization_state":"none"`),
	} {
		t.Run(name, func(t *testing.T) {
			s, snap := newShelf(), asking(t)
			s.ask(t, aana.Name, asked, snap, 0, header...)
			s.resolve(t, approval.ActApprove, snap, time.Second)
			if out := s.ask(t, aana.Name, weaker, snap, time.Minute, header...); out.Decision.Verdict == events.Allow {
				t.Errorf("%s", codes(out))
			}
			if out := s.ask(t, aana.Name, asked, snap, time.Minute, header...); out.Decision.Verdict != events.Allow {
				t.Errorf("the call that was approved: %s", codes(out))
			}
		})
	}
}

// spent is what every counter has counted before.
type spent int64

func (n spent) Total(string, time.Duration, time.Time) (int64, bool) { return int64(n), true }

// TestApprovalOfAnotherAsk: an approval lifts the asks of the rules that opened its workflow, and
// no ask of another rule, although action, policies and reviewers are the same.
func TestApprovalOfAnotherAsk(t *testing.T) {
	in := func(model string) string {
		return edit(t, preToolUse, `"metadata":{`, `"metadata":{"agent_model":"`+model+`",`)
	}
	places := rules(t, "ask anywhere: true", "ask test: event.metadata.agent_model == 'test'", "ask production: event.metadata.agent_model == 'srv'")
	budget := compiled(t, `{apiVersion: countersign.dev/v1, kind: AdmissionPolicy, metadata: {name: pay}, spec: {rules: [
		{name: every, when: 'true', verdict: ask, reason: payment},
		{name: limit, when: 'true', limit: {max: 1000, per: 24h}, verdict: ask, reason: daily_budget_spent}]}}`)
	const trial = `{apiVersion: countersign.dev/v1, kind: AdmissionPolicy, metadata: {name: trial}, spec: {validationActions: [audit], rules: [
		{name: production, when: 'event.metadata.agent_model == "srv"', verdict: ask, reason: production}]}}`
	tried := compiled(t, `{apiVersion: countersign.dev/v1, kind: AdmissionPolicy, metadata: {name: p}, spec: {rules: [
		{name: every, when: 'true', verdict: ask, reason: anywhere}]}}`+"\n---\n"+trial)
	for _, tc := range []struct {
		name          string
		snap          *Config
		asked, retry  string
		before, after spent
		want          string
	}{
		{"the same rules", places, in("test"), in("test"), 0, 0, "allow anywhere test approval_granted"},
		{"one rule less", places, in("test"), in("tmp"), 0, 0, "allow anywhere approval_granted"},
		{"another rule instead", places, in("test"), in("srv"), 0, 0, "ask anywhere production approval_for_other_ask"},
		{"a rule more", places, in("tmp"), in("srv"), 0, 0, "ask anywhere production approval_for_other_ask"},
		{"a rule more that only audits", tried, in("tmp"), in("srv"), 0, 0, "allow anywhere production approval_granted"},
		{"a limit that was not reached", budget, preToolUse, preToolUse, 999, 1000, "ask payment daily_budget_spent approval_for_other_ask"},
		{"a limit that was reached before", budget, preToolUse, preToolUse, 1000, 1001, "allow payment daily_budget_spent approval_granted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShelf()
			s.counters = tc.before
			opened := s.ask(t, agenthook.Name, tc.asked, tc.snap, 0).Decision.Approval
			s.resolve(t, approval.ActApprove, tc.snap, time.Second)
			s.counters = tc.after
			out := s.ask(t, agenthook.Name, tc.retry, tc.snap, time.Minute)
			if codes(out) != tc.want || (out.Decision.Verdict == events.Allow) != (out.Decision.Approval.WorkflowID == opened.WorkflowID) {
				t.Errorf("%s, want %s", codes(out), tc.want)
			}
		})
	}
}

// TestApprovalOfOtherConditions: an approval lifts the mandate's conditions of escalation that were met when it was asked
// for, or fewer, and no others, although the reason code is the same. While it is pending, one that adds a condition replaces it.
func TestApprovalOfOtherConditions(t *testing.T) {
	m := courierMandate(t, `"required_conditions": []`, `"required_conditions": ["checkout_ready","fraud_suspected"]`,
		`"prohibited_actions": []`, `"prohibited_actions": [],"requires_trusted_ui_for_commitment":false`)
	header := []string{events.HeaderSession, "s1", events.HeaderToolCallID, "c1"}
	stating := func(conditions string) string {
		r, _ := bookingUnder(m, `"proposed_action"`, `"context":{"conditions":[`+conditions+`]},"proposed_action"`)
		return string(r.Body)
	}
	const escalated = "escalation_required@$.escalation.required_conditions evaluators_only "
	for _, tc := range []struct{ asked, retry, pending, approved string }{
		{`"checkout_ready"`, `"checkout_ready"`, "ask " + escalated + "approval_pending", "allow " + escalated + "approval_granted"},
		{`"checkout_ready"`, `"sunny","checkout_ready"`, "ask " + escalated + "approval_pending", "allow " + escalated + "approval_granted"},
		{`"checkout_ready"`, `"fraud_suspected"`, "ask " + escalated + "approval_pending", "ask " + escalated + "approval_for_other_ask"},
		{`"checkout_ready"`, `"fraud_suspected", "checkout_ready"`, "ask " + escalated + "approval_for_other_ask", "ask " + escalated + "approval_for_other_ask"},
		{`"fraud_suspected", "checkout_ready"`, `"checkout_ready"`, "ask " + escalated + "approval_pending", "allow " + escalated + "approval_granted"},
	} {
		for act, want := range map[approval.Act]string{"": tc.pending, approval.ActApprove: tc.approved} {
			s := newShelf()
			s.mandate = m
			s.ask(t, aump.Name, stating(tc.asked), EvaluatorsOnly(), 0, header...)
			if act != "" {
				s.resolve(t, act, EvaluatorsOnly(), time.Second)
			}
			if got := codes(s.ask(t, aump.Name, stating(tc.retry), EvaluatorsOnly(), time.Minute, header...)); got != want {
				t.Errorf("%s, %q, then %s: %s, want %s", tc.asked, act, tc.retry, got, want)
			}
		}
	}
}
