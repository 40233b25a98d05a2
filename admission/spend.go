package admission

import (
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
)

// spend is the money that an outcome takes of a mandate's budget. Only an allow
// takes any: what is asked about, put off or denied must be admitted again before
// it may run.
func (out *Outcome) spend() *mandate.Reservation {
	if out.Decision.Verdict != events.Allow || out.NoReceipt {
		return nil
	}
	if out.under != nil {
		return aump.Spends(*out.under)
	}
	return aump.Spends(out.call)
}
