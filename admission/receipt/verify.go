package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Expectation is the call that is about to run, as the executor knows it. Every field must
// match exactly; an empty field means that the call has none, not that any value matches.
type Expectation struct {
	Tenant     string
	Source     string
	Session    string
	ToolCallID string
	Tool       string

	// ArgsCanonical is the RFC 8785 form of the arguments that are about to run. nil means that
	// the protocol carries no arguments (AAEP): the receipt must then bind none. For a call
	// without arguments in a protocol that has them it is what was asked: {} for an empty
	// object.
	ArgsCanonical []byte
}

// Verify checks a receipt against the call that is about to run. With ErrOtherCall and the
// errors after it in errors.go the claims are returned for the log; with any error they permit
// nothing.
func Verify(ks signing.KeySet, token string, want Expectation, now time.Time) (Claims, error) {
	c, err := Open(ks, token)
	if err != nil {
		return Claims{}, err
	}
	for _, check := range []func() error{
		func() error { return c.checkCall(want) },
		func() error { return c.checkArguments(want.ArgsCanonical) },
		func() error { return c.checkAllowed() },
		func() error { return c.HoldsAt(now) },
	} {
		if err := check(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Open checks only the signature and the form of a receipt. It does not permit anything to run.
func Open(ks signing.KeySet, token string) (Claims, error) {
	if len(token) > maxToken {
		return Claims{}, ErrMalformed
	}
	payload, _, err := ks.Verify(signing.TypeReceipt, token)
	switch {
	case errors.Is(err, signing.ErrUnknownKey):
		return Claims{}, ErrUnknownKey
	case errors.Is(err, signing.ErrBadSignature):
		return Claims{}, ErrBadSignature
	case err != nil:
		return Claims{}, ErrMalformed
	}
	// The payload must be the exact canonical bytes of its claims. A payload that a strict
	// parser refuses (a duplicate key, a key in another case, a blank) is never canonical.
	var c Claims
	if err := strictjson.Unmarshal(payload, &c, strictjson.RejectUnknown); err != nil {
		return Claims{}, ErrMalformed
	}
	if again, err := events.Encode(c); err != nil || !bytes.Equal(again, payload) {
		return Claims{}, fmt.Errorf("%w: the payload is not in canonical form", ErrMalformed)
	}
	if err := c.validate(); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return c, nil
}

func (c Claims) checkCall(want Expectation) error {
	for _, f := range []struct {
		have, want string
		err        error
	}{
		{c.Tenant, want.Tenant, ErrOtherTenant},
		{c.Source, want.Source, ErrOtherSource},
		{c.Session, want.Session, ErrOtherSession},
		{c.ToolCallID, want.ToolCallID, ErrOtherToolCall},
		{c.Tool, want.Tool, ErrOtherTool},
	} {
		if f.have != f.want {
			return f.err
		}
	}
	return nil
}

func (c Claims) checkArguments(canonical []byte) error {
	switch {
	case canonical == nil && c.ArgsHash == "":
		return nil
	case canonical == nil:
		return fmt.Errorf("%w: the call has none", ErrOtherArguments)
	case c.ArgsHash == "":
		return ErrNoArguments
	}
	if s, ok := decodeSalt(c.ArgsSalt); !ok || !digest.Equal(digest.Salted(s, canonical), c.ArgsHash) {
		return ErrOtherArguments
	}
	return nil
}

func (c Claims) checkAllowed() error {
	if c.Verdict != events.Allow {
		return fmt.Errorf("%w but %s", ErrNotAllowed, c.Verdict)
	}
	return nil
}

// HoldsAt returns nil while the receipt is in force: from IssuedAt minus Leeway until before
// ExpiresAt.
func (c Claims) HoldsAt(now time.Time) error {
	switch {
	case now.Add(Leeway).Before(c.IssuedAt.Time):
		return ErrNotYetValid
	case !now.Before(c.ExpiresAt.Time):
		return ErrExpired
	}
	return nil
}
