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

// batch publishes one atomic batch and returns the sequences of its messages.
// Any error that is ErrRefused means that nothing of it is stored.
func (l *lane) batch(ctx context.Context, msgs []Msg, last nats.Header) ([]uint64, error) {
	b, end := l.open(), len(msgs)-1
	for _, m := range msgs[:end] {
		if err := b.stage(m); err != nil {
			return nil, err
		}
	}
	return b.commit(ctx, msgs[end], last)
}

// openBatch is an atomic batch that is not committed. The server keeps what was
// staged apart from the stream, and forgets it 10 s after the last message.
type openBatch struct {
	lane   *lane
	id     []string // one header value, shared by all messages
	staged int

	// The message that is being sent: the client has written it when it returns.
	out nats.Msg
	seq [1]string
}

// open begins a batch, and with it a round of the lane. The batch id is random:
// whoever could guess it could break into the batch.
func (l *lane) open() *openBatch {
	l.begin()
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	return &openBatch{lane: l, id: []string{hex.EncodeToString(raw[:])}, out: nats.Msg{Header: nats.Header{}}}
}

// message is the next one to be sent, good until the one after it.
func (b *openBatch) message(m Msg) *nats.Msg {
	h := b.out.Header
	clear(h)
	maps.Copy(h, m.Header)
	b.seq[0] = strconv.Itoa(b.staged + 1)
	h[headerBatchID], h[headerBatchSeq] = b.id, b.seq[:]
	b.out = nats.Msg{Subject: m.Subject, Header: h, Data: m.Body}
	return &b.out
}

// stage sends a message that is not the last one. After an error the batch must
// not be committed: nothing of it will be stored.
func (b *openBatch) stage(m Msg) error {
	out := b.message(m)
	if b.staged == 0 { // a refusal of the batch comes here
		out.Reply = b.lane.reply(0)
	}
	b.staged++
	if err := sendError(b.lane.nc.PublishMsg(out)); err != nil {
		return fmt.Errorf("%w: batch abandoned: %v", ErrRefused, err)
	}
	return nil
}

// commit sends the last message, with more headers, and waits for the
// acknowledgement of all.
func (b *openBatch) commit(ctx context.Context, m Msg, more nats.Header) ([]uint64, error) {
	if len(b.lane.down) > 0 { // what was staged may be lost; the commit has not been sent
		return nil, fmt.Errorf("%w: batch abandoned: the connection was lost (%v)", ErrRefused, <-b.lane.down)
	}
	out := b.message(m)
	out.Reply = b.lane.reply(b.staged)
	out.Header[headerBatchCommit] = []string{"1"}
	maps.Copy(out.Header, more)
	timer := time.NewTimer(b.lane.timeout)
	defer timer.Stop()
	if err := sendError(b.lane.nc.PublishMsg(out)); err != nil {
		return nil, err
	}
	return b.lane.batchAck(ctx, timer, b.id[0], b.staged+1)
}

func (l *lane) batchAck(ctx context.Context, timer *time.Timer, id string, n int) ([]uint64, error) {
	var refused error
	for {
		i, msg, err := l.next(ctx, timer)
		if err != nil {
			return nil, err
		}
		if i == 0 && n > 1 {
			if len(msg.Data) > 0 || len(msg.Header) > 0 { // an empty reply says: begun
				if _, err := readAck(msg, l.stream); errors.Is(err, ErrRefused) {
					refused = err
				}
			}
			continue
		}
		if i != n-1 {
			continue
		}
		a, err := readAck(msg, l.stream)
		switch {
		case errors.Is(err, ErrRefused) && refused != nil:
			return nil, refused // the cause; the commit only says "incomplete"
		case err != nil:
			return nil, err
		case a.Batch != id || a.Count != uint64(n) || a.Seq < uint64(n):
			return nil, fmt.Errorf("%w: the acknowledgement of a batch of %d names batch %q, count %d, sequence %d",
				ErrDoubt, n, a.Batch, a.Count, a.Seq)
		}
		return endingAt(a.Seq, n), nil
	}
}

// endingAt are n sequences in a row.
func endingAt(last uint64, n int) []uint64 {
	seqs := make([]uint64, n)
	for k := range seqs {
		seqs[k] = last - uint64(n-1-k)
	}
	return seqs
}
