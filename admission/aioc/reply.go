package aioc

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aioc"
)

// NativeVerdict implements call.Protocol.
func (Tool) NativeVerdict(v events.Verdict) string { return nativeVerdict(v) }

// NativeVerdict implements call.Protocol.
func (Handoff) NativeVerdict(v events.Verdict) string { return nativeVerdict(v) }

// nativeVerdict maps a verdict to aioc's words. aioc has no defer; any unknown verdict is deny.
func nativeVerdict(v events.Verdict) string {
	switch v {
	case events.Allow:
		return wire.Allow
	case events.Ask, events.Defer:
		return wire.RequireApproval
	}
	return wire.Deny
}

// Reply implements call.Protocol for callers without a ruling.
func (p Tool) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	return p.ReplyWithRuling(c, d, call.Ruling{Failed: reason})
}

// Reply implements call.Protocol for callers without a ruling.
func (p Handoff) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	return p.ReplyWithRuling(c, d, call.Ruling{Failed: reason})
}

// ReplyWithRuling implements call.RulingReplier: the PolicyResult, in RFC 8785 form.
func (Tool) ReplyWithRuling(c call.Call, d events.Decision, r call.Ruling) ([]byte, error) {
	return renderReply(c, d, r)
}

// ReplyWithRuling implements call.RulingReplier: the PolicyResult, in RFC 8785 form.
func (Handoff) ReplyWithRuling(c call.Call, d events.Decision, r call.Ruling) ([]byte, error) {
	return renderReply(c, d, r)
}

func renderReply(c call.Call, d events.Decision, r call.Ruling) ([]byte, error) {
	result := resultOf(c, d, r)
	result.Metadata = mergeMetadata(replyMetadata(c, d), result.Metadata)
	b, err := result.Encode()
	if err != nil {
		return nil, fmt.Errorf("aioc: rendering the reply: %w", err)
	}
	// A result that the matrix refuses must not be sent as an allow.
	if settled := ApplyDenyMatrix(PolicyReturn{Configured: true, Value: b}, d.DecidedAt.Time); settled.Decision != result.Decision || settled.Reason != result.Reason {
		return settled.Encode()
	}
	return b, nil
}

// resultOf is the policy result without the metadata of a reply.
func resultOf(c call.Call, d events.Decision, r call.Ruling) wire.PolicyResult {
	s := findReason(c, d, r)
	result := wire.PolicyResult{Decision: nativeVerdict(d.Verdict), Reason: s.reason, PublicReason: s.public, ExpiresAt: d.ExpiresAt.String(), Metadata: s.metadata}
	if d.Verdict != events.Allow {
		result.ResultMode = wire.ModeThrow
		if s.toolResultMode {
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

// replyReason is the reason of a reply with its mode and metadata.
type replyReason struct {
	reason, public string
	toolResultMode bool
	metadata       map[string]any
}

// findReason finds the reason. The RFC's reasons come before Countersign's, except that an
// objection to the proposal itself precedes policy errors: a policy that fails on missing
// arguments has no error.
func findReason(c call.Call, d events.Decision, r call.Ruling) replyReason {
	for _, find := range []func(call.Call, events.Decision, call.Ruling) (replyReason, bool){
		serviceFailure, malformedReason, observedReason, noPolicyReason, proposalObjection, policyErrorReason, noMatchReason,
	} {
		if s, ok := find(c, d, r); ok {
			return s
		}
	}
	s := replyReason{reason: r.Policies.Code, public: r.Policies.Message, toolResultMode: r.Policies.ResultMode == policy.ModeToolResult}
	if s.reason == "" { // a deny of the policies that no rule gave
		s.reason = ReasonInvalid
		if len(r.Policies.Reasons) > 0 {
			s.reason = r.Policies.Reasons[0].Code
		}
	}
	return s
}

const reasonNotEnforced = "not_enforced" // in mode observe: the policies would not have allowed the call

// failureReasons maps the service's own failures to the RFC's reasons.
var failureReasons = map[string]replyReason{
	"internal_error":    {reason: ReasonError, metadata: map[string]any{"errorName": errorName}},
	"deadline_exceeded": {reason: ReasonError, metadata: map[string]any{"errorName": deadlineName}},
}

func serviceFailure(_ call.Call, _ events.Decision, r call.Ruling) (replyReason, bool) {
	if s, ok := failureReasons[r.Failed]; ok {
		return s, true
	}
	return replyReason{reason: r.Failed}, r.Failed != ""
}

func malformedReason(_ call.Call, _ events.Decision, r call.Ruling) (replyReason, bool) {
	return replyReason{reason: r.NativeOpinion.DecidingCode}, r.NativeOpinion.Malformed
}

// observedReason is the reason of an allow that the policies would not have given.
func observedReason(_ call.Call, d events.Decision, r call.Ruling) (replyReason, bool) {
	return replyReason{reason: reasonNotEnforced, public: strings.Join(r.Policies.Warnings, "; ")}, d.Verdict == events.Allow && d.ObservedOnly()
}

// fromPolicySet reports whether the policies as a whole, and not one of their rules, gave a
// code. A rule may use any text as its reason.
func fromPolicySet(r call.Ruling, code string) bool {
	for _, reason := range r.Policies.Reasons {
		if reason.Code == code && reason.Action == "" && !strings.Contains(reason.Policy, "/") {
			return true
		}
	}
	return false
}

func noPolicyReason(_ call.Call, _ events.Decision, r call.Ruling) (replyReason, bool) {
	if fromPolicySet(r, policy.CodePolicyError) {
		return replyReason{reason: ReasonError, metadata: map[string]any{"errorName": errorName}}, true
	}
	return replyReason{reason: ReasonNotConfigured}, fromPolicySet(r, policy.CodeNoPolicy)
}

// proposalObjection returns the reason if the proposal itself is refused.
func proposalObjection(c call.Call, d events.Decision, r call.Ruling) (replyReason, bool) {
	switch {
	case r.NativeOpinion.DecidingCode != "" && r.NativeOpinion.Verdict == d.Verdict:
		if r.NativeOpinion.DecidingCode == CodeReservedName {
			return replyReason{reason: unconfiguredReason(c, d)}, true
		}
		return replyReason{reason: r.NativeOpinion.DecidingCode}, true
	case fromPolicySet(r, CodeInvalidArguments):
		return replyReason{reason: CodeInvalidArguments}, true
	}
	return replyReason{}, false
}

// policyErrorReason: a failed policy denies with this reason, whatever other rules return.
func policyErrorReason(_ call.Call, _ events.Decision, r call.Ruling) (replyReason, bool) {
	name := errorName
	if f := r.Policies.Fault; f == policy.FaultLimit || f == policy.FaultMemory || f == policy.FaultDeadline {
		name = deadlineName
	}
	return replyReason{reason: ReasonError, metadata: map[string]any{"errorName": name}}, r.Policies.Fault != ""
}

// noMatchReason: names are exact, so a name in another case matches nothing.
func noMatchReason(c call.Call, d events.Decision, r call.Ruling) (replyReason, bool) {
	if fromPolicySet(r, policy.CodeNoMatch) {
		return replyReason{reason: unconfiguredReason(c, d)}, true
	}
	cased := fromPolicySet(r, policy.CodeToolNameCase) || fromPolicySet(r, policy.CodeAgentNameCase)
	return replyReason{reason: unconfiguredReason(c, d)}, cased && r.Policies.Code == ""
}

func unconfiguredReason(c call.Call, d events.Decision) string {
	if d.Protocol == NameHandoff {
		return reasonNoHandoff + c.ToAgent
	}
	return reasonNoTool + c.Tool
}

// replyMetadata is the metadata of every reply. The hashes are plain: the caller has their
// input.
func replyMetadata(c call.Call, d events.Decision) map[string]any {
	m := map[string]any{"decisionId": d.DecisionID, "verdict": string(d.Verdict)}
	if p, ok := c.ProtocolState.(*proposal); ok {
		m["proposalHash"], m["argsHash"] = p.hashes.Proposal, p.hashes.Payload
		if d.Protocol == NameHandoff {
			m["payloadHash"] = p.hashes.Payload
		}
	}
	if d.Policy != nil {
		m["policyDigest"] = d.Policy.Digest
	}
	addMode(m, d)
	if a := d.Approval; a != nil {
		m["approval"] = map[string]any{"workflowId": a.WorkflowID, "actionId": a.ActionID, "status": a.Status,
			"requestedAt": a.RequestedAt.String(), "expiresAt": a.ExpiresAt.String(), "resumePolicy": a.ResumePolicy}
	}
	return m
}

// addMode adds what mode observe adds to a verdict.
func addMode(m map[string]any, d events.Decision) {
	if d.Mode != "" {
		m["mode"] = d.Mode
	}
	if d.Would != "" {
		m["would"] = string(d.Would)
	}
}

func mergeMetadata(a, b map[string]any) map[string]any {
	for k, v := range b {
		a[k] = v
	}
	return a
}
