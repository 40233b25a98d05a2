package mandate

import "github.com/countersign-dev/countersign/events/aump"

// Records is what Countersign itself knows beside a request. A request is never
// a source for any of it. The zero Records knows of no mandate, so everything
// is denied under it.
type Records struct {
	Mandates    Source      // nil: there are none
	Revocations Revocations // nil: nothing is revoked
	SpendLedger SpendLedger // nil: nothing has been spent
	Approvals   Approvals   // nil: nothing was approved
	Signatures  SignaturePolicy
}

// Source looks mandates up.
type Source interface {
	// Mandate gives the mandate in force under an id, nil if there is none. hash is
	// what the request names, in lower case or "": a source that keeps several
	// documents under one id gives the one with this hash if it has it, any of them
	// if not; all others ignore it. Whoever asks must still compare the hash.
	Mandate(tenant, id, hash string) *Mandate
}

// Revocations knows which mandates were taken back.
type Revocations interface {
	Revoked(tenant, id, hash string) bool
}

// Proposal names one proposed action to whoever keeps records about it.
type Proposal struct {
	Tenant, Source, Session, ToolCallID string
	MandateID, MandateHash              string
	Currency                            string // "" if the action has no amount
	Action                              []byte // RFC 8785 form of proposed_action
}

// Spend is money that went through a mandate, in minor units of one currency.
// Negative values count as 0.
type Spend struct {
	Reserved int64 // admitted, with an outcome that is not known yet
	Settled  int64 // known to have been spent, or to be taken for spent

	// Full: no further reservation can be held. Unknown: what was spent cannot be
	// read. Both deny every action with an amount.
	Full, Unknown bool
}

// SpendLedger knows what was spent under a mandate.
type SpendLedger interface {
	// Spend gives what counts against the mandate's budget in the proposal's
	// currency, without what is reserved for this very proposal: asking again must
	// not count twice.
	Spend(Proposal) Spend
}

// Facts are circumstances that loosen a decision.
type Facts struct {
	TrustedUI bool // the principal confirmed exactly this action in a trusted user interface
	Approved  bool // the principal approved exactly this action
}

// Approvals knows such circumstances. Whoever implements it must have bound them
// to the whole proposal and verified who gave them.
type Approvals interface {
	Facts(Proposal) Facts
}

// SignaturePolicy says which signatures a mandate needs.
type SignaturePolicy string

// The policies. Anything else is taken as SignaturesRequired.
const (
	// SignaturesAuto is SignaturesIfPresent as soon as keys are known; without any
	// key, signatures are not looked at, and the record says so.
	SignaturesAuto      SignaturePolicy = ""
	SignaturesOff       SignaturePolicy = "off"
	SignaturesIfPresent SignaturePolicy = "if_present" // those that are there must verify
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

// Revoked reports whether a mandate was taken back.
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

// Facts are the loosening circumstances of a proposal.
func (r Records) Facts(p Proposal) Facts {
	if r.Approvals == nil {
		return Facts{}
	}
	return r.Approvals.Facts(p)
}
