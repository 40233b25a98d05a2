package events

// DecisionInputs are the inputs of a decision other than the request, the policies and the
// records that the decision names: the answers of the service's stores. With them the decision
// can be replayed. It is absent for default inputs, which is the usual case.
type DecisionInputs struct {
	Strict       bool               `json:"strict,omitempty"`       // AAEP: a confirmation must name the call; with profile reference-sdk, high-risk invocations need one as well
	Profile      string             `json:"profile,omitempty"`      // "" is hardened
	Confirmation *ConfirmationInput `json:"confirmation,omitempty"` // of an AAEP invocation
	Mandate      *MandateInput      `json:"mandate,omitempty"`      // of the mandate that was judged
}

// ConfirmationInput is the known state of the user's confirmation of an AAEP invocation.
type ConfirmationInput struct {
	Status           string `json:"standing,omitempty"`           // none (absent), pending, accepted, declined, expired, used, withdrawn or ambiguous
	ID               string `json:"id,omitempty"`                 // of the question
	Explicit         bool   `json:"explicit,omitempty"`           // the question names the invocation; otherwise it was inferred
	Understated      bool   `json:"understated,omitempty"`        // the question stated less risk than the invocation has
	AcceptsByDefault bool   `json:"accepts_by_default,omitempty"` // an unanswered question counts as accepted
	Until            Time   `json:"until,omitzero"`               // when an acceptance ends
}

// MandateInput is the known state of the mandate that a decision names.
type MandateInput struct {
	Revoked    bool   `json:"revoked,omitempty"`        // this hash is revoked
	TrustedUI  bool   `json:"trusted_ui,omitempty"`     // the principal confirmed exactly this action in a trusted user interface
	Approved   bool   `json:"approved,omitempty"`       // the principal approved exactly this action
	Reserved   int64  `json:"reserved,omitempty"`       // minor units, like all money
	Settled    int64  `json:"settled,omitempty"`        // money that is spent, in minor units
	Full       bool   `json:"ledger_full,omitempty"`    // no further reservation is possible
	Unknown    bool   `json:"ledger_unknown,omitempty"` // the ledger cannot be read
	Signatures string `json:"signatures,omitempty"`     // demanded by the tenant; "" is auto

	SignatureState string `json:"signature_state,omitempty"` // of a signed mandate: verified, unverifiable or invalid; "" if there was no key to check it
}
