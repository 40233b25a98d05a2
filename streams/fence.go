package streams

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Fence makes a write conditional: the last message on Subject must have the sequence
// ExpectedLastSeq (0: there is no message).
type Fence struct {
	Subject         string
	ExpectedLastSeq uint64
}

// AppendFenced stores all messages or none, in one atomic batch. The last message, the only one
// on fence.Subject, moves the fence. It returns the sequences, which are contiguous. Errors:
// ErrFenced, another writer has moved the fence and the caller must stop writing; ErrBatchBusy,
// try again; ErrTooLarge, more than MaxBatch messages or 32 MiB, the caller must split;
// ErrRefused (which all of these are), nothing is stored; ErrAmbiguous, the caller must read
// the fence before it continues.
func AppendFenced(ctx context.Context, nc *nats.Conn, stream string, msgs []Msg, fence Fence) ([]uint64, error) {
	if len(msgs) == 0 {
		return nil, fmt.Errorf("%w: there is no message to move the fence with", ErrRefused)
	}
	// Check everything first, so that nothing is sent of a batch that the server would refuse.
	if err := checkFenced(msgs, fence.Subject, nc.MaxPayload()); err != nil {
		return nil, err
	}
	s, err := newSenderFor(nc, stream, DefaultCommitTimeout, batchReplies)
	if err != nil {
		return nil, err
	}
	defer s.close()
	end, h := len(msgs)-1, nats.Header{headerExpectLast: {strconv.FormatUint(fence.ExpectedLastSeq, 10)}}
	if end == 0 { // a single message has the same guarantee without a batch, at a tenth of the cost
		out := s.publishEach(ctx, msgs, h)[0]
		return []uint64{out.seq}, out.err
	}
	return s.publishBatch(ctx, msgs, h)
}

// batchReplies is the number of the server's replies to one batch: to the first and to the last
// message.
const batchReplies = 2

// checkFenced refuses messages that the server would refuse, or of which another one than the last moves the fence.
func checkFenced(msgs []Msg, fence string, maxPayload int64) error {
	end := len(msgs) - 1
	for i, m := range msgs {
		switch {
		case i < end && m.Subject == fence:
			return fmt.Errorf("%w: only the last message may be on the fence's subject %q", ErrRefused, fence)
		case i == end && m.Subject != fence:
			return fmt.Errorf("%w: the last of the messages must be on the fence's subject %q", ErrRefused, fence)
		}
	}
	if len(msgs) > MaxBatch {
		return fmt.Errorf("%w: %w: %d messages in one batch, at most %d", ErrRefused, ErrTooLarge, len(msgs), MaxBatch)
	}
	bytes, err := checkAll(msgs, maxPayload)
	if err != nil {
		return err
	}
	if bytes > maxRoundBytes {
		return fmt.Errorf("%w: %w: %d bytes in one batch, at most %d", ErrRefused, ErrTooLarge, bytes, maxRoundBytes)
	}
	return nil
}
