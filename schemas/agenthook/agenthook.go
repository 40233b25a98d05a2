// Package agenthook judges the events of AgentHook 0.2 by its schemas, which package schemas
// compiles, and by what only its text demands.
package agenthook

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/check"
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
	envelope     = "agenthook/envelope"
	profileForms = "agenthook/action-governance."
)

// Validate validates an event by the AgentHook envelope. An event of the action-governance
// profile must pass ValidateProfile as well.
func Validate(v strictjson.Value) []schemas.Violation {
	return check.Tag(schemas.Default().Validate(envelope, v), envelopeRule)
}

// ValidateProfile validates an event of the action-governance profile (AHP-013) in one of its
// forms; any other form is taken as evidence, the stricter one. Call it after Validate for
// events of publishers that claim the profile, if ProfileCovers reports true.
func ValidateProfile(v strictjson.Value, form Form) []schemas.Violation {
	schema := profileForms + string(FormEvidence)
	if form == FormRequest {
		schema = profileForms + string(FormRequest)
	}
	violations := schemas.Default().Validate(schema, v)
	if violations == nil {
		return nil
	}
	t := v.Get("event_type").Text()
	return check.Tag(violations, func(found schemas.Violation) string { return profileRule(t, found) })
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

// Strict judges an event by the AgentHook envelope and by the checks of single events.
func Strict(v strictjson.Value) []schemas.Violation {
	return schemas.Merge(Validate(v), runChecks(v))
}

// Judge is Strict, and for an event that uses the action-governance profile ValidateProfile: as
// evidence if the event has a verdict, as a request otherwise.
func Judge(v strictjson.Value) []schemas.Violation {
	found := Strict(v)
	metadata := v.Get("metadata")
	if !ProfileCovers(v.Get("event_type").Text()) || !hasGovernanceBlock(metadata) {
		return found
	}
	form := FormRequest
	if metadata.Get("admission_verdict").Exists() {
		form = FormEvidence
	}
	return schemas.Merge(found, ValidateProfile(v, form))
}

var profileTypes = []string{"PreToolUse", "PostToolUse", "ToolCallValidated", "ToolCallRedacted", "ToolCallRetried"}

// ProfileCovers reports whether the action-governance profile covers events of this type. All
// others would fail it without being wrong.
func ProfileCovers(eventType string) bool { return slices.Contains(profileTypes, eventType) }

// rulesOfKeys maps top-level keys to the rules that the envelope schema enforces there.
var rulesOfKeys = map[string]string{
	"event_id": "AH-C-004", "event_type": "AH-C-005", "timestamp": "AH-C-006", "source": "AH-C-007", "schema_version": "AH-C-008",
	"tool_name": "AH-C-009", "tool_input": "AH-C-010", "metadata": "AH-C-010", "annotations": "AH-C-010", "resource": "AH-C-010",
	"evidence_phase": "AH-C-011",
}

// envelopeRule gives no rule for wrong types of the remaining open strings: the catalogue has
// none.
func envelopeRule(v schemas.Violation) string {
	switch v.Keyword {
	case "required":
		return "AH-C-003"
	case "additionalProperties":
		return "AH-C-002"
	}
	return rulesOfKeys[check.TopKey(v.Path)]
}

// profileRule returns the rule of a violation: the requirements of a PreToolUse, its verdict
// and a PostToolUse are separate rules.
func profileRule(eventType string, v schemas.Violation) string {
	top := v.Path == "" || v.Path == "/metadata"
	switch {
	case v.MissingProperty() == "admission_verdict":
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
