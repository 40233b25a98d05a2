package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// publishTimeout is for one round of PublishEvents.
const publishTimeout = 10 * time.Second

// PublishEvents stores a producer's events in their order: up to a dozen as
// single pipelined publishes, more in atomic batches of up to MaxBatch. It
// works across the account import. It returns nil only once every message is
// acknowledged; otherwise a *PublishError that names the messages which are
// not certainly stored, each with ErrRefused or ErrDoubt. After doubt nothing
// more is sent.
func PublishEvents(ctx context.Context, nc *nats.Conn, msgs []Msg) error {
	failed := map[int]error{}
	for i, m := range msgs {
		if _, err := m.check(nc.MaxPayload()); err != nil {
			failed[i] = err
		}
	}
	if len(failed) > 0 { // refuse the whole, so that the order stays
		for i := range msgs {
			if failed[i] == nil {
				failed[i] = fmt.Errorf("%w: another message of the call is not acceptable", ErrRefused)
			}
		}
		return &PublishError{failed}
	}
	l, err := newLane(nc, "", publishTimeout)
	if err != nil {
		return err
	}
	defer l.close()
	for start := 0; start < len(msgs); {
		end := roundEnd(msgs, start)
		if failed := l.publishRound(ctx, msgs[start:end], start); len(failed) > 0 {
			for i := end; i < len(msgs); i++ {
				failed[i] = fmt.Errorf("%w: not sent, an earlier message failed", ErrRefused)
			}
			return &PublishError{failed}
		}
		start = end
	}
	return nil
}

func roundEnd(msgs []Msg, start int) int {
	end, bytes := start, 0
	for end < len(msgs) && end-start < MaxBatch {
		bytes += msgs[end].size()
		if end > start && bytes > maxRoundBytes {
			break
		}
		end++
	}
	return end
}

func (l *lane) publishRound(ctx context.Context, msgs []Msg, offset int) map[int]error {
	failed := map[int]error{}
	if len(msgs) > DefaultBatchAbove {
		_, err := l.batch(ctx, msgs, nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrRefused) {
			for i := range msgs {
				failed[offset+i] = err
			}
			return failed
		}
	}
	for i, o := range l.singles(ctx, msgs, nil) {
		if o.err != nil {
			failed[offset+i] = o.err
		}
	}
	return failed
}
