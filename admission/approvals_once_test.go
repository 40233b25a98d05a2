package admission

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/events"
)

// TestOneAllowForOneApproval: a call was approved, and is asked for again with a claim by which it would be
// allowed without the approval. That allow uses the approval up, and then the call as it was approved asks.
func TestOneAllowForOneApproval(t *testing.T) {
	grave := edit(t, preToolUse, `"tool_input"`, `"operation_risk":"destructive_write","tool_input"`)
	mild := edit(t, preToolUse, `"tool_input"`, `"operation_risk":"read_only","tool_input"`)
	unconfirmed := edit(t, confirmedWrite, `"authorization_state":"confirmed"`, `"authorization_state":"validated"`)
	byRisk := rules(t, "ask grave: risk.level == 'high'", "allow fine: true")
	terms := func(text string) *Config {
		return compiled(t, "apiVersion: countersign.dev/v1\nkind: ReviewerGroup\nmetadata: {name: finance}\nspec: {members: [dana]}\n---\n"+
			"apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  rules:\n"+
			"    - {name: r0, when: risk.level == 'high', verdict: ask, reason: grave, approval: {"+text+"}}\n    - {name: r1, when: 'true', verdict: allow, reason: fine}\n")
	}
	m := courierMandate(t, `"required_conditions": []`, `"required_conditions": ["new_counterparty"]`)
	counterparty, _ := bookingUnder(m, `"proposed_action"`, `"context":{"conditions":["new_counterparty"]},"proposed_action"`)
	known, _ := bookingUnder(m)
	supervised := courierMandate(t, `"mode": "delegated"`, `"mode": "supervised"`)
	committed := hook(t, "book", booking, edit(t, under(supervised.Hash), `"summary"`, `"commitment":true,"summary"`))
	bare := hook(t, "book", booking, "")
	again := func(body string) string { return edit(t, body, `"c1"`, `"c2"`) }
	const used, unused = "allow approval_granted, then ask", "allow, then allow approval_granted"
	for _, tc := range []struct {
		name, protocol, asked, milder string
		snap                          *Config
		want                          string
	}{
		{"a lower risk", agenthook.Name, grave, mild, byRisk, used},
		{"with reviewers", agenthook.Name, grave, mild, terms("reviewers: [finance]"), used},
		{"without the name of the workflow", agenthook.Name, grave, mild, terms("resume: retry_with_workflow_id"), used},
		{"no condition", aump.Name, string(counterparty.Body), string(known.Body), allowAll(t), used},
		{"its own evidence", aana.Name, unconfirmed, confirmedWrite, allowAll(t), used},
		{"no mandate", agenthook.Name, committed, bare, allowAll(t), "ask approval_evasion approval_for_other_call, then allow approval_granted"},

		{"any call", agenthook.Name, grave, again(mild), terms("resume: manual_retry"), used},
		{"another id", agenthook.Name, grave, again(mild), byRisk, unused},
		{"no mandate, another id", agenthook.Name, committed, again(bare), allowAll(t), unused},
		{"other arguments", agenthook.Name, grave, edit(t, mild, "a@example.com", "b@example.com"), byRisk, unused},
		{"no arguments", agenthook.Name, grave, edit(t, mild, `"tool_input":{"to":"a@example.com","password":"hunter2-secret","n":1.0},`, ""), byRisk, unused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, header := newShelf(), []string{events.HeaderSession, "s1", events.HeaderToolCallID, "c1"}
			s.mandate = m
			if tc.protocol == agenthook.Name {
				s.mandate, header = supervised, nil // the body has a session
			}
			ask := func(body string, after time.Duration) string {
				out := s.ask(t, tc.protocol, body, tc.snap, after, header...)
				text := string(out.Decision.Verdict)
				for _, r := range out.Decision.Reasons {
					if r.Evaluator == approval.EvaluatorName {
						text += " " + r.Code
					}
				}
				return text
			}
			if first := ask(tc.asked, 0); first != "ask" {
				t.Fatal("asked:", first)
			}
			s.resolve(t, approval.ActApprove, tc.snap, time.Second)
			if got := ask(tc.milder, time.Minute) + ", then " + ask(tc.asked, 2*time.Minute); got != tc.want {
				t.Errorf("%s; want %s", got, tc.want)
			}
		})
	}
}
