package correlator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// How long to wait before the log is written to again.
const (
	retryMin    = 100 * time.Millisecond
	retryMax    = 2 * time.Second
	readTimeout = 5 * time.Second
)

// landing is how a write ended.
type landing struct {
	n      int // outputs it was about
	cursor events.Cursor
	seq    uint64 // of the cursor
	err    error
}

// launch begins to write what waits, if this instance is the active one and no
// write is under way or has to wait. The core goes on meanwhile, and what it puts
// out goes with the next write: it is sent at once, and stored when the fence is
// known. coming is how many batches of messages are there to be applied.
//
// Nothing is written when there is nothing new to say: the core being
// deterministic, a replay of messages without outputs costs time, not truth.
func (w *worker) launch(now time.Time, coming int) {
	if w.role != daemon.RoleActive {
		return
	}
	ctx := w.lease.Context()
	w.stage(ctx)
	if w.flight != nil || len(w.pending) == 0 && !w.owes() {
		return
	}
	if wait := w.pace.wait(now, len(w.pending), coming); wait > 0 {
		w.pace.delay(wait)
		return
	}
	w.pace.launch(now)
	w.commit(ctx)
}

// outgoing is what one write is about. It shares nothing with the worker.
type outgoing struct {
	outputs []pending     // those that were not sent before
	cursor  events.Cursor // that covers all of them, and those sent before
	fence   uint64
	at      time.Time
}

// next takes as many outputs as one batch can hold, without the first few, which
// were sent before. They stay pending until they have landed.
func (w *worker) next(sent int) outgoing {
	n := min(len(w.pending), maxOutputs)
	b := outgoing{outputs: slices.Clone(w.pending[sent:n]), fence: w.cursorSeq, at: w.last.Time}
	b.cursor = events.Cursor{Shard: w.flags.Stream, Consumed: w.head, Writer: w.writer}
	if n < len(w.pending) {
		b.upTo(w.pending[n])
	}
	return b
}

// upTo makes the cursor cover everything before an output.
func (b *outgoing) upTo(p pending) {
	b.cursor.Consumed, b.cursor.Partial, b.at = p.seq-1, p.n, p.at
}

// land takes the result of a write. Outputs that somebody else has written
// before are those that this instance would have: the predecessor of one that
// has just taken over may have been that fast. Otherwise another instance is
// active.
func (w *worker) land(ctx context.Context, l landing) error {
	if f := w.flight; l.err != nil || f != nil && l.n < f.sent {
		w.abandon() // it begins where this write was to end
	}
	w.flight = nil
	switch {
	case errors.Is(l.err, daemon.ErrFenced) && !w.landed:
		m, err := w.lastCursor(ctx)
		if err != nil || m == nil || m.Seq <= w.cursorSeq {
			return errors.Join(l.err, err)
		}
		w.env.Log.Info().Uint64("cursor", m.Seq).Msg("the predecessor has written more")
		return w.follow(*m)
	case l.err != nil:
		return fmt.Errorf("writing %d outputs: %w", l.n, l.err)
	}
	w.cursor, w.cursorSeq, w.landed = l.cursor, l.seq, true
	w.wrote(l.n)
	for i := range w.pending[:l.n] {
		w.core.Reuse(&w.pending[i].out)
	}
	w.drop(l.n)
	return nil
}

// store stores a batch that ends with a cursor exactly once and returns the
// cursor's sequence. It tries for as long as ctx lives: while the server is away
// or refuses (it is full, other clients hold all of its places for atomic
// batches), outputs wait. It ends with daemon.ErrFenced when another correlator
// has moved the fence.
//
// The first attempt is to commit what was sent before, if anything was; whatever
// has become of that, the next one sends all of it.
func (w *worker) store(ctx context.Context, sent *streams.FencedBatch, batch []streams.Msg, cursor []byte, last uint64) (uint64, error) {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		early := sent != nil
		seq, err := w.attempt(ctx, sent, batch, last)
		sent = nil
		switch {
		case err == nil:
			w.env.Health.Set("log", "")
			return seq, nil
		case errors.Is(err, streams.ErrFenced), errors.Is(err, streams.ErrDoubt):
			// The batch may have landed: of an attempt whose acknowledgement was lost
			// the next one only learns that the fence has moved.
			seq, landed, moved := w.arrived(ctx, cursor, last)
			switch {
			case landed:
				w.env.Health.Set("log", "")
				return seq, nil
			case moved:
				return 0, fmt.Errorf("%w: %w", daemon.ErrFenced, err)
			}
		case permanent(err):
			return 0, err
		case early: // what was sent before has gone, with its connection or its time
			continue
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

// attempt stores a batch once: the rest of what was sent before, or all of it.
func (w *worker) attempt(ctx context.Context, sent *streams.FencedBatch, batch []streams.Msg, last uint64) (uint64, error) {
	end := len(batch) - 1
	if sent != nil {
		return sent.Commit(ctx, batch[end], last)
	}
	seqs, err := streams.AppendFenced(ctx, w.nc, w.flags.Stream, batch, streams.Fence{Subject: batch[end].Subject, ExpectedLastSeq: last})
	if err != nil {
		return 0, err
	}
	return seqs[end], nil
}

// permanent reports whether an error is about the batch, not about the server.
func permanent(err error) bool {
	return errors.Is(err, streams.ErrTooLarge) || errors.Is(err, streams.ErrReservedHeader)
}

// arrived looks where the fence is: at this very cursor, or moved by another
// writer, or, neither being so, where it was or out of sight.
func (w *worker) arrived(ctx context.Context, cursor []byte, last uint64) (seq uint64, landed, moved bool) {
	m, err := w.lastCursor(ctx)
	switch {
	case err != nil:
		return 0, false, false
	case m == nil:
		return 0, false, last != 0
	}
	return m.Seq, bytes.Equal(m.Body, cursor), m.Seq != last
}

// lastCursor is the newest cursor in the log, nil if there is none.
func (w *worker) lastCursor(ctx context.Context) (*events.LogMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, w.js, w.flags.Stream, w.cursorSubject())
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
