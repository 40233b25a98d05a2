package admission

import (
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
)

// spendReservation is the money that an outcome takes of a mandate's budget. Only an allow
// takes any: what is asked about, put off or denied must be admitted again before
// it may run.
func (out *Outcome) spendReservation() *mandate.Reservation {
	if out.Decision.Verdict != events.Allow || out.NoReceipt {
		return nil
	}
	if out.mandateCall != nil {
		return aump.ReservationOf(*out.mandateCall)
	}
	return aump.ReservationOf(out.call)
}
