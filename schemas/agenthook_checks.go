package schemas

import (
	"regexp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// AgentHookChecks makes the single-event checks of AgentHook that its envelope schema does not.
// It expects an event that AgentHook has validated and repeats nothing that AgentHook reports;
// AgentHook reports values of the wrong type. The identifiers are AH-C-…
func AgentHookChecks(v strictjson.Value) []Violation {
	e := newEvent(v)
	e.kind = e.text("event_type")
	return runRules(agentHookRules, e)
}

var agentHookRules = []rule{
	{"AH-C-006", "not_utc", LevelWarning,
		"should be in UTC (section 1)", func(e *event, report func(...string)) {
			if ts := e.text("timestamp"); !isUTC(ts) && isDateTime(ts) {
				report("timestamp")
			}
		}},
	{"AH-C-007", "source_empty", LevelError,
		"must not be empty", func(e *event, report func(...string)) {
			if e.isEmptyText("source") {
				report("source")
			}
		}},
	{"AH-C-007", "source_not_a_token", LevelWarning,
		"should match " + sourceToken.String(), func(e *event, report func(...string)) {
			if v := e.text("source"); v != "" && !isSourceToken(v) {
				report("source")
			}
		}},
	{"AH-C-008", "unknown_schema_version", LevelError,
		"must be 1, the only version this program knows (section 8)", func(e *event, report func(...string)) {
			v := e.doc.Get("schema_version")
			if v.Kind() == strictjson.KindNumber && v.Text() != "1" && isInteger(v.Text()) && !sameNumber(v.Text(), "1") {
				report("schema_version")
			}
		}},
	{"AH-C-009", "tool_name_absent", LevelError,
		"missing property tool_name, which this event must have (section 1)", func(e *event, report func(...string)) {
			if e.lacks("tool_name") && toolEvent(e) {
				report()
			}
		}},
	{"AH-C-009", "tool_name_empty", LevelError,
		"must not be empty (section 1)", func(e *event, report func(...string)) {
			if e.isEmptyText("tool_name") && toolEvent(e) {
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

// sourceToken is the form of publisher names in the publishers' kit.
var sourceToken = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// isSourceToken decides what sourceToken does without the cost of a regular expression.
func isSourceToken(s string) bool { return sourceMatcher.match(s) }

var sourceMatcher = matcherOf(sourceToken)

// afterTheFact are the events that come too late for a verdict.
var afterTheFact = []string{"PostToolUse", "PostLLMCall", "ModelResponse", "SessionEnd", "ErrorOccurred",
	"WebSearchResultsReturned", "WebPageRead", "WebActionCompleted", "EvidenceUsedInOutput"}

func toolEvent(e *event) bool { return e.kind == "PreToolUse" || e.kind == "PostToolUse" }

// isUTC accepts every RFC 3339 spelling of a zero offset.
func isUTC(timestamp string) bool {
	return strings.HasSuffix(timestamp, "Z") || strings.HasSuffix(timestamp, "z") ||
		strings.HasSuffix(timestamp, "+00:00") || strings.HasSuffix(timestamp, "-00:00")
}
