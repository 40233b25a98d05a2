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

// Expectation is the call that is about to run, as the executor knows it. Every
// field is compared to the letter; an empty one means that the call has none,
// not that any will do.
type Expectation struct {
	Tenant     string
	Source     string
	Session    string
	ToolCallID string
	Tool       string

	// ArgsCanonical is the RFC 8785 form of the arguments that are about to run.
	// nil means that the protocol carries no arguments (AAEP): the receipt must
	// then bind none. A call without arguments in a protocol that has them passes
	// what was asked: {} if that was an empty object.
	ArgsCanonical []byte
}

// Verify checks a receipt against the call that is about to run. The claims are
// returned with ErrOtherCall and the errors after it in errors.go, for the log;
// with any error they allow nothing.
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

// Open checks the signature and the form of a receipt and nothing else: it does
// not say that anything may run.
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
	// Only claims whose one spelling is the payload, byte for byte, are in it: what
	// a strict parser would refuse (a key twice, in another case, a blank) has none.
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

// HoldsAt is nil while the receipt is in force: from IssuedAt, less Leeway, to
// before ExpiresAt.
func (c Claims) HoldsAt(now time.Time) error {
	switch {
	case now.Add(Leeway).Before(c.IssuedAt.Time):
		return ErrNotYetValid
	case !now.Before(c.ExpiresAt.Time):
		return ErrExpired
	}
	return nil
}
