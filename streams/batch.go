package streams

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// publishBatch publishes one atomic batch and returns the sequences of its messages. ErrRefused
// means that nothing of the batch is stored.
func (s *sender) publishBatch(ctx context.Context, msgs []Msg) ([]uint64, error) {
	b, end := s.beginBatch(), len(msgs)-1
	for _, m := range msgs[:end] {
		if err := b.stageMessage(m); err != nil {
			return nil, err
		}
	}
	return b.commit(ctx, msgs[end], nil)
}

// openBatch is an atomic batch that is not committed. The server keeps staged messages apart
// from the stream, and drops them 10 s after the last one.
type openBatch struct {
	sender *sender
	id     []string // one header value, shared by all messages
	staged int

	// The message being sent. It is reused: the client has written it when PublishMsg returns.
	out nats.Msg
	seq [1]string
}

// beginBatch begins a batch and a new round of the sender. The batch id is random, because a
// client that could guess it could add messages to the batch.
func (s *sender) beginBatch() *openBatch {
	s.startRound()
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	return &openBatch{sender: s, id: []string{hex.EncodeToString(raw[:])}, out: nats.Msg{Header: nats.Header{}}}
}

// nextMessage returns the next message to send. It is valid until the next call.
func (b *openBatch) nextMessage(m Msg) *nats.Msg {
	h := b.out.Header
	clear(h)
	maps.Copy(h, m.Header)
	b.seq[0] = strconv.Itoa(b.staged + 1)
	h[headerBatchID], h[headerBatchSeq] = b.id, b.seq[:]
	b.out = nats.Msg{Subject: m.Subject, Header: h, Data: m.Body}
	return &b.out
}

// stageMessage sends a message that is not the last one. After an error the batch must not be
// committed, and nothing of it will be stored.
func (b *openBatch) stageMessage(m Msg) error {
	out := b.nextMessage(m)
	if b.staged == 0 { // the server sends a refusal of the batch to this subject
		out.Reply = b.sender.replySubject(0)
	}
	b.staged++
	if err := sendError(b.sender.nc.PublishMsg(out)); err != nil {
		return fmt.Errorf("%w: batch abandoned: %v", ErrRefused, err) //nolint:errorlint // the cause is text: it must not count as another outcome
	}
	return nil
}

// commit sends the last message, with further headers, and waits for the acknowledgement of the
// whole batch.
func (b *openBatch) commit(ctx context.Context, m Msg, more nats.Header) ([]uint64, error) {
	if len(b.sender.down) > 0 { // staged messages may be lost; the commit has not been sent
		return nil, fmt.Errorf("%w: batch abandoned: the connection was lost (%v)", ErrRefused, <-b.sender.down)
	}
	out := b.nextMessage(m)
	out.Reply = b.sender.replySubject(b.staged)
	out.Header[headerBatchCommit] = []string{"1"}
	maps.Copy(out.Header, more)
	timer := time.NewTimer(b.sender.timeout)
	defer timer.Stop()
	if err := sendError(b.sender.nc.PublishMsg(out)); err != nil {
		return nil, err
	}
	return b.sender.batchAck(ctx, timer, b.id[0], b.staged+1)
}

func (s *sender) batchAck(ctx context.Context, timer *time.Timer, id string, n int) ([]uint64, error) {
	var refused error
	for {
		i, msg, err := s.nextReply(ctx, timer)
		if err != nil {
			return nil, err
		}
		if i == 0 && n > 1 {
			if len(msg.Data) > 0 || len(msg.Header) > 0 { // an empty reply says that the batch has begun
				if _, err := readAck(msg, s.stream); errors.Is(err, ErrRefused) {
					refused = err
				}
			}
			continue
		}
		if i != n-1 {
			continue
		}
		a, err := readAck(msg, s.stream)
		switch {
		case errors.Is(err, ErrRefused) && refused != nil:
			return nil, refused // the cause; the commit only says "incomplete"
		case err != nil:
			return nil, err
		case a.Batch != id || a.Count != uint64(n) || a.Seq < uint64(n):
			return nil, fmt.Errorf("%w: the acknowledgement of a batch of %d names batch %q, count %d, sequence %d",
				ErrAmbiguous, n, a.Batch, a.Count, a.Seq)
		}
		return endingAt(a.Seq, n), nil
	}
}

// endingAt returns n consecutive sequences that end at last.
func endingAt(last uint64, n int) []uint64 {
	seqs := make([]uint64, n)
	for k := range seqs {
		seqs[k] = last - uint64(n-1-k)
	}
	return seqs
}
