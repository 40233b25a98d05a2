package schemas

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Form is one of the two shapes of an action-governance event.
type Form string

// The forms. A request asks for admission and cannot carry the verdict yet; an event on the log
// is evidence and must carry it if it claims pre_commit.
const (
	FormRequest  Form = "request"
	FormEvidence Form = "evidence"
)

const (
	agentHookEnvelope = "agenthook/envelope"
	agentHookProfile  = "agenthook/action-governance."
)

// AgentHook validates an event by the AgentHook envelope. An event of the action-governance
// profile must pass AgentHookProfile as well.
func AgentHook(v strictjson.Value) []Violation {
	return tagRules(Default().Validate(agentHookEnvelope, v), agentHookCheck)
}

// AgentHookProfile validates an event of the action-governance profile (AHP-013) in one of its
// forms; any other form is taken as evidence, the stricter one. Call it after AgentHook for
// events of publishers that claim the profile, if ProfileCovers reports true.
func AgentHookProfile(v strictjson.Value, form Form) []Violation {
	schema := agentHookProfile + string(FormEvidence)
	if form == FormRequest {
		schema = agentHookProfile + string(FormRequest)
	}
	violations := Default().Validate(schema, v)
	if violations == nil {
		return nil
	}
	t := v.Get("event_type").Text()
	return tagRules(violations, func(found Violation) string { return profileCheck(t, found) })
}

// hasGovernanceBlock reports whether metadata has a block of AHP-013.
func hasGovernanceBlock(metadata strictjson.Value) bool {
	for m := range metadata.All() {
		switch m.Key() {
		case "tool_identity", "provider_translation", "risk", "validation", "redaction", "retry", "execution":
			return true
		}
	}
	return false
}

// StrictAgentHook is AgentHook and AgentHookChecks together.
func StrictAgentHook(v strictjson.Value) []Violation {
	return mergeViolations(AgentHook(v), AgentHookChecks(v))
}

// judgeAgentHook is StrictAgentHook, and for an event that uses the action-governance profile
// AgentHookProfile: as evidence if the event has a verdict, as a request otherwise.
func judgeAgentHook(v strictjson.Value) []Violation {
	found := StrictAgentHook(v)
	metadata := v.Get("metadata")
	if !ProfileCovers(v.Get("event_type").Text()) || !hasGovernanceBlock(metadata) {
		return found
	}
	form := FormRequest
	if metadata.Get("admission_verdict").Exists() {
		form = FormEvidence
	}
	return mergeViolations(found, AgentHookProfile(v, form))
}

var profileTypes = []string{"PreToolUse", "PostToolUse", "ToolCallValidated", "ToolCallRedacted", "ToolCallRetried"}

// ProfileCovers reports whether the action-governance profile covers events of this type. All
// others would fail it without being wrong.
func ProfileCovers(eventType string) bool { return slices.Contains(profileTypes, eventType) }

// agentHookKeys maps top-level keys to the rules that the envelope schema enforces there.
var agentHookKeys = map[string]string{
	"event_id": "AH-C-004", "event_type": "AH-C-005", "timestamp": "AH-C-006", "source": "AH-C-007", "schema_version": "AH-C-008",
	"tool_name": "AH-C-009", "tool_input": "AH-C-010", "metadata": "AH-C-010", "annotations": "AH-C-010", "resource": "AH-C-010",
	"evidence_phase": "AH-C-011",
}

// agentHookCheck gives no rule for wrong types of the remaining open strings: the catalogue has
// none.
func agentHookCheck(v Violation) string {
	switch v.Keyword {
	case "required":
		return "AH-C-003"
	case "additionalProperties":
		return "AH-C-002"
	}
	return agentHookKeys[topKey(v.Path)]
}

// profileCheck returns the rule of a violation: the requirements of a PreToolUse, its verdict
// and a PostToolUse are separate rules.
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
