package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// publishTimeout bounds one round of messages.
const publishTimeout = 10 * time.Second

// PublishEvents stores a producer's events in their order, many in flight at a time. It returns nil
// only once every message is acknowledged. Otherwise it returns a *PublishError with the messages
// that are not certainly stored, each with ErrRefused or ErrAmbiguous. After such an error it
// sends no further round, but those behind a refused message in its round may be stored: sent
// again, it comes after them.
func PublishEvents(ctx context.Context, nc *nats.Conn, msgs []Msg) error {
	return sendAll(ctx, nc, msgs, maxEventBytes, (*sender).publishEvents)
}

// StoreAll is PublishEvents for the services, which have access to JetStream: up to a dozen
// messages are published singly and pipelined, more are sent in atomic batches of up to MaxBatch.
func StoreAll(ctx context.Context, nc *nats.Conn, msgs []Msg) error {
	return sendAll(ctx, nc, msgs, maxRoundBytes, (*sender).storeRound)
}

// maxEventBytes bounds the bytes that one sender has in flight, because all publishers share
// what the server lets wait for the ingest service's connection (maxPending).
const maxEventBytes = 4 << 20

func sendAll(ctx context.Context, nc *nats.Conn, msgs []Msg, bytes int, send func(*sender, context.Context, []Msg, int) map[int]error) error {
	failed := map[int]error{}
	for i, m := range msgs {
		if _, err := m.check(nc.MaxPayload()); err != nil {
			failed[i] = err
		}
	}
	if len(failed) > 0 { // refuse all, so that the order is kept
		for i := range msgs {
			if failed[i] == nil {
				failed[i] = fmt.Errorf("%w: another message of the call is not acceptable", ErrRefused)
			}
		}
		return &PublishError{failed}
	}
	s, err := newSender(nc, "", publishTimeout)
	if err != nil {
		return err
	}
	defer s.close()
	for start := 0; start < len(msgs); {
		end := roundEnd(msgs, start, bytes)
		if failed := send(s, ctx, msgs[start:end], start); len(failed) > 0 {
			for i := end; i < len(msgs); i++ {
				failed[i] = fmt.Errorf("%w: not sent, an earlier message failed", ErrRefused)
			}
			return &PublishError{failed}
		}
		start = end
	}
	return nil
}

func roundEnd(msgs []Msg, start, limit int) int {
	end, bytes := start, 0
	for end < len(msgs) && end-start < MaxBatch {
		bytes += msgs[end].size()
		if end > start && bytes > limit {
			break
		}
		end++
	}
	return end
}

func (s *sender) storeRound(ctx context.Context, msgs []Msg, offset int) map[int]error {
	if len(msgs) <= singlesPerBatch {
		return s.publishEvents(ctx, msgs, offset)
	}
	_, err := s.publishBatch(ctx, msgs, nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrRefused):
		return s.publishEvents(ctx, msgs, offset)
	}
	failed := map[int]error{}
	for i := range msgs {
		failed[offset+i] = err
	}
	return failed
}

func (s *sender) publishEvents(ctx context.Context, msgs []Msg, offset int) map[int]error {
	failed := map[int]error{}
	for i, o := range s.publishEach(ctx, msgs, nil) {
		if o.err != nil {
			failed[offset+i] = o.err
		}
	}
	return failed
}
