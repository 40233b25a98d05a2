package schemas

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// AgentHookChecks makes the single-event checks of AgentHook that its envelope
// schema does not. It expects an event that AgentHook has looked at and repeats
// nothing that AgentHook reports; a value of the wrong type is left to it. The
// catalogue of identifiers is AH-C-…
func AgentHookChecks(tree map[string]any) []Violation {
	t, _ := tree["event_type"].(string)
	return runRules(agentHookRules, &event{tree: tree, kind: t})
}

var agentHookRules = []rule{
	{"AH-C-006", "not_utc", LevelWarning,
		"should be in UTC (section 1)", func(e *event, report func(...string)) {
			if ts := e.text("timestamp"); isDateTime(ts) && !isUTC(ts) {
				report("timestamp")
			}
		}},
	{"AH-C-007", "source_empty", LevelError,
		"must not be empty", func(e *event, report func(...string)) {
			if v, ok := e.tree["source"].(string); ok && v == "" {
				report("source")
			}
		}},
	{"AH-C-007", "source_not_a_token", LevelWarning,
		"should match " + sourceToken.String(), func(e *event, report func(...string)) {
			if v := e.text("source"); v != "" && !sourceToken.MatchString(v) {
				report("source")
			}
		}},
	{"AH-C-008", "unknown_schema_version", LevelError,
		"must be 1, the only version this program knows (section 8)", func(e *event, report func(...string)) {
			v, ok := e.tree["schema_version"].(json.Number)
			if ok && isInteger(v) && !sameNumber(v, "1") {
				report("schema_version")
			}
		}},
	{"AH-C-009", "tool_name_absent", LevelError,
		"missing property tool_name, which this event must have (section 1)", func(e *event, report func(...string)) {
			if _, there := e.tree["tool_name"]; !there && toolEvent(e) {
				report()
			}
		}},
	{"AH-C-009", "tool_name_empty", LevelError,
		"must not be empty (section 1)", func(e *event, report func(...string)) {
			if v, ok := e.tree["tool_name"].(string); ok && v == "" && toolEvent(e) {
				report("tool_name")
			}
		}},
	{"AH-C-012", "phase_after_the_fact", LevelError,
		"must not be pre_commit: this event reports what has already happened (sections 1 and 4)", func(e *event, report func(...string)) {
			if e.text("evidence_phase") == "pre_commit" && slices.Contains(afterTheFact, e.kind) {
				report("evidence_phase")
			}
		}},
}

// sourceToken is what the publishers' kit takes as the name of a publisher.
var sourceToken = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// afterTheFact are the events that no verdict can precede.
var afterTheFact = []string{"PostToolUse", "PostLLMCall", "ModelResponse", "SessionEnd", "ErrorOccurred",
	"WebSearchResultsReturned", "WebPageRead", "WebActionCompleted", "EvidenceUsedInOutput"}

func toolEvent(e *event) bool { return e.kind == "PreToolUse" || e.kind == "PostToolUse" }

// isUTC takes every way that RFC 3339 has to write an offset of zero.
func isUTC(timestamp string) bool {
	return strings.HasSuffix(timestamp, "Z") || strings.HasSuffix(timestamp, "z") ||
		strings.HasSuffix(timestamp, "+00:00") || strings.HasSuffix(timestamp, "-00:00")
}
