package aaep

import (
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
)

// Reason codes about the user's confirmation of an invocation.
const (
	CodeAccepted    = "confirmation_accepted"    // the user has accepted
	CodeInferred    = "confirmation_inferred"    // the confirmation names no call: with the code before, or because strict mode does not take it
	CodeDeclined    = "confirmation_declined"    // the user has declined (AAEP-C-104)
	CodePending     = "confirmation_pending"     // the user has not answered yet (AAEP-C-103)
	CodeExpired     = "confirmation_expired"     // the user did not answer in time, or the answer is too old (AAEP-C-105)
	CodeUsed        = "confirmation_used"        // the confirmation was used before (AAEP-C-102)
	CodeWithdrawn   = "confirmation_withdrawn"   // the question was withdrawn (AAEP-C-109)
	CodeAmbiguous   = "confirmation_ambiguous"   // several confirmations could be meant
	CodeUnderstated = "confirmation_understated" // the user was told of less risk (AAEP-C-119)
)

var statusCodes = map[call.ConfirmationStatus]string{
	call.ConfirmationPending: CodePending, call.ConfirmationExpired: CodeExpired, call.ConfirmationUsed: CodeUsed,
	call.ConfirmationWithdrawn: CodeWithdrawn, call.ConfirmationAmbiguous: CodeAmbiguous,
}

// checkConfirmation compares an invocation with the user's answer (AAEP-C-100 to AAEP-C-105). A
// declined question that names the call is a deny, whatever the risk. Anything but an
// acceptance of exactly this invocation is an ask: the user may still be asked.
func checkConfirmation(i call.Invocation, r call.Request, c *call.Call, o *call.Opinion) {
	confirmation := r.Confirmations.Confirmation(i)
	code := rejectionCode(confirmation, r.Strict)
	switch decides := DecidesInvocation(i, confirmation, r.Strict); {
	case decides && confirmation.Status == call.ConfirmationDeclined:
		o.AddReason(events.Deny, Name, CodeDeclined, "")
	case decides:
		if !i.NeedsConfirmation() {
			return // not needed, so not used up
		}
		c.Confirmed, c.ConfirmedInvocation, o.NotAfter = confirmation.ID, &i, confirmation.Until
		o.AddReason(events.Allow, Name, CodeAccepted, "")
		if !confirmation.Explicit {
			o.AddReason(events.Allow, Name, CodeInferred, "")
		}
	case i.NeedsConfirmation():
		askConfirmation(i, code, r, c, o)
	case confirmation.Explicit && code != "" && !acceptedByDefault(confirmation):
		c.Unconfirmed = &i
		o.AddReason(events.Ask, Name, code, "")
	}
}

// rejectionCode returns the reason why the confirmation is not an acceptance, "" if it is one or if
// nothing is known.
func rejectionCode(confirmation call.Confirmation, strict bool) string {
	switch {
	case confirmation.Status != call.ConfirmationAccepted:
		return statusCodes[confirmation.Status]
	case confirmation.Understated:
		return CodeUnderstated
	case strict && !confirmation.Explicit:
		return CodeInferred
	}
	return ""
}

// acceptedByDefault reports whether the question expired and accepts by default (section 6.4).
// That is enough for actions that are not grave, never for AAEP-C-100, which demands an answer.
func acceptedByDefault(confirmation call.Confirmation) bool {
	return confirmation.Status == call.ConfirmationExpired && confirmation.AcceptsByDefault
}

// askConfirmation asks for the confirmation of a grave invocation.
func askConfirmation(i call.Invocation, code string, r call.Request, c *call.Call, o *call.Opinion) {
	verdict := events.Ask
	if !i.Irreversible && r.Profile == call.ProfileReferenceSDK && !r.Strict {
		verdict = events.Allow
	} else {
		c.Unconfirmed = &i
	}
	if i.Irreversible {
		o.AddReason(verdict, Name, CodeConfirmation, "/irreversible")
	}
	if i.Risk == "high" {
		o.AddReason(verdict, Name, CodeHighRisk, "/risk_level")
	}
	if code != "" {
		o.AddReason(verdict, Name, code, "")
	}
}

// DecidesInvocation reports whether the known confirmation decides the invocation, so that the
// user need not be asked.
func DecidesInvocation(i call.Invocation, confirmation call.Confirmation, strict bool) bool {
	if confirmation.Status == call.ConfirmationDeclined {
		return confirmation.Explicit || i.NeedsConfirmation()
	}
	return confirmation.Status == call.ConfirmationAccepted && rejectionCode(confirmation, strict) == ""
}
