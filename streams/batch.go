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

// publishBatch publishes one atomic batch and returns the sequences of its messages. The last one gets the headers in
// last. ErrRefused means that nothing of the batch is stored: the server keeps its messages apart from the stream, and
// drops them 10 s after the last one that came.
func (s *sender) publishBatch(ctx context.Context, msgs []Msg, last nats.Header) ([]uint64, error) {
	s.startRound()
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails; a client that could guess the id could add messages to the batch
	id, end, header := []string{hex.EncodeToString(raw[:])}, len(msgs)-1, nats.Header{}
	message := func(i int) *nats.Msg { // valid until the next call: the client has written it when PublishMsg returns
		clear(header)
		maps.Copy(header, msgs[i].Header)
		header[headerBatchID], header[headerBatchSeq] = id, []string{strconv.Itoa(i + 1)}
		return &nats.Msg{Subject: msgs[i].Subject, Header: header, Data: msgs[i].Body}
	}
	for i := range end {
		out := message(i)
		if i == 0 { // the server sends a refusal of the batch to this subject
			out.Reply = s.replySubject(0)
		}
		if err := sendError(s.nc.PublishMsg(out)); err != nil {
			return nil, fmt.Errorf("%w: batch abandoned: %v", ErrRefused, err) //nolint:errorlint // the cause is text: it must not count as another outcome
		}
	}
	if len(s.down) > 0 { // messages may be lost; the commit has not been sent
		return nil, fmt.Errorf("%w: batch abandoned: the connection was lost (%v)", ErrRefused, <-s.down)
	}
	out := message(end)
	out.Reply = s.replySubject(end)
	header[headerBatchCommit] = []string{"1"}
	maps.Copy(header, last)
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	if err := sendError(s.nc.PublishMsg(out)); err != nil {
		return nil, err
	}
	return s.batchAck(ctx, timer, id[0], len(msgs))
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
