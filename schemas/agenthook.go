package schemas

import (
	"slices"
	"strings"
)

// Form tells the two shapes of an action-governance event apart.
type Form string

// The forms. A request asks for admission and cannot carry the verdict yet; an
// event on the log is evidence and, where it claims pre_commit, must.
const (
	FormRequest  Form = "request"
	FormEvidence Form = "evidence"
)

const (
	agentHookEnvelope = "agenthook/envelope"
	agentHookProfile  = "agenthook/action-governance."
)

// AgentHook judges an event by the AgentHook envelope. An event of the
// action-governance profile is judged by AgentHookProfile as well.
func (r *Registry) AgentHook(tree map[string]any) []Violation {
	return tagRules(r.Validate(agentHookEnvelope, tree), agentHookCheck)
}

// AgentHookProfile judges an event of the action-governance profile (AHP-013) in
// one of its forms; any other form is taken as evidence, the stricter one. Call
// it for events of publishers that claim the profile, where ProfileCovers says
// so, after AgentHook.
func (r *Registry) AgentHookProfile(tree map[string]any, form Form) []Violation {
	if form != FormRequest {
		form = FormEvidence
	}
	t, _ := tree["event_type"].(string)
	return tagRules(r.Validate(agentHookProfile+string(form), tree), func(v Violation) string { return profileCheck(t, v) })
}

// StrictAgentHook is AgentHook and AgentHookChecks together.
func (r *Registry) StrictAgentHook(tree map[string]any) []Violation {
	return mergeViolations(r.AgentHook(tree), AgentHookChecks(tree))
}

var profileTypes = []string{"PreToolUse", "PostToolUse", "ToolCallValidated", "ToolCallRedacted", "ToolCallRetried"}

// ProfileCovers reports whether the action-governance profile speaks of events
// of this type. All others would fail it without being wrong.
func ProfileCovers(eventType string) bool { return slices.Contains(profileTypes, eventType) }

// agentHookKeys says which rule the envelope schema enforces at a top-level key.
var agentHookKeys = map[string]string{
	"event_id": "AH-C-004", "event_type": "AH-C-005", "timestamp": "AH-C-006", "source": "AH-C-007", "schema_version": "AH-C-008",
	"tool_name": "AH-C-009", "tool_input": "AH-C-010", "metadata": "AH-C-010", "annotations": "AH-C-010", "resource": "AH-C-010",
	"evidence_phase": "AH-C-011",
}

// agentHookCheck leaves the type of the remaining open strings without a rule:
// the catalogue has none for them.
func agentHookCheck(v Violation) string {
	switch v.Keyword {
	case "required":
		return "AH-C-003"
	case "additionalProperties":
		return "AH-C-002"
	}
	return agentHookKeys[topKey(v.Path)]
}

// profileCheck: what is required of a PreToolUse, of its verdict and of a
// PostToolUse are rules of their own.
func profileCheck(eventType string, v Violation) string {
	top := v.Path == "" || v.Path == "/metadata"
	switch {
	case v.Message == missingProperty("admission_verdict"):
		return "AH-C-032"
	case v.Keyword == "required" && top && eventType == "PreToolUse":
		return "AH-C-031"
	case v.Keyword == "required" && (top || v.Path == "/metadata/execution") && eventType == "PostToolUse":
		return "AH-C-033"
	case strings.HasPrefix(v.Path, "/metadata/tool_identity/"):
		return "AH-C-034"
	}
	return "AH-C-030"
}
