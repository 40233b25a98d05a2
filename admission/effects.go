package admission

import (
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
)

// Consumption is what a verdict uses up: things that can be used only once, or only a limited
// number of times. Decide names them; the service reserves them in its stores by
// compare-and-set before it records the decision. If another decision was faster, the service
// decides again.
type Consumption struct {
	Approval     *approval.Change     // a workflow opened, joined or consumed
	Spend        *mandate.Reservation // money of a mandate's budget
	Confirmation string               // the ID of the AAEP confirmation that the verdict rests on; "" for none
	Counts       []policy.Count       // what policy limits count; without totals that are not known

	// ConfirmedInvocation is the AAEP invocation that Confirmation is for, and Unconfirmed the one
	// that has no confirmation, both according to Inputs.Confirmations. They are not reserved: the
	// service makes sure that Inputs.Confirmations had read the whole log, and decides again if it
	// had not.
	ConfirmedInvocation *call.Invocation
	Unconfirmed         *call.Invocation
}
