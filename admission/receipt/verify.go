package receipt

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
)

// Errors that callers decide on. Whatever the error, the call must not run.
var (
	ErrMalformed      = errors.New("receipt: not a receipt")
	ErrUntrusted      = errors.New("receipt: not signed by a key that is trusted here")
	ErrOtherCall      = errors.New("receipt: made for another call")
	ErrOtherArguments = errors.New("receipt: made for other arguments")
	ErrNoArguments    = errors.New("receipt: binds no arguments, but the call has some")
	ErrNotAllowed     = errors.New("receipt: the verdict is not allow")
	ErrNotYetValid    = errors.New("receipt: issued in the future; compare the clocks")
	ErrExpired        = errors.New("receipt: expired; ask again")
	ErrIncomplete     = errors.New("receipt: cannot be issued")
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
// returned with ErrOtherCall and the errors after it in the list above, for
// the log; with any error they allow nothing.
func Verify(ks signing.KeySet, token string, want Expectation, now time.Time) (Claims, error) {
	c, err := Open(ks, token)
	if err != nil {
		return Claims{}, err
	}
	for _, check := range []func() error{
		func() error { return c.sameCall(want) },
		func() error { return c.sameArguments(want.ArgsCanonical) },
		func() error { return c.allows() },
		func() error { return c.holdsAt(now) },
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
	case errors.Is(err, signing.ErrUnknownKey), errors.Is(err, signing.ErrBadSignature):
		return Claims{}, ErrUntrusted
	case err != nil:
		return Claims{}, ErrMalformed
	}
	c, err := events.DecodeRecord[Claims](payload)
	if err != nil {
		return Claims{}, ErrMalformed
	}
	if again, err := events.Encode(c); err != nil || !bytes.Equal(again, payload) {
		return Claims{}, fmt.Errorf("%w: the payload is not in canonical form", ErrMalformed)
	}
	if err := c.check(); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return c, nil
}

func (c Claims) sameCall(want Expectation) error {
	for _, f := range []struct{ name, have, want string }{
		{"tenant", c.Tenant, want.Tenant},
		{"source", c.Source, want.Source},
		{"session", c.Session, want.Session},
		{"tool_call_id", c.ToolCallID, want.ToolCallID},
		{"tool", c.Tool, want.Tool},
	} {
		if f.have != f.want {
			return fmt.Errorf("%w: its %s differs", ErrOtherCall, f.name)
		}
	}
	return nil
}

func (c Claims) sameArguments(canonical []byte) error {
	switch {
	case canonical == nil && c.ArgsHash == "":
		return nil
	case canonical == nil:
		return fmt.Errorf("%w: the call has none", ErrOtherArguments)
	case c.ArgsHash == "":
		return ErrNoArguments
	}
	salt, err := base64.RawURLEncoding.Strict().DecodeString(c.ArgsSalt)
	if err != nil || !digest.Equal(digest.Salted(salt, canonical), c.ArgsHash) {
		return ErrOtherArguments
	}
	return nil
}

func (c Claims) allows() error {
	if c.Verdict != events.Allow {
		return fmt.Errorf("%w but %s", ErrNotAllowed, c.Verdict)
	}
	return nil
}

func (c Claims) holdsAt(now time.Time) error {
	switch {
	case now.Add(Leeway).Before(c.IssuedAt.Time):
		return ErrNotYetValid
	case !now.Before(c.ExpiresAt.Time):
		return ErrExpired
	}
	return nil
}
