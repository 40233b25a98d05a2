package system

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// WithRefusals returns a context that ends as soon as the server refuses a subject to nc. The
// server reports a refusal asynchronously: without this a caller would wait for an answer until
// its timeout.
func WithRefusals(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	return ctx, func() { cancel(nil) }
}

// Refusal returns the server's refusal that ended ctx, nil if there was none.
func Refusal(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}
