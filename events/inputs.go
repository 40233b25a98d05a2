package events

// DecisionInputs is what the deciding service knew beside the request, the
// policies and the records that a decision names, so that the decision can be
// made again: the answers that its stores gave. It is nil where nothing but the
// defaults was known, which is most often so.
type DecisionInputs struct {
	Strict       bool               `json:"strict,omitempty"`  // AAEP: high-risk invocations need a confirmation too
	Profile      string             `json:"profile,omitempty"` // "" is hardened
	Confirmation *ConfirmationInput `json:"confirmation,omitempty"`
	Mandate      *MandateInput      `json:"mandate,omitempty"`
}

// ConfirmationInput is what was known of the user's word on an AAEP invocation.
type ConfirmationInput struct {
	Status           string `json:"standing,omitempty"`
	ID               string `json:"id,omitempty"`
	Explicit         bool   `json:"explicit,omitempty"`
	Understated      bool   `json:"understated,omitempty"`
	AcceptsByDefault bool   `json:"accepts_by_default,omitempty"`
	Until            Time   `json:"until,omitzero"`
}

// MandateInput is what was known of the mandate that a decision names.
type MandateInput struct {
	Revoked    bool   `json:"revoked,omitempty"`
	TrustedUI  bool   `json:"trusted_ui,omitempty"`
	Approved   bool   `json:"approved,omitempty"`
	Reserved   int64  `json:"reserved,omitempty"` // minor units, as everything about money
	Settled    int64  `json:"settled,omitempty"`
	Full       bool   `json:"ledger_full,omitempty"`
	Unknown    bool   `json:"ledger_unknown,omitempty"`
	Signatures string `json:"signatures,omitempty"` // which the tenant demands; "" is auto
}
