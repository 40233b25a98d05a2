package admission

import (
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
)

// inputRecorder wraps the stores that an evaluator asks and records their answers: the inputs
// of a decision are part of its record.
type inputRecorder struct {
	stores       Inputs
	confirmation call.Confirmation
	mandate      events.MandateInput
}

// mandateRecords are the mandate records with the recorder in front. Stores that are nil stay
// nil.
func (w *inputRecorder) mandateRecords() mandate.Records {
	r := w.stores.Mandates
	w.mandate.Signatures = string(r.Signatures)
	if r.Revocations != nil {
		r.Revocations = w
	}
	if r.SpendLedger != nil {
		r.SpendLedger = w
	}
	if r.Approvals != nil {
		r.Approvals = w
	}
	return r
}

// Confirmation implements call.Confirmations.
func (w *inputRecorder) Confirmation(i call.Invocation) call.Confirmation {
	if w.stores.Confirmations == nil {
		return call.Confirmation{}
	}
	w.confirmation = w.stores.Confirmations.Confirmation(i)
	return w.confirmation
}

// Revoked implements mandate.Revocations.
func (w *inputRecorder) Revoked(tenant, id, hash string) bool {
	w.mandate.Revoked = w.stores.Mandates.Revocations.Revoked(tenant, id, hash)
	return w.mandate.Revoked
}

// Spend implements mandate.SpendLedger.
func (w *inputRecorder) Spend(p mandate.Proposal) mandate.Spend {
	s := w.stores.Mandates.SpendLedger.Spend(p)
	m := &w.mandate
	m.Reserved, m.Settled, m.Full, m.Unknown = max(0, s.Reserved), max(0, s.Settled), s.Full, s.Unknown
	return s
}

// Facts implements mandate.Approvals.
func (w *inputRecorder) Facts(p mandate.Proposal) mandate.Facts {
	f := w.stores.Mandates.Approvals.Facts(p)
	w.mandate.TrustedUI, w.mandate.Approved = f.TrustedUI, f.Approved
	return f
}

// decisionInputs is what the record keeps of the answers. It leaves out stores that were not
// asked or had nothing.
func (w *inputRecorder) decisionInputs(request call.Request, ref *events.MandateRef) *events.DecisionInputs {
	in := events.DecisionInputs{Strict: request.Strict}
	if request.Profile == ProfileReferenceSDK {
		in.Profile = string(request.Profile)
	}
	if c := w.confirmation; c != (call.Confirmation{}) {
		in.Confirmation = &events.ConfirmationInput{Status: string(c.Status), ID: c.ID, Explicit: c.Explicit, Understated: c.Understated,
			AcceptsByDefault: c.AcceptsByDefault}
		if !c.Until.IsZero() {
			in.Confirmation.Until = events.At(c.Until)
		}
	}
	if m := w.mandate; ref != nil && m != (events.MandateInput{}) {
		in.Mandate = &m
	}
	if in == (events.DecisionInputs{}) {
		return nil
	}
	return &in
}
