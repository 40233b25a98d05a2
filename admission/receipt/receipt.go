// Package receipt issues and verifies the signed receipts that come with verdicts. A receipt
// binds a verdict to exactly what was asked (tenant, source, session, call, tool and
// arguments), for a short time. The admitter calls Issue. The executor of a tool calls Verify,
// offline, with the call that is about to run; only then does the verdict count.
//
// The package is pure: keys, salts, nonces and the time are inputs.
package receipt

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
)

// Version is the version of Claims that this package makes and reads.
const Version = 1

// Lifetimes of a receipt, from IssuedAt to ExpiresAt.
const (
	DefaultLifetime = 60 * time.Second
	MinLifetime     = time.Second
	MaxLifetime     = 24 * time.Hour
)

// SaltSize is the length of a salt in bytes.
const SaltSize = 16

// Leeway is how far the verifier's clock may be behind the issuer's. There is none the other
// way: a receipt ends at its ExpiresAt.
const Leeway = 30 * time.Second

// maxToken bounds the tokens that Verify reads, in bytes.
const maxToken = 16 << 10

// Claims is the payload of a receipt, in RFC 8785 form. A protocol without arguments (AAEP)
// leaves both ArgsSalt and ArgsHash empty.
type Claims struct {
	V          int                `json:"v"`                      // version of the form, 1
	DecisionID string             `json:"decision_id"`            // of the decision record
	Tenant     string             `json:"tenant"`                 // of the caller
	Source     string             `json:"source"`                 // the authenticated publisher
	Session    string             `json:"session,omitempty"`      // of the call
	ToolCallID string             `json:"tool_call_id,omitempty"` // the runtime's id of the call
	Tool       string             `json:"tool,omitempty"`         // its name in the request
	ArgsSalt   string             `json:"args_salt,omitempty"`    // base64url of 16 bytes
	ArgsHash   string             `json:"args_hash,omitempty"`    // HMAC-SHA256 over the RFC 8785 form of the arguments, keyed by the salt
	Verdict    events.Verdict     `json:"verdict"`                // allow, ask, defer or deny: only with allow may the call run
	Mode       string             `json:"mode,omitempty"`         // "observe": the policies were not enforced, so an allow is none of theirs
	Policy     events.PolicyRef   `json:"policy"`                 // the deciding policy
	Mandate    *events.MandateRef `json:"mandate,omitempty"`      // the AUMP mandate of the request
	IssuedAt   events.Time        `json:"issued_at"`              // when it was decided
	ExpiresAt  events.Time        `json:"expires_at"`             // the first instant at which the receipt no longer holds
	Nonce      string             `json:"nonce"`                  // what a use store remembers

	// UseUntil is set if other receipts may have the same nonce: one allowance that was asked
	// for several times. An executor uses one of them, and remembers the nonce until this time.
	UseUntil events.Time `json:"use_until,omitzero"`
}

// BindArguments sets ArgsSalt and ArgsHash. canonical is the RFC 8785 form of
// the arguments; nil leaves the claims without arguments, which is not the same
// as the empty object {}. salt must have SaltSize fresh random bytes.
func (c *Claims) BindArguments(salt, canonical []byte) error {
	if canonical == nil {
		c.ArgsSalt, c.ArgsHash = "", ""
		return nil
	}
	if len(salt) != SaltSize {
		return fmt.Errorf("%w: a salt has %d bytes, not %d", ErrIncomplete, SaltSize, len(salt))
	}
	c.ArgsSalt = base64.RawURLEncoding.EncodeToString(salt)
	c.ArgsHash = digest.Salted(salt, canonical)
	return nil
}

// Issue signs claims. hash is the plain SHA-256 of the token, which a decision record keeps.
// Claims that Verify would call malformed are refused with ErrIncomplete; Issue sets V.
func Issue(key signing.PrivateKey, c Claims) (token, hash string, err error) {
	c.V = Version
	if key.ID == "" {
		return "", "", fmt.Errorf("%w: there is no key", ErrIncomplete)
	}
	if err := c.validate(); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	payload, err := events.Encode(c)
	if err != nil {
		return "", "", fmt.Errorf("receipt: %w", err)
	}
	if token, err = key.Sign(signing.TypeReceipt, payload); err != nil {
		return "", "", fmt.Errorf("receipt: signing: %w", err)
	}
	if len(token) > maxToken {
		return "", "", fmt.Errorf("%w: the receipt would have more than %d bytes", ErrIncomplete, maxToken)
	}
	return token, Hash(token), nil
}

// Hash is the plain SHA-256 of a receipt's compact form, which a decision record keeps.
func Hash(token string) string { return digest.Plain([]byte(token)) }

// validate refuses claims that are incomplete or contradict themselves.
func (c Claims) validate() error {
	if what := c.invalidReason(); what != "" {
		return errors.New(what)
	}
	return nil
}

func (c Claims) invalidReason() string {
	lifetime := c.ExpiresAt.Sub(c.IssuedAt.Time)
	switch {
	case c.V != Version:
		return "v is not a version that is known here"
	case c.DecisionID == "":
		return "decision_id is missing"
	case c.Tenant == "":
		return "tenant is missing"
	case c.Source == "":
		return "source is missing"
	case c.Nonce == "":
		return "nonce is missing"
	case !c.Verdict.Valid():
		return "verdict is none of the four"
	case c.Mode != "" && c.Mode != events.ModeObserve:
		return "mode is not one that is known here"
	case c.IssuedAt.IsZero() || c.ExpiresAt.IsZero():
		return "issued_at or expires_at is missing"
	case lifetime < MinLifetime || lifetime > MaxLifetime:
		return "the lifetime is out of bounds"
	case !c.UseUntil.IsZero() && c.UseUntil.Before(c.ExpiresAt.Time):
		return "use_until is before expires_at"
	case (c.ArgsSalt == "") != (c.ArgsHash == ""):
		return "one of args_salt and args_hash is missing"
	}
	if _, ok := decodeSalt(c.ArgsSalt); c.ArgsSalt != "" && !ok {
		return "args_salt is not 16 bytes in base64url"
	}
	return ""
}

// decodeSalt reads ArgsSalt in its only valid spelling.
func decodeSalt(text string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return b, err == nil && len(b) == SaltSize && !strings.ContainsAny(text, "\r\n")
}
