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
	b := NewFencedBatch(nc, stream, fence.Subject)
	defer b.Close()
	end := len(msgs) - 1
	// Check everything first, so that nothing is sent of a batch that the server would refuse.
	if err := b.checkMessages(msgs[:end], msgs[end]); err != nil {
		return nil, err
	}
	if err := b.stageMessages(msgs[:end]); err != nil {
		return nil, err
	}
	return b.commitBatch(ctx, msgs[end], fence.ExpectedLastSeq)
}

// FencedBatch is AppendFenced in several steps. The server checks the fence only when the last
// message comes, so the other messages can be sent before the expected fence is known. A batch
// that is not committed leaves nothing in the stream. One goroutine owns a FencedBatch and
// must call Close; the connection is the caller's.
type FencedBatch struct {
	nc     *nats.Conn
	stream string
	fence  string // subject

	sender *sender    // nil until Stage or Commit
	batch  *openBatch // nil until messages are staged
	staged int        // number of staged messages
	bytes  int
	err    error // the reason why Commit will fail
}

// NewFencedBatch makes a batch. It sends nothing before Stage or Commit.
func NewFencedBatch(nc *nats.Conn, stream, fence string) *FencedBatch {
	return &FencedBatch{nc: nc, stream: stream, fence: fence}
}

// Stage sends messages that precede the last one. Errors are ErrRefused as of AppendFenced, and
// nothing will be stored; Commit repeats them. The server's own refusal of the batch
// (ErrBatchBusy) is returned by Commit. After Stage, the caller must call Stage or Commit
// again within 10 s.
func (b *FencedBatch) Stage(msgs []Msg) error {
	if b.err == nil {
		b.err = b.checkMessages(msgs)
	}
	if b.err != nil {
		return b.err
	}
	return b.stageMessages(msgs)
}

// Commit sends the message that moves the fence from expectedLastSeq, and returns the sequence of
// this message once everything is stored. Errors are those of AppendFenced.
func (b *FencedBatch) Commit(ctx context.Context, last Msg, expectedLastSeq uint64) (uint64, error) {
	if b.err == nil {
		b.err = b.checkMessages(nil, last)
	}
	if b.err != nil {
		return 0, b.err
	}
	seqs, err := b.commitBatch(ctx, last, expectedLastSeq)
	if err != nil {
		return 0, err
	}
	return seqs[len(seqs)-1], nil
}

// Close abandons what was not committed.
func (b *FencedBatch) Close() {
	if b.sender != nil {
		b.sender.close()
		b.sender = nil
	}
}

func (b *FencedBatch) stageMessages(msgs []Msg) error {
	if b.err = b.beginBatch(len(msgs)); b.err != nil {
		return b.err
	}
	for _, m := range msgs {
		if b.err = b.batch.stageMessage(m); b.err != nil {
			return b.err
		}
	}
	return nil
}

// beginBatch makes the sender and, if messages are to be staged, begins the batch.
func (b *FencedBatch) beginBatch(staged int) (err error) {
	if b.sender == nil {
		if b.sender, err = newSenderFor(b.nc, b.stream, DefaultCommitTimeout, batchReplies); err != nil {
			return err
		}
	}
	if b.batch == nil && staged > 0 {
		b.batch = b.sender.beginBatch()
	}
	return nil
}

// batchReplies is the number of the server's replies to one batch: to the first and to the last
// message.
const batchReplies = 2

func (b *FencedBatch) commitBatch(ctx context.Context, last Msg, expectedLastSeq uint64) ([]uint64, error) {
	if err := b.beginBatch(0); err != nil {
		return nil, err
	}
	h := nats.Header{headerExpectLast: {strconv.FormatUint(expectedLastSeq, 10)}}
	if b.batch != nil {
		return b.batch.commit(ctx, last, h)
	}
	// A single message has the same guarantee without a batch, at a tenth of the cost.
	out := b.sender.publishEach(ctx, []Msg{last}, h)[0]
	if out.err != nil {
		return nil, out.err
	}
	return []uint64{out.seq}, nil
}

// checkMessages counts messages, and refuses those that the server would refuse. last is empty or
// the one message that moves the fence.
func (b *FencedBatch) checkMessages(msgs []Msg, last ...Msg) error {
	for _, m := range msgs {
		if m.Subject == b.fence {
			return fmt.Errorf("%w: only the last message may be on the fence's subject %q", ErrRefused, b.fence)
		}
	}
	for _, m := range last {
		if m.Subject != b.fence {
			return fmt.Errorf("%w: the last of the messages must be on the fence's subject %q", ErrRefused, b.fence)
		}
	}
	const room = 1 // for the last one
	b.staged += len(msgs)
	if b.staged+room > MaxBatch {
		return fmt.Errorf("%w: %w: %d messages in one batch, at most %d", ErrRefused, ErrTooLarge, b.staged+room, MaxBatch)
	}
	for _, more := range [][]Msg{msgs, last} {
		bytes, err := checkAll(more, b.nc.MaxPayload())
		if err != nil {
			return err
		}
		b.bytes += bytes
	}
	if b.bytes > maxRoundBytes {
		return fmt.Errorf("%w: %w: %d bytes in one batch, at most %d", ErrRefused, ErrTooLarge, b.bytes, maxRoundBytes)
	}
	return nil
}
