package admission

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// Warnings are what policies say to the caller that only warn: they have no part
// in the verdict. None of them has control characters in it.
func (out *Outcome) Warnings() []string { return out.ruling.Policies.Warnings }

// withWarnings adds the warnings to why something was allowed. A refusal says why it
// is one, and nothing else.
func withWarnings(text string, verdict events.Verdict, tools policy.Verdicts) string {
	if verdict != events.Allow || len(tools.Warnings) == 0 {
		return text
	}
	return text + "; warning: " + strings.Join(tools.Warnings, "; ")
}
