package aump

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// PrincipalRequest is what the principal of a mandate asks: to be shown it, or to revoke it. It is JSON, sent as
// a request on gov.mandates.<tenant>; the answer is a PrincipalReply. AUMP names the operations (8.2, 8.5) and the
// principal, the represented party (6.1); that a principal is the user whose name is principal.subject is ours.
type PrincipalRequest struct {
	Action string       `json:"action"` // ActionPresent or ActionRevoke
	Ref    PrincipalRef `json:"mandate_ref"`
	Reason string       `json:"reason,omitempty"` // of a revocation, required there
}

// PrincipalRef names a mandate. A hash must be that of the mandate in force.
type PrincipalRef struct {
	ID      string `json:"id"`
	Hash    string `json:"hash,omitempty"`
	URL     string `json:"url,omitempty"`
	Version string `json:"version,omitempty"`
}

// Actions of a principal.
const (
	ActionPresent = "present"
	ActionRevoke  = "revoke"
)

// Bounds of a PrincipalRequest, in bytes.
const (
	MaxPrincipalRequest = 4096
	MaxReason           = 512 // of a revocation
)

// PrincipalReply is the answer to a principal.
type PrincipalReply struct {
	Code       string        `json:"code"`
	Message    string        `json:"message,omitempty"` // what is wrong and what to do
	Mandate    *Presentation `json:"mandate,omitempty"`
	Revocation *Revoked      `json:"revocation,omitempty"`
}

// Codes of a PrincipalReply. A mandate of another principal is answered like one that does not exist.
const (
	PrincipalDone        = "ok"
	PrincipalInvalid     = "schema_invalid"
	PrincipalUnknown     = "mandate_not_found"
	PrincipalMismatch    = "mandate_hash_mismatch"
	PrincipalRefused     = "unknown_source" // the sender is no user of the tenant, or not reached through this gateway
	PrincipalBusy        = "rate_limited"
	PrincipalUnavailable = "unavailable"
)

// Presentation is the summary of a mandate for its principal (8.2). It leaves out preferences, negotiation and
// disclosure rules.
type Presentation struct {
	Ref           PrincipalRef `json:"mandate_ref"`
	Status        string       `json:"status"` // of the document
	Usable        bool         `json:"usable"` // active, bounded, begun, not expired, not revoked, signed as demanded
	IssuedAt      string       `json:"issued_at"`
	ExpiresAt     string       `json:"expires_at"`
	AgentID       string       `json:"agent_id"`
	AgentName     string       `json:"agent_name"`
	Purpose       string       `json:"purpose"` // its summary
	Mode          string       `json:"mode"`
	Permissions   []string     `json:"permissions"`
	Prohibited    []string     `json:"prohibited_actions"`
	Currency      string       `json:"currency,omitempty"` // of the budget
	MaxTotalMinor int64        `json:"max_total_minor,omitempty"`
}

// Revoked is a revocation that is in force.
type Revoked struct {
	ID        string      `json:"id"`
	Hash      string      `json:"hash"`
	Reason    string      `json:"reason"`
	Author    string      `json:"author"`
	RevokedAt events.Time `json:"revoked_at"`
}

// ErrPrincipal reports an invalid PrincipalRequest. It quotes nothing of it.
var ErrPrincipal = errors.New("not a request of a mandate's principal")

// DecodePrincipalRequest reads a request, strictly.
func DecodePrincipalRequest(b []byte) (r PrincipalRequest, err error) {
	if len(b) > MaxPrincipalRequest {
		return r, fmt.Errorf("%w: it has more than %d bytes", ErrPrincipal, MaxPrincipalRequest)
	}
	if r, err = events.DecodeRecord[PrincipalRequest](b); err != nil {
		return r, fmt.Errorf("%w: it must be one JSON object with action, mandate_ref and reason alone", ErrPrincipal)
	}
	switch hash, ok := NormaliseHash(r.Ref.Hash); {
	case !slices.Contains([]string{ActionPresent, ActionRevoke}, r.Action):
		return r, fmt.Errorf("%w: the action must be %s or %s", ErrPrincipal, ActionPresent, ActionRevoke)
	case r.Ref.Hash != "" && !ok:
		return r, fmt.Errorf("%w: mandate_ref.hash must be sha256- and 64 hex digits", ErrPrincipal)
	case r.Action == ActionRevoke && (strings.TrimSpace(r.Reason) == "" || len(r.Reason) > MaxReason):
		return r, fmt.Errorf("%w: reason must say why, in at most %d bytes", ErrPrincipal, MaxReason)
	default:
		r.Ref.Hash = hash
		return r, nil
	}
}

// Present summarises a mandate. hash is that of the document; refused says that it is revoked, or not signed as its tenant
// demands.
func (m *Mandate) Present(hash string, refused bool, now time.Time) *Presentation {
	p := &Presentation{
		Ref: PrincipalRef{ID: m.ID, Hash: hash, Version: m.Version}, Status: m.Status,
		Usable:   m.Status == StatusActive && !refused && !m.IsUnbounded() && now.Before(m.ExpiresAt) && !now.Before(m.IssuedAt),
		IssuedAt: m.IssuedAt.UTC().Format(time.RFC3339), ExpiresAt: m.ExpiresAt.UTC().Format(time.RFC3339),
		AgentID: m.Agent.ID, AgentName: m.Agent.Name, Purpose: m.Purpose.Summary, Mode: m.Authority.Mode,
		Permissions: append([]string{}, m.Authority.Permissions...), Prohibited: append([]string{}, m.Authority.ProhibitedActions...),
	}
	if b := m.Authority.Budget; b != nil {
		p.Currency, p.MaxTotalMinor = b.Currency, b.MaxTotal
	}
	return p
}
