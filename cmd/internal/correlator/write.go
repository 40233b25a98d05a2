package correlator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/streams"
)

// How long to wait before the log is written to again.
const (
	retryMin    = 100 * time.Millisecond
	retryMax    = 2 * time.Second
	readTimeout = 5 * time.Second
)

// flush writes the queued outputs and the position in one atomic batch. It
// writes nothing when there is nothing new to say: the core being
// deterministic, a replay of messages without outputs costs time, not truth.
func (w *worker) flush(ctx context.Context, consumed uint64, partial int) error {
	if len(w.pending) == 0 {
		return nil
	}
	next := events.Cursor{Shard: w.flags.Stream, Consumed: consumed, Partial: partial, Outputs: len(w.pending), Writer: w.writer}
	body, err := events.Encode(next)
	if err != nil {
		return err
	}
	subj := w.flags.Space().Control(w.flags.Stream, events.ControlCursor)
	batch := append(w.pending, control(subj, events.ControlCursor, w.flags.Stream, fmt.Sprintf("cursor-%d-%d", consumed, partial), body, w.lastTime))
	seq, err := w.write(ctx, batch, body)
	if err != nil {
		return fmt.Errorf("writing %d outputs: %w", len(w.pending), err)
	}
	w.cursor, w.cursorSeq = next, seq
	clear(w.pending)
	w.pending, w.bytes = w.pending[:0], 0
	return nil
}

// write stores a batch that ends with a cursor exactly once and returns the
// cursor's sequence. It tries for as long as ctx lives: while the server is away
// or refuses (it is full, other clients hold all of its places for atomic
// batches), outputs wait. It ends with daemon.ErrFenced when another correlator
// has moved the fence.
func (w *worker) write(ctx context.Context, batch []streams.Msg, cursor []byte) (uint64, error) {
	fence := streams.Fence{Subject: batch[len(batch)-1].Subject, ExpectedLastSeq: w.cursorSeq}
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		seqs, err := streams.AppendFenced(ctx, w.nc, w.flags.Stream, batch, fence)
		switch {
		case err == nil:
			w.env.Health.Set("log", "")
			return seqs[len(seqs)-1], nil
		case errors.Is(err, streams.ErrFenced), errors.Is(err, streams.ErrDoubt):
			// The batch may have landed: of an attempt whose acknowledgement was lost
			// the next one only learns that the fence has moved.
			seq, landed, moved := w.landed(ctx, cursor)
			switch {
			case landed:
				w.env.Health.Set("log", "")
				return seq, nil
			case moved:
				return 0, fmt.Errorf("%w: %w", daemon.ErrFenced, err)
			}
		case permanent(err):
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		w.env.Log.Warn().Err(err).Dur("retry_in", wait).Msg("outputs could not be written")
		w.env.Health.Set("log", "outputs cannot be written: "+err.Error())
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// permanent reports whether an error is about the batch, not about the server.
func permanent(err error) bool {
	return errors.Is(err, streams.ErrTooLarge) || errors.Is(err, streams.ErrReservedHeader)
}

// landed looks where the fence is: at this very cursor, or moved by another
// writer, or, neither being so, where it was or out of sight.
func (w *worker) landed(ctx context.Context, cursor []byte) (seq uint64, landed, moved bool) {
	m, err := w.lastCursor(ctx)
	switch {
	case err != nil:
		return 0, false, false
	case m == nil:
		return 0, false, w.cursorSeq != 0
	}
	return m.Seq, bytes.Equal(m.Body, cursor), m.Seq != w.cursorSeq
}

// lastCursor is the newest cursor in the log, nil if there is none.
func (w *worker) lastCursor(ctx context.Context) (*events.LogMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, w.js, w.flags.Stream, w.flags.Space().Control(w.flags.Stream, events.ControlCursor))
	if err != nil {
		return nil, fmt.Errorf("reading the cursor: %w", err)
	}
	return m, nil
}

func message(o correlation.Output, shard string, at time.Time) streams.Msg {
	return streams.Msg{Subject: o.Subject, Body: o.Body, Header: cloudevents.Binary(cloudevents.Attributes{
		ID: o.ID, Source: source(shard), Type: o.Type, Time: at,
	})}
}

func control(subj, kind, shard, id string, body []byte, at time.Time) streams.Msg {
	return streams.Msg{Subject: subj, Body: body, Header: cloudevents.Binary(cloudevents.Attributes{
		ID: id, Source: source(shard), Type: events.TypeControl, Subject: kind, Time: at,
	})}
}

func source(shard string) string { return "/countersign/" + shard + "/correlator" }
