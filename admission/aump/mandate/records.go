package mandate

import "github.com/countersign-dev/countersign/events/aump"

// Records are Countersign's own records about mandates. A request is never a source for them.
// The zero Records has no mandate, so everything is denied under it.
type Records struct {
	Mandates    Source            // nil: there are none
	Revocations Revocations       // nil: nothing is revoked
	SpendLedger SpendLedger       // nil: nothing has been spent
	Approvals   PrincipalConsents // nil: nothing was approved
	Signatures  SignaturePolicy
}

// Source looks mandates up.
type Source interface {
	// Mandate returns the mandate in force under an id, nil if there is none. hash is the
	// request's, in lower case or "": a source with several documents under one id returns the
	// one with this hash, or any if none has it; other sources ignore it. The caller must still
	// compare the hash.
	Mandate(tenant, id, hash string) *Mandate
}

// Revocations looks up revoked mandates.
type Revocations interface {
	Revoked(tenant, id, hash string) bool
}

// Proposal identifies one proposed action in Countersign's records.
type Proposal struct {
	Tenant, Source, Session, ToolCallID string
	MandateID, MandateHash              string
	Currency                            string // "" if the action has no amount
	Action                              []byte // RFC 8785 form of proposed_action
}

// Spend is money spent under a mandate, in minor units of one currency. Negative values count
// as 0.
type Spend struct {
	Reserved int64 // admitted, with an open outcome
	Settled  int64 // known to be spent, or counted as spent

	// Full: no further reservation is possible. Unknown: the ledger cannot be read. Both deny
	// every action with an amount.
	Full, Unknown bool
}

// SpendLedger looks up what was spent under a mandate.
type SpendLedger interface {
	// Spend returns what counts against the mandate's budget in the proposal's currency,
	// without what is reserved for this proposal: a repeated request must not count twice.
	Spend(Proposal) Spend
}

// PrincipalConsent is what the principal has consented to: it loosens a decision.
type PrincipalConsent struct {
	TrustedUI bool // the principal confirmed exactly this action in a trusted user interface
	Approved  bool // the principal approved exactly this action
}

// PrincipalConsents looks up a PrincipalConsent. An implementation must have bound them to the whole proposal and
// verified their origin.
type PrincipalConsents interface {
	Consent(Proposal) PrincipalConsent
}

// SignaturePolicy states which signatures a mandate needs.
type SignaturePolicy string

// The policies. Any other value counts as SignaturesRequired.
const (
	// SignaturesAuto is SignaturesIfPresent as soon as keys are known; without keys, signatures
	// are not checked, and the record shows that.
	SignaturesAuto      SignaturePolicy = ""
	SignaturesOff       SignaturePolicy = "off"
	SignaturesIfPresent SignaturePolicy = "if_present" // signatures that are present must verify
	SignaturesRequired  SignaturePolicy = "required"
)

// Accepts reports whether signatures in a state are enough.
func (p SignaturePolicy) Accepts(state aump.SignatureState) bool {
	switch p {
	case SignaturesOff:
		return true
	case SignaturesAuto:
		return state != aump.SignatureInvalid && state != aump.SignatureUnverifiable
	case SignaturesIfPresent:
		return state == aump.SignatureNone || state == aump.SignatureVerified
	}
	return state == aump.SignatureVerified
}

// Find looks a mandate up.
func (r Records) Find(tenant, id, hash string) *Mandate {
	if r.Mandates == nil || !ValidID(id) {
		return nil
	}
	return r.Mandates.Mandate(tenant, id, hash)
}

// Revoked reports whether a mandate was revoked.
func (r Records) Revoked(tenant string, m *Mandate) bool {
	return r.Revocations != nil && r.Revocations.Revoked(tenant, m.ID, m.Hash)
}

// Spent is what counts against the budget before this proposal.
func (r Records) Spent(p Proposal) Spend {
	if r.SpendLedger == nil || p.Currency == "" {
		return Spend{}
	}
	s := r.SpendLedger.Spend(p)
	s.Reserved, s.Settled = max(0, s.Reserved), max(0, s.Settled)
	return s
}

// Consent is what the principal has consented to of a proposal.
func (r Records) Consent(p Proposal) PrincipalConsent {
	if r.Approvals == nil {
		return PrincipalConsent{}
	}
	return r.Approvals.Consent(p)
}
