package aioc

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
)

// Native implements call.Protocol.
func (Tool) Native(v events.Verdict) string { return native(v) }

// Native implements call.Protocol.
func (Handoff) Native(v events.Verdict) string { return native(v) }

// native: aioc has no defer, and whatever is none of its words is deny.
func native(v events.Verdict) string {
	switch v {
	case events.Allow:
		return wire.Allow
	case events.Ask, events.Defer:
		return wire.RequireApproval
	}
	return wire.Deny
}

// Reply implements call.Protocol for callers that know no ruling.
func (p Tool) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	return p.RuledReply(c, d, call.Ruling{Failed: reason})
}

// Reply implements call.Protocol for callers that know no ruling.
func (p Handoff) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	return p.RuledReply(c, d, call.Ruling{Failed: reason})
}

// RuledReply implements call.Ruled: the PolicyResult, in RFC 8785 form.
func (Tool) RuledReply(c call.Call, d events.Decision, r call.Ruling) ([]byte, error) {
	return reply(c, d, r)
}

// RuledReply implements call.Ruled: the PolicyResult, in RFC 8785 form.
func (Handoff) RuledReply(c call.Call, d events.Decision, r call.Ruling) ([]byte, error) {
	return reply(c, d, r)
}

func reply(c call.Call, d events.Decision, r call.Ruling) ([]byte, error) {
	result := resultOf(c, d, r)
	result.Metadata = merge(replyMetadata(c, d), result.Metadata)
	b, err := result.Encode()
	if err != nil {
		return nil, fmt.Errorf("aioc: rendering the reply: %w", err)
	}
	// What the matrix would not let pass must not go out as an allow.
	if settled := Settle(Returned{Configured: true, Value: b}, d.DecidedAt.Time); settled.Decision != result.Decision || settled.Reason != result.Reason {
		return settled.Encode()
	}
	return b, nil
}

// resultOf is the policy result without the metadata of a reply.
func resultOf(c call.Call, d events.Decision, r call.Ruling) wire.PolicyResult {
	s := settle(c, d, r)
	result := wire.PolicyResult{Decision: native(d.Verdict), Reason: s.reason, PublicReason: s.public, ExpiresAt: d.ExpiresAt.String(), Metadata: s.metadata}
	if d.Verdict != events.Allow {
		result.ResultMode = wire.ModeThrow
		if s.soft {
			result.ResultMode = wire.ModeToolResult
		}
	}
	if d.Policy != nil && d.Policy.Name != "" {
		result.PolicyVersion = d.Policy.Name
		if d.Policy.Revision > 0 {
			result.PolicyVersion = fmt.Sprintf("%s@%d", d.Policy.Name, d.Policy.Revision)
		}
	}
	return result
}

// settlement is the reason of a reply and what belongs to it.
type settlement struct {
	reason, public string
	soft           bool
	metadata       map[string]any
}

// settle finds the reason. The RFC's own come before ours, except that nothing
// else matters where the proposal itself is at fault: a policy that trips over
// arguments that are not there has no error.
func settle(c call.Call, d events.Decision, r call.Ruling) settlement {
	for _, find := range []func(call.Call, events.Decision, call.Ruling) (settlement, bool){
		failure, malformed, noPolicy, objection, policyError, noMatch,
	} {
		if s, ok := find(c, d, r); ok {
			return s
		}
	}
	s := settlement{reason: r.Policies.Code, public: r.Policies.Message, soft: r.Policies.Mode == policy.ModeToolResult}
	if s.reason == "" { // a deny of the policies' that no rule gave
		s.reason = ReasonInvalid
		if len(r.Policies.Reasons) > 0 {
			s.reason = r.Policies.Reasons[0].Code
		}
	}
	return s
}

// failures are the service's own failures that the RFC has a word for.
var failures = map[string]settlement{
	"internal_error":    {reason: ReasonError, metadata: map[string]any{"errorName": errorName}},
	"deadline_exceeded": {reason: ReasonError, metadata: map[string]any{"errorName": deadlineName}},
}

func failure(_ call.Call, _ events.Decision, r call.Ruling) (settlement, bool) {
	if s, ok := failures[r.Failed]; ok {
		return s, true
	}
	return settlement{reason: r.Failed}, r.Failed != ""
}

func malformed(_ call.Call, _ events.Decision, r call.Ruling) (settlement, bool) {
	return settlement{reason: r.Own.Because}, r.Own.Malformed
}

// general reports whether the policies as a whole, and not one of their rules,
// gave a code. A rule may have any word for its reason.
func general(r call.Ruling, code string) bool {
	for _, reason := range r.Policies.Reasons {
		if reason.Code == code && reason.Action == "" && !strings.Contains(reason.Policy, "/") {
			return true
		}
	}
	return false
}

func noPolicy(_ call.Call, _ events.Decision, r call.Ruling) (settlement, bool) {
	if general(r, policy.CodePolicyError) {
		return settlement{reason: ReasonError, metadata: map[string]any{"errorName": errorName}}, true
	}
	return settlement{reason: ReasonNotConfigured}, general(r, policy.CodeNoPolicy)
}

// objection is what is wrong with the proposal itself.
func objection(c call.Call, d events.Decision, r call.Ruling) (settlement, bool) {
	switch {
	case r.Own.Because != "" && r.Own.Verdict == d.Verdict:
		if r.Own.Because == CodeReservedName {
			return settlement{reason: unconfigured(c, d)}, true
		}
		return settlement{reason: r.Own.Because}, true
	case general(r, CodeInvalidArguments):
		return settlement{reason: CodeInvalidArguments}, true
	}
	return settlement{}, false
}

// policyError: a policy that threw denies with this reason, whatever others say.
func policyError(_ call.Call, _ events.Decision, r call.Ruling) (settlement, bool) {
	name := errorName
	if f := r.Policies.Fault; f == policy.FaultLimit || f == policy.FaultMemory || f == policy.FaultDeadline {
		name = deadlineName
	}
	return settlement{reason: ReasonError, metadata: map[string]any{"errorName": name}}, r.Policies.Fault != ""
}

// noMatch: names are exact, so that one in another case is nobody's.
func noMatch(c call.Call, d events.Decision, r call.Ruling) (settlement, bool) {
	if general(r, policy.CodeNoMatch) {
		return settlement{reason: unconfigured(c, d)}, true
	}
	cased := general(r, policy.CodeToolNameCase) || general(r, policy.CodeAgentNameCase)
	return settlement{reason: unconfigured(c, d)}, cased && r.Policies.Code == ""
}

func unconfigured(c call.Call, d events.Decision) string {
	if d.Protocol == NameHandoff {
		return reasonNoHandoff + c.ToAgent
	}
	return reasonNoTool + c.Tool
}

// replyMetadata is the metadata of every reply. The hashes are plain: the caller
// has what they are made of.
func replyMetadata(c call.Call, d events.Decision) map[string]any {
	m := map[string]any{"decisionId": d.DecisionID, "verdict": string(d.Verdict)}
	if p, ok := c.Own.(*proposal); ok {
		m["proposalHash"], m["argsHash"] = p.hashes.Proposal, p.hashes.Payload
		if d.Protocol == NameHandoff {
			m["payloadHash"] = p.hashes.Payload
		}
	}
	if d.Policy != nil {
		m["policyDigest"] = d.Policy.Digest
	}
	if a := d.Approval; a != nil {
		m["approval"] = map[string]any{"workflowId": a.WorkflowID, "actionId": a.ActionID, "status": a.Status,
			"requestedAt": a.RequestedAt.String(), "expiresAt": a.ExpiresAt.String(), "resumePolicy": a.ResumePolicy}
	}
	return m
}

func merge(a, b map[string]any) map[string]any {
	for k, v := range b {
		a[k] = v
	}
	return a
}
