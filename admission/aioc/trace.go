package aioc

import (
	"fmt"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
)

// AccompanyingEvents implements call.EventWriter: tool_policy_evaluated.
func (Tool) AccompanyingEvents(c call.Call, d events.Decision, r call.Ruling) ([]call.AccompanyingEvent, error) {
	return newTrace(c, d, r, func(e *wire.PolicyEvaluated, _ *proposal) {
		e.Type, e.ToolName = wire.TypeToolEvaluated, c.Tool
	})
}

// AccompanyingEvents implements call.EventWriter: handoff_policy_evaluated.
func (Handoff) AccompanyingEvents(c call.Call, d events.Decision, r call.Ruling) ([]call.AccompanyingEvent, error) {
	return newTrace(c, d, r, func(e *wire.PolicyEvaluated, p *proposal) {
		e.Type, e.HandoffName, e.ToAgent = wire.TypeHandoffEvaluated, p.handoffName, c.ToAgent
	})
}

// newTrace makes the one trace event of a proposal (RFC-0002, Trace Requirements). A request
// without a proposal has none; its decision record explains it. The event has the arguments as
// the tenant's keyed digest only.
func newTrace(c call.Call, d events.Decision, r call.Ruling, name func(*wire.PolicyEvaluated, *proposal)) ([]call.AccompanyingEvent, error) {
	p, ok := c.ProtocolState.(*proposal)
	if !ok || r.NativeOpinion.Malformed {
		return nil, nil
	}
	result := resultOf(c, d, r)
	metadata := map[string]any{"decisionId": d.DecisionID, "verdict": string(d.Verdict)}
	if d.ArgsDigest != "" {
		metadata["argsDigest"] = d.ArgsDigest
	}
	if d.Policy != nil {
		metadata["policyDigest"] = d.Policy.Digest
	}
	addMode(metadata, d)
	if d.Approval != nil {
		metadata["workflowId"] = d.Approval.WorkflowID
	}
	e := wire.PolicyEvaluated{
		Timestamp: d.DecidedAt.String(), Level: wire.LevelWarn, Agent: c.Agent, Turn: p.turn, CallID: c.ToolCallID,
		Decision: result.Decision, Reason: result.Reason, PublicReason: result.PublicReason, ResultMode: result.ResultMode,
		PolicyVersion: result.PolicyVersion, ExpiresAt: result.ExpiresAt, Metadata: mergeMetadata(metadata, result.Metadata),
	}
	if d.Verdict == events.Allow {
		e.Level = wire.LevelInfo
	}
	name(&e, p)
	body, err := e.Encode()
	if err != nil {
		return nil, fmt.Errorf("aioc: rendering the trace event: %w", err)
	}
	return []call.AccompanyingEvent{{ID: d.DecisionID + "-" + e.Type, Type: e.Type, EventType: wire.CloudEventType, Body: body}}, nil
}
