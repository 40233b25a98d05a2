package agenthook

import (
	"encoding/json"
	"fmt"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/agenthook"
)

// Subscriber is the name under which the reply's admission_verdict speaks.
const Subscriber = "countersign"

// NativeVerdict implements call.Protocol: AgentHook has no defer, and whatever is none
// of its words is deny.
func (Evaluator) NativeVerdict(v events.Verdict) string {
	switch v {
	case events.Allow, events.Ask:
		return string(v)
	case events.Defer:
		return string(events.Ask)
	}
	return string(events.Deny)
}

// Reply implements call.Protocol (SPEC section 10, AHP-007; AH-C-070, AH-C-101).
func (p Evaluator) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	native := p.NativeVerdict(d.Verdict)
	verdict := &wire.AdmissionVerdict{Verdict: native, Reason: reason, Subscriber: Subscriber, DecidedAt: d.DecidedAt.String()}
	if d.Policy != nil {
		verdict.PolicyID = d.Policy.Name
	}
	r := wire.Reply{
		EventID: c.EventIDAsSent, Decision: native, Reason: reason, AgentID: c.Agent,
		Metadata: wire.ReplyMetadata{AdmissionVerdict: verdict, Approval: approvalBlock(d)},
	}
	b, err := marshalReply(r)
	if err != nil {
		return nil, fmt.Errorf("agenthook: rendering the reply: %w", err)
	}
	return b, nil
}

// approvalBlock is what the publisher hears of the workflow. What used an approval up
// is the decision that its Post event should name (AH-C-081).
func approvalBlock(d events.Decision) *wire.Approval {
	a := d.Approval
	if a == nil {
		return nil
	}
	required, status, ref := true, a.Status, ""
	if status == "consumed" { // AgentHook has no word for it: what was approved may now run
		status, ref = "approved", d.DecisionID
	}
	return &wire.Approval{
		Required: &required, Status: status, WorkflowID: a.WorkflowID, ActionID: a.ActionID,
		RequestedAt: a.RequestedAt.String(), ExpiresAt: a.ExpiresAt.String(), ResumePolicy: a.ResumePolicy, DecisionRef: ref,
	}
}

// marshalReply leaves event_id out where the request had no valid one: a reply must
// not answer an event that nobody sent.
func marshalReply(r wire.Reply) ([]byte, error) {
	if r.EventID != "" {
		return json.Marshal(r)
	}
	return json.Marshal(struct {
		Decision string             `json:"decision"`
		Reason   string             `json:"reason"`
		AgentID  string             `json:"agent_id,omitempty"`
		Metadata wire.ReplyMetadata `json:"metadata"`
	}{r.Decision, r.Reason, r.AgentID, r.Metadata})
}
