package mandate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// Reservation is money that an admitted action may spend, held in the ledger until its outcome
// is known.
type Reservation struct {
	Proposal
	Amount int64 // minor units of the proposal's currency, above zero
	Budget int64 // the maximum under the mandate, in the same units
}

// Reservation is what an allowed action reserves of a mandate's budget, nil for nothing.
func (p Proposal) Reservation(m *Mandate, amount int64) *Reservation {
	b := m.Authority.Budget
	if b == nil || amount <= 0 || p.Currency != b.Currency {
		return nil
	}
	return &Reservation{Proposal: p, Amount: amount, Budget: b.MaxTotal}
}

// Key identifies a proposal in the ledger: proposals of one source, session, call and action
// have one key, however often they are made. It is keyed by the tenant, so that it reveals
// nothing about the action. A proposal without a tool call id shares no allowance; its key is "".
func (p Proposal) Key(tenantKey []byte) string {
	if p.ToolCallID == "" {
		return ""
	}
	return hashParts(tenantKey, "proposal", subjectToken(p.Tenant), subjectToken(p.Source), subjectToken(p.Session), p.ToolCallID, string(p.Action))
}

// CallKey identifies the call of a proposal, as in the correlator's call records.
func CallKey(tenantKey []byte, tenant, source, session, toolCallID string) string {
	return hashParts(tenantKey, "call", subjectToken(tenant), subjectToken(source), subjectToken(session), toolCallID)
}

// PublisherKey identifies the publisher of a reservation.
func PublisherKey(tenantKey []byte, tenant, source string) string {
	return hashParts(tenantKey, "caller", subjectToken(tenant), subjectToken(source))
}

// Nonce is the nonce of the receipts of an allowance. Only holders of the tenant's key can
// compute it beforehand.
func Nonce(tenantKey []byte, allowance string) string {
	return hashParts(tenantKey, "nonce", allowance)
}

// hashParts hashes parts so that different lists of parts give different input.
func hashParts(key []byte, parts ...string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("countersign/spend/v1"))
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// subjectToken is the subject token of a name. A name from a subject may already be the token
// of a long name.
func subjectToken(name string) string {
	if rest, ok := strings.CutPrefix(name, "~h"); ok && len(rest) == 2*sha256.Size {
		if _, err := hex.DecodeString(rest); err == nil {
			return name
		}
	}
	return subject.Escape(name)
}
