package admission

import (
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
)

// Reservations is what a verdict uses up and what can be used only once, or only so
// often. Decide says what it is; the service takes it from its store, by
// compare-and-set, before it records the decision. If somebody else was faster,
// it decides again.
type Reservations struct {
	Approval     *approval.Step       // a workflow opened, joined or consumed
	Spend        *mandate.Reservation // money of a mandate's budget
	Confirmation string               // the ID of the AAEP confirmation that the verdict rests on; "" for none
	Counts       []policy.Count       // what rate and budget conditions count

	// Unconfirmed is no thing to take: the AAEP invocation that has no confirmation
	// as far as Inputs.Confirmations knew. Whoever follows the log makes sure that
	// it knew all there was, and decides again if it did not.
	Unconfirmed *call.Invocation
}
