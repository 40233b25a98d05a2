package admission

import (
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
)

// witness stands between an evaluator and the stores, and notes their answers:
// what a decision rests on is part of its record.
type witness struct {
	stores       Inputs
	confirmation call.Confirmation
	mandate      events.MandateInput
}

// records are the mandate records with the witness before them. Stores that are
// not there stay away.
func (w *witness) records() mandate.Records {
	r := w.stores.Mandates
	w.mandate.Signatures = string(r.Signatures)
	if r.Revocations != nil {
		r.Revocations = w
	}
	if r.Ledger != nil {
		r.Ledger = w
	}
	if r.Approvals != nil {
		r.Approvals = w
	}
	return r
}

// Confirmation implements call.Confirmations.
func (w *witness) Confirmation(i call.Invocation) call.Confirmation {
	if w.stores.Confirmations == nil {
		return call.Confirmation{}
	}
	w.confirmation = w.stores.Confirmations.Confirmation(i)
	return w.confirmation
}

// Revoked implements mandate.Revocations.
func (w *witness) Revoked(tenant, id, hash string) bool {
	w.mandate.Revoked = w.stores.Mandates.Revocations.Revoked(tenant, id, hash)
	return w.mandate.Revoked
}

// Spend implements mandate.Ledger.
func (w *witness) Spend(p mandate.Proposal) mandate.Spend {
	s := w.stores.Mandates.Ledger.Spend(p)
	m := &w.mandate
	m.Reserved, m.Settled, m.Full, m.Unknown = max(0, s.Reserved), max(0, s.Settled), s.Full, s.Unknown
	return s
}

// Facts implements mandate.Approvals.
func (w *witness) Facts(p mandate.Proposal) mandate.Facts {
	f := w.stores.Mandates.Approvals.Facts(p)
	w.mandate.TrustedUI, w.mandate.Approved = f.TrustedUI, f.Approved
	return f
}

// inputs is what the record keeps of it: nothing of what was not asked, or is as
// if nothing were known.
func (w *witness) inputs(ask call.Request, ref *events.MandateRef) *events.DecisionInputs {
	in := events.DecisionInputs{Strict: ask.Strict}
	if ask.Profile == ProfileReferenceSDK {
		in.Profile = string(ask.Profile)
	}
	if c := w.confirmation; c != (call.Confirmation{}) {
		in.Confirmation = &events.ConfirmationInput{Standing: string(c.Standing), ID: c.ID, Explicit: c.Explicit, Understated: c.Understated,
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
