package agenthook

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/internal/check"
)

// runChecks makes the single-event checks of AgentHook that its envelope schema does not. It
// expects an event that was validated and repeats nothing that Validate reports, which are also
// values of the wrong type. The identifiers are AH-C-…
func runChecks(v strictjson.Value) []schemas.Violation {
	e := check.NewEvent(v)
	e.Kind = e.Text("event_type")
	return check.Run(rules, e)
}

var rules = []check.Rule{
	check.Warning("AH-C-006", "not_utc",
		"should be in UTC (section 1)", func(e *check.Event, report func(...string)) {
			if ts := e.Text("timestamp"); !isUTC(ts) && schemas.IsDateTime(ts) {
				report("timestamp")
			}
		}),
	check.Error("AH-C-007", "source_empty",
		"must not be empty", func(e *check.Event, report func(...string)) {
			if e.IsEmptyText("source") {
				report("source")
			}
		}),
	check.Warning("AH-C-007", "source_not_a_token",
		"should match "+sourceToken, func(e *check.Event, report func(...string)) {
			if v := e.Text("source"); v != "" && !isSourceToken(v) {
				report("source")
			}
		}),
	check.Error("AH-C-008", "unknown_schema_version",
		"must be 1, the only version this program knows (section 8)", func(e *check.Event, report func(...string)) {
			v := e.Doc.Get("schema_version")
			if v.Kind() == strictjson.KindNumber && isOtherInteger(v.Text(), 1) {
				report("schema_version")
			}
		}),
	check.Error("AH-C-009", "tool_name_absent",
		"missing property tool_name, which this event must have (section 1)", func(e *check.Event, report func(...string)) {
			if e.Lacks("tool_name") && toolEvent(e) {
				report()
			}
		}),
	check.Error("AH-C-009", "tool_name_empty",
		"must not be empty (section 1)", func(e *check.Event, report func(...string)) {
			if e.IsEmptyText("tool_name") && toolEvent(e) {
				report("tool_name")
			}
		}),
	check.Error("AH-C-012", "phase_after_the_fact",
		"must not be pre_commit: this event reports what has already happened (sections 1 and 4)", func(e *check.Event, report func(...string)) {
			if e.Text("evidence_phase") == "pre_commit" && slices.Contains(afterTheFact, e.Kind) {
				report("evidence_phase")
			}
		}),
}

// sourceToken is the form of publisher names in the publishers' kit.
const sourceToken = `^[A-Za-z0-9_.:-]+$`

// isSourceToken decides what sourceToken does without the cost of a regular expression.
func isSourceToken(s string) bool {
	const characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"
	return s != "" && strings.Trim(s, characters) == ""
}

// isOtherInteger reports whether a number is an integer, in any notation, and not want.
func isOtherInteger(number string, want float64) bool {
	f, err := strconv.ParseFloat(number, 64)
	return err == nil && f == math.Trunc(f) && f != want
}

// afterTheFact are the events that come too late for a verdict.
var afterTheFact = []string{"PostToolUse", "PostLLMCall", "ModelResponse", "SessionEnd", "ErrorOccurred",
	"WebSearchResultsReturned", "WebPageRead", "WebActionCompleted", "EvidenceUsedInOutput"}

func toolEvent(e *check.Event) bool { return e.Kind == "PreToolUse" || e.Kind == "PostToolUse" }

// isUTC accepts every RFC 3339 spelling of a zero offset.
func isUTC(timestamp string) bool {
	return strings.HasSuffix(timestamp, "Z") || strings.HasSuffix(timestamp, "z") ||
		strings.HasSuffix(timestamp, "+00:00") || strings.HasSuffix(timestamp, "-00:00")
}
