package streams

import (
	"context"
	"iter"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/events"
)

// prefetchMessages is how many messages MessagesBack requests at a time.
const prefetchMessages = 64

// MessagesBack yields the messages of a stream from the last at the time of the call to the first. It
// requests single messages, several at a time (10,000 a second and more), and therefore needs no
// permission to create a consumer. An error is the last thing that it yields.
func MessagesBack(ctx context.Context, js jetstream.JetStream, stream string) iter.Seq2[*events.LogMessage, error] {
	return func(yield func(*events.LogMessage, error) bool) {
		state, err := StreamState(ctx, js, stream)
		if err != nil {
			yield(nil, err)
			return
		}
		for left := state.LastSeq; left > 0 && left >= state.FirstSeq; {
			n := min(prefetchMessages, left-state.FirstSeq+1)
			list, err := messagesFrom(ctx, js, stream, left-n+1, n)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range slices.Backward(list) {
				if !yield(m, nil) {
					return
				}
			}
			left -= n
		}
	}
}

// messagesFrom reads those of n messages that exist, in order.
func messagesFrom(ctx context.Context, js jetstream.JetStream, stream string, first, n uint64) ([]*events.LogMessage, error) {
	list := make([]*events.LogMessage, n)
	g, ctx := errgroup.WithContext(ctx)
	for i := range list {
		g.Go(func() (err error) {
			list[i], err = MessageAt(ctx, js, stream, first+uint64(i))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(m *events.LogMessage) bool { return m == nil }), nil
}
