package format_test

import (
	"bytes"
	"testing"

	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Identifiers in Countersign's own records are kept to the letter in evidence;
// what a detector knows in them does not leave.
func TestNames(t *testing.T) {
	const session, agent, call = "press@newspaper.example", "AKIAIOSFODNN7EXAMPLE", "call for press@newspaper.example"
	w := newWorld(t)
	for protocol, request := range map[string]string{
		"aana": aanaRequest(`{}`), "aump": aumpRequest("buy_tea"), "agenthook": hookRequest("x"), "tool": `{"agentName":"` + agent + `","toolName":"t","turn":1}`,
	} {
		d := w.decided(session, request, events.Decision{Protocol: protocol, Verdict: events.Deny, Tool: "mail " + session, Agent: agent, ToolCallID: call, Action: session})
		w.call(d, events.CallDenied)
	}
	w.log(subject.Space{}.Finding(tenant, "high", session), nil, w.Encode(events.Finding{FindingID: "f", Rule: "r", Severity: events.SeverityHigh, Tenant: tenant, Session: session, ToolCallID: call,
		EventIDs: []string{}, Explanation: "it ran"}))
	for _, f := range format.Names() {
		lines, _ := written(t, f, w.items, keeps("full_transcript"))
		if len(lines) == 0 {
			t.Errorf("%s: no line", f)
		}
		for _, line := range lines {
			judge(t, f, line)
			for _, secret := range []string{session, agent} {
				if bytes.Contains(line, []byte(secret)) {
					t.Errorf("%s: %q is in %s", f, secret, line)
				}
			}
		}
	}
}
