package admission

import (
	"strings"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// Warnings are the messages of policies that only warn, for the caller. They do not affect the
// verdict. None of them contains control characters.
func (out *Outcome) Warnings() []string { return out.ruling.Policies.Warnings }

// withWarnings adds the warnings to the explanation of an allow. The explanation of a refusal
// has no warnings.
func withWarnings(text string, verdict events.Verdict, policies policy.Result) string {
	if verdict != events.Allow || len(policies.Warnings) == 0 {
		return text
	}
	return text + "; warning: " + strings.Join(policies.Warnings, "; ")
}
