package system

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// WithRefusals gives a context that ends as soon as the server refuses nc a
// subject. The server says so beside the conversation: a caller that only waits
// for an answer waits until time is up.
func WithRefusals(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	return ctx, func() { cancel(nil) }
}

// Refusal is the server's refusal that ended ctx, nil if none did.
func Refusal(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}
