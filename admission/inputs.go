package admission

import (
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
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
func (rec *inputRecorder) mandateRecords() mandate.Records {
	r := rec.stores.Mandates
	rec.mandate.Signatures = string(r.Signatures)
	if r.Mandates != nil {
		r.Mandates = rec
	}
	if r.Revocations != nil {
		r.Revocations = rec
	}
	if r.SpendLedger != nil {
		r.SpendLedger = rec
	}
	if r.Approvals != nil {
		r.Approvals = rec
	}
	return r
}

// Confirmation implements call.Confirmations.
func (rec *inputRecorder) Confirmation(i call.Invocation) call.Confirmation {
	if rec.stores.Confirmations == nil {
		return call.Confirmation{}
	}
	rec.confirmation = rec.stores.Confirmations.Confirmation(i)
	return rec.confirmation
}

// Mandate implements mandate.Source.
func (rec *inputRecorder) Mandate(tenant, id, hash string) *mandate.Mandate {
	m := rec.stores.Mandates.Mandates.Mandate(tenant, id, hash)
	if m != nil && m.Signatures != aump.SignatureNone {
		rec.mandate.SignatureState = string(m.Signatures)
	}
	return m
}

// Revoked implements mandate.Revocations.
func (rec *inputRecorder) Revoked(tenant, id, hash string) bool {
	rec.mandate.Revoked = rec.stores.Mandates.Revocations.Revoked(tenant, id, hash)
	return rec.mandate.Revoked
}

// Spend implements mandate.SpendLedger.
func (rec *inputRecorder) Spend(p mandate.Proposal) mandate.Spend {
	s := rec.stores.Mandates.SpendLedger.Spend(p)
	m := &rec.mandate
	m.Reserved, m.Settled, m.Full, m.Unknown = max(0, s.Reserved), max(0, s.Settled), s.Full, s.Unknown
	return s
}

// Consent implements mandate.PrincipalConsents.
func (rec *inputRecorder) Consent(p mandate.Proposal) mandate.PrincipalConsent {
	f := rec.stores.Mandates.Approvals.Consent(p)
	rec.mandate.TrustedUI, rec.mandate.Approved = f.TrustedUI, f.Approved
	return f
}

// decisionInputs is what the record keeps of the answers. It leaves out stores that were not
// asked or had nothing.
func (rec *inputRecorder) decisionInputs(request call.Request, ref *events.MandateRef) *events.DecisionInputs {
	in := events.DecisionInputs{Strict: request.Strict}
	if request.Profile == ProfileReferenceSDK {
		in.Profile = string(request.Profile)
	}
	if c := rec.confirmation; c != (call.Confirmation{}) {
		in.Confirmation = &events.ConfirmationInput{Status: string(c.Status), ID: c.ID, Explicit: c.Explicit, Understated: c.Understated,
			AcceptsByDefault: c.AcceptsByDefault}
		if !c.Until.IsZero() {
			in.Confirmation.Until = events.At(c.Until)
		}
	}
	if m := rec.mandate; ref != nil && m != (events.MandateInput{}) {
		in.Mandate = &m
	}
	if in == (events.DecisionInputs{}) {
		return nil
	}
	return &in
}
