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

// Reservation is money that an admitted action may spend, to be held in the
// ledger until its outcome is known.
type Reservation struct {
	Proposal
	Amount int64 // minor units of the proposal's currency, above zero
	Budget int64 // the most that may be spent under the mandate, in the same units
}

// Reservation is what an allowed action takes of a mandate's budget, nil if that
// is nothing.
func (p Proposal) Reservation(m *Mandate, amount int64) *Reservation {
	b := m.Authority.Budget
	if b == nil || amount <= 0 || p.Currency != b.Currency {
		return nil
	}
	return &Reservation{Proposal: p, Amount: amount, Budget: b.MaxTotal}
}

// Key names a proposal in the ledger: proposals of one source, session, call and
// action are one, however often they are made. It is keyed by the tenant, so
// that it says nothing about the action. A proposal without a tool call id is
// like no other; its key is "".
func (p Proposal) Key(tenantKey []byte) string {
	if p.ToolCallID == "" {
		return ""
	}
	return hashParts(tenantKey, "proposal", subjectToken(p.Tenant), subjectToken(p.Source), subjectToken(p.Session), p.ToolCallID, string(p.Action))
}

// CallKey names the call that a proposal belongs to, as the correlator's call
// records know it.
func CallKey(tenantKey []byte, tenant, source, session, toolCallID string) string {
	return hashParts(tenantKey, "call", subjectToken(tenant), subjectToken(source), subjectToken(session), toolCallID)
}

// CallerKey names the publisher that a reservation is for.
func CallerKey(tenantKey []byte, tenant, source string) string {
	return hashParts(tenantKey, "caller", subjectToken(tenant), subjectToken(source))
}

// Nonce is the nonce of the receipts of an allowance, as only holders of the
// tenant's key can know it beforehand.
func Nonce(tenantKey []byte, allowance string) string {
	return hashParts(tenantKey, "nonce", allowance)
}

// hashParts hashes parts so that no two lists of parts are hashed alike.
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

// subjectToken is the subject token of a name. A name that was read off a subject may
// be the token of a long one already.
func subjectToken(name string) string {
	if rest, ok := strings.CutPrefix(name, "~h"); ok && len(rest) == 2*sha256.Size {
		if _, err := hex.DecodeString(rest); err == nil {
			return name
		}
	}
	return subject.Escape(name)
}
