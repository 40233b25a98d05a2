package call

import (
	"time"

	"github.com/countersign-dev/countersign/admission/publisher"
)

// Invocation identifies a tool invocation that a user may have confirmed (AAEP chapter 6).
type Invocation struct {
	Tenant, Source, Session string
	ToolCallID, Tool        string
	Risk                    string // low medium high
	Irreversible            bool
	Now                     time.Time
}

// NeedsConfirmation reports whether an invocation needs a confirmation: AAEP-C-100, AAEP-C-101.
func (i Invocation) NeedsConfirmation() bool { return i.Irreversible || i.Risk == "high" }

// RaisedBy is the invocation with what the catalogue's entry of its tool says where that is stricter.
// entry may be nil.
func (i Invocation) RaisedBy(entry *publisher.Entry) Invocation {
	risk := entry.RaiseRisk(map[string]any{"level": i.Risk, "irreversible": i.Irreversible})
	i.Risk, _ = risk["level"].(string)
	i.Irreversible, _ = risk["irreversible"].(bool)
	return i
}

// ConfirmationStatus is the status of an invocation's confirmation.
type ConfirmationStatus string

// The statuses. Only ConfirmationAccepted permits the invocation.
const (
	ConfirmationNone      ConfirmationStatus = ""          // the user was not asked, or the question was dropped
	ConfirmationPending   ConfirmationStatus = "pending"   // asked and not answered yet
	ConfirmationAccepted  ConfirmationStatus = "accepted"  // by a valid reply, in time, and not used yet
	ConfirmationDeclined  ConfirmationStatus = "declined"  // by a valid reply
	ConfirmationExpired   ConfirmationStatus = "expired"   // no answer in time, or the answer is too old
	ConfirmationUsed      ConfirmationStatus = "used"      // for an earlier invocation
	ConfirmationWithdrawn ConfirmationStatus = "withdrawn" // the agent continued without an answer, or its session ended
	ConfirmationAmbiguous ConfirmationStatus = "ambiguous" // several answers could be meant
)

// Confirmation is what is known of the user's answer about an invocation.
type Confirmation struct {
	Status ConfirmationStatus
	// ID names the question; it is set with ConfirmationAccepted.
	ID string
	// Explicit reports that the question names the invocation's tool_call_id. Otherwise it
	// names no call and was inferred.
	Explicit bool
	// Understated reports that the question stated less risk than the invocation has: the user
	// accepted something else.
	Understated bool
	// AcceptsByDefault reports that an unanswered question counts as accepted, which is enough
	// for actions that are not grave (AAEP section 6.4).
	AcceptsByDefault bool
	// Until is when an acceptance ends.
	Until time.Time
}

// Confirmations looks up users' answers about tool invocations. An implementation must have
// verified the reply itself: the request is no source for it. It returns the same answer for
// the same state and invocation.
type Confirmations interface {
	Confirmation(Invocation) Confirmation
}

// NoConfirmations has no confirmations.
type NoConfirmations struct{}

// Confirmation implements Confirmations.
func (NoConfirmations) Confirmation(Invocation) Confirmation { return Confirmation{} }
