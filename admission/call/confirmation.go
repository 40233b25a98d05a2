package call

import "time"

// Invocation is a tool invocation as a user may have confirmed it (AAEP chapter
// 6).
type Invocation struct {
	Tenant, Source, Session string
	ToolCallID, Tool        string
	Risk                    string // low medium high
	Irreversible            bool
	Now                     time.Time
}

// NeedsConfirmation tells whether an invocation needs a confirmation at all: AAEP-C-100,
// AAEP-C-101.
func (i Invocation) NeedsConfirmation() bool { return i.Irreversible || i.Risk == "high" }

// ConfirmationStatus is where the confirmation of an invocation stands.
type ConfirmationStatus string

// The standings. Only StandingAccepted is leave to go on.
const (
	ConfirmationNone      ConfirmationStatus = ""          // the user was not asked, or it is forgotten
	ConfirmationPending   ConfirmationStatus = "pending"   // asked and not answered yet
	ConfirmationAccepted  ConfirmationStatus = "accepted"  // by a valid reply, in time, and not used yet
	ConfirmationDeclined  ConfirmationStatus = "declined"  // by a valid reply
	ConfirmationExpired   ConfirmationStatus = "expired"   // nobody answered in time, or the answer is too old
	ConfirmationUsed      ConfirmationStatus = "used"      // for an invocation before this one
	ConfirmationWithdrawn ConfirmationStatus = "withdrawn" // the agent went on without an answer, or its session ended
	ConfirmationAmbiguous ConfirmationStatus = "ambiguous" // several answers could be meant
)

// Confirmation is what is known of the user's word on an invocation.
type Confirmation struct {
	Status ConfirmationStatus
	// ID names the question; it is set with StandingAccepted.
	ID string
	// Explicit says that the question names the invocation's tool_call_id. Otherwise
	// it names no call and was taken to be meant.
	Explicit bool
	// Understated says that the user was told of less risk than the invocation has:
	// what was accepted is something else.
	Understated bool
	// AcceptsByDefault says that an unanswered question counts as accepted, which is
	// enough for what is not grave (AAEP section 6.4).
	AcceptsByDefault bool
	// Until is when an acceptance ends.
	Until time.Time
}

// Confirmations knows what users have said to tool invocations. Whoever
// implements it must have verified the reply itself: the request is no source
// for it. It gives the same answer for the same state and invocation.
type Confirmations interface {
	Confirmation(Invocation) Confirmation
}

// NoConfirmations knows of none.
type NoConfirmations struct{}

// Confirmation implements Confirmations.
func (NoConfirmations) Confirmation(Invocation) Confirmation { return Confirmation{} }
