package events

// DecisionInputs are the inputs of a decision other than the request, the policies and the
// records that the decision names: the answers of the service's stores. With them the decision
// can be replayed. It is nil for default inputs, which is the usual case.
type DecisionInputs struct {
	Strict       bool               `json:"strict,omitempty"`  // AAEP: high-risk invocations need a confirmation too
	Profile      string             `json:"profile,omitempty"` // "" is hardened
	Confirmation *ConfirmationInput `json:"confirmation,omitempty"`
	Mandate      *MandateInput      `json:"mandate,omitempty"`
}

// ConfirmationInput is the known state of the user's confirmation of an AAEP invocation.
type ConfirmationInput struct {
	Status           string `json:"standing,omitempty"`
	ID               string `json:"id,omitempty"`
	Explicit         bool   `json:"explicit,omitempty"`
	Understated      bool   `json:"understated,omitempty"`
	AcceptsByDefault bool   `json:"accepts_by_default,omitempty"`
	Until            Time   `json:"until,omitzero"`
}

// MandateInput is the known state of the mandate that a decision names.
type MandateInput struct {
	Revoked    bool   `json:"revoked,omitempty"`
	TrustedUI  bool   `json:"trusted_ui,omitempty"`
	Approved   bool   `json:"approved,omitempty"`
	Reserved   int64  `json:"reserved,omitempty"` // minor units, like all money
	Settled    int64  `json:"settled,omitempty"`
	Full       bool   `json:"ledger_full,omitempty"`
	Unknown    bool   `json:"ledger_unknown,omitempty"`
	Signatures string `json:"signatures,omitempty"` // demanded by the tenant; "" is auto
}
