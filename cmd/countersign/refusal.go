package main

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// heedRefusals gives a context that ends as soon as the server refuses nc a
// subject. The server says so beside the conversation: whoever only waits for an
// answer waits in vain until time is up.
func heedRefusals(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	return ctx, func() { cancel(nil) }
}

// refused is the server's refusal that ended ctx, nil if none did.
func refused(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}
