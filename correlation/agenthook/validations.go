package agenthook

import (
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// failedValidations are the calls of a session whose validation failed (AHP-013), by call id:
// at most maxGoverned. Another attempt under the id, or a validation that passes, ends an entry.
type failedValidations struct {
	byCall fifoMap[failedValidation]
}

// failedValidation is the event that says so, and whether the allow of it was reported. An announcement
// that happened before the event, which overtook it, is of the same attempt.
type failedValidation struct {
	event           eventRef
	happenedAt      time.Time
	allowedReported bool
}

// track applies an event, and reports a call that succeeded although its validation had failed
// (AH-C-037). NewEvent reports an event that itself claims the allow.
func (fv *failedValidations) track(out *findingList, x *Event) {
	failed, known := fv.byCall.find(x.CallID)
	switch {
	case x.Type == agenthook.PostToolUse && x.validation != validationPassed:
		if (known || x.validation == validationFailed) && x.execution != nil && x.execution.Outcome == "succeeded" {
			out.add("AH-C-037", "succeeded", failed.event, x.eventRef()).Call = x.CallID
			fv.byCall.removeKey(x.CallID)
		}
	case x.CallID == "":
	case x.validation == validationFailed:
		fv.byCall.put(x.CallID, failedValidation{x.eventRef(), x.Time, x.verdict == string(events.Allow)}, maxGoverned)
	case x.validation == validationPassed, x.Type == agenthook.PreToolUse && !x.Time.Before(failed.happenedAt):
		fv.byCall.removeKey(x.CallID)
	}
}

// noteAllowed reports that the call of event pre, which says that its validation failed, is allowed
// on record. The admitter does not see an event of its own about the validation (ToolCallValidated), so
// an allow beside one is no finding unless the call succeeds.
func (fv *failedValidations) noteAllowed(out *findingList, call, pre string) {
	failed, known := fv.byCall.find(call)
	if !known || failed.event.id != pre || failed.allowedReported {
		return
	}
	failed.allowedReported = true
	fv.byCall.put(call, failed, maxGoverned)
	out.add("AH-C-037", "allowed", failed.event).Call = call
}

// Statuses of a validation block.
const (
	validationFailed = "failed"
	validationPassed = "passed"
)
