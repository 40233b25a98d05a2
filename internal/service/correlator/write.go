package correlator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// Timeouts of writes and reads of the log.
const (
	retryMin    = 100 * time.Millisecond
	retryMax    = 2 * time.Second
	readTimeout = 5 * time.Second
)

// writeResult is the result of a write.
type writeResult struct {
	n      int // number of outputs
	cursor events.Cursor
	seq    uint64 // of the cursor
	err    error
}

// writeIfDue starts a write of the pending outputs, if this instance is active and no write is
// under way or has to wait. The core continues meanwhile; its outputs go with the next write.
// waiting is how many batches wait to be applied.
//
// Nothing is written without new outputs: the core is deterministic, so a replay of messages
// without outputs costs only time.
func (w *worker) writeIfDue(now time.Time, waiting int) {
	if w.role != daemon.RoleActive {
		return
	}
	if w.writing != nil || len(w.pending) == 0 && !w.erasure.owesCursor(w.cursor.Consumed, w.head) {
		return
	}
	if wait := w.pacer.delayFor(now, len(w.pending), waiting); wait > 0 {
		w.pacer.wakeAfter(wait)
		return
	}
	w.pacer.noteWrite(now)
	w.startWrite(w.lease.Context(), w.nextOutgoing())
}

// startWrite stores outputs and their cursor in a goroutine of its own, which shares only the channel of the result.
func (w *worker) startWrite(ctx context.Context, b outgoing) {
	log, result := w.shardLog, make(chan writeResult, 1)
	w.writing = result
	go func() { result <- log.writeBatch(ctx, b) }()
}

// outgoing is the content of one write. It shares nothing with the worker.
type outgoing struct {
	outputs []pendingOutput
	cursor  events.Cursor // covers them
	fence   uint64
	at      time.Time
}

// nextOutgoing returns as many outputs as one batch can hold. They stay pending until they are
// stored.
func (w *worker) nextOutgoing() outgoing {
	n := min(len(w.pending), maxOutputs)
	b := outgoing{outputs: slices.Clone(w.pending[:n]), fence: w.cursorSeq, at: w.last.Time}
	b.cursor = events.Cursor{Shard: w.flags.Stream, Consumed: w.head, Writer: w.writer}
	if n < len(w.pending) {
		b.limitTo(w.pending[n])
	}
	return b
}

// limitTo makes the cursor cover everything before output p.
func (b *outgoing) limitTo(p pendingOutput) {
	b.cursor.Consumed, b.cursor.Partial, b.at = p.seq-1, p.n, p.at
}

// handleResult handles the result of a write. Outputs that another instance has written are the
// ones that this instance would have written: just after a takeover they may be a last write of
// the predecessor. Otherwise another instance is active.
func (w *worker) handleResult(ctx context.Context, l writeResult) error {
	w.writing = nil
	switch {
	case errors.Is(l.err, daemon.ErrFenced) && !w.hasWritten:
		m, err := w.lastCursor(ctx)
		if err != nil || m == nil || m.Seq <= w.cursorSeq {
			return errors.Join(l.err, err)
		}
		w.env.Log.Info().Uint64("cursor", m.Seq).Msg("the predecessor has written more")
		return w.applyCursor(*m)
	case l.err != nil:
		return fmt.Errorf("writing %d outputs: %w", l.n, l.err)
	}
	w.cursor, w.cursorSeq, w.hasWritten = l.cursor, l.seq, true
	w.metrics.countWritten(w.pending[:l.n])
	w.dropOutputs(l.n)
	return nil
}

// shardLog is the log of a shard, as this instance reads and writes it. It does not change while
// the worker runs.
type shardLog struct {
	flags  Flags
	env    daemon.Env
	nc     *nats.Conn
	js     jetstream.JetStream
	writer string // name of this instance
}

func (g *shardLog) cursorSubject() string {
	return g.flags.Space().Control(g.flags.Stream, events.ControlCursor)
}

// writeBatch stores outputs, as many as fit, and the cursor that covers them.
func (g *shardLog) writeBatch(ctx context.Context, b outgoing) writeResult {
	var batch []streams.Msg
	size := 0
	for _, p := range b.outputs {
		p.out.Encode()
		if size += len(p.out.Body); size > maxBytes && len(batch) > 0 {
			b.limitTo(p)
			break
		}
		batch = append(batch, outputMessage(p.out, g.flags.Stream, p.at))
	}
	b.cursor.Outputs = len(batch)
	res := writeResult{n: len(batch), cursor: b.cursor}
	body, err := events.Encode(b.cursor)
	if err != nil {
		res.err = err
		return res
	}
	id := fmt.Sprintf("cursor-%d-%d", b.cursor.Consumed, b.cursor.Partial)
	cursor := controlMessage(g.cursorSubject(), events.ControlCursor, g.flags.Stream, id, body, b.at)
	cursor.Header[events.HeaderSettings] = []string{g.flags.settingsText()}
	res.seq, res.err = g.storeBatch(ctx, append(batch, cursor), body, b.fence)
	return res
}

// storeBatch stores a batch that ends with a cursor exactly once and returns the cursor's
// sequence. It retries until ctx ends: while the server is away or refuses (it is full, other
// clients hold all of its places for atomic batches), outputs wait. It returns daemon.ErrFenced
// when another correlator has moved the fence.
func (g *shardLog) storeBatch(ctx context.Context, batch []streams.Msg, cursor []byte, last uint64) (uint64, error) {
	fence := streams.Fence{Subject: g.cursorSubject(), ExpectedLastSeq: last}
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		seqs, err := streams.AppendFenced(ctx, g.nc, g.flags.Stream, batch, fence)
		switch {
		case err == nil:
			g.env.Health.Set("log", "")
			return seqs[len(seqs)-1], nil
		case errors.Is(err, streams.ErrFenced), errors.Is(err, streams.ErrAmbiguous):
			// The batch may have been stored: after a lost acknowledgement the next attempt only
			// learns that the fence has moved.
			seq, landed, moved := g.findCursor(ctx, cursor, last)
			switch {
			case landed:
				g.env.Health.Set("log", "")
				return seq, nil
			case moved:
				return 0, fmt.Errorf("%w: %w", daemon.ErrFenced, err)
			}
		case isPermanent(err):
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		g.env.Log.Warn().Err(err).Dur("retry_in", wait).Msg("outputs could not be written")
		g.env.Health.Set("log", "outputs cannot be written: "+err.Error())
		if err := retry.Sleep(ctx, wait); err != nil {
			return 0, err
		}
	}
}

// isPermanent reports whether an error is about the batch, not about the server.
func isPermanent(err error) bool {
	return errors.Is(err, streams.ErrTooLarge) || errors.Is(err, streams.ErrReservedHeader) || errors.Is(err, streams.ErrHeaderName)
}

// findCursor reports whether the newest cursor is this one (landed), or another writer's (moved).
// Neither means that the fence has not moved or could not be read.
func (g *shardLog) findCursor(ctx context.Context, cursor []byte, last uint64) (seq uint64, landed, moved bool) {
	m, err := g.lastCursor(ctx)
	switch {
	case err != nil:
		return 0, false, false
	case m == nil:
		return 0, false, last != 0
	}
	return m.Seq, bytes.Equal(m.Body, cursor), m.Seq != last
}

// lastCursor reads the newest cursor of the log, nil if there is none.
func (g *shardLog) lastCursor(ctx context.Context) (*events.LogMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, g.js, g.flags.Stream, g.cursorSubject())
	if err != nil {
		return nil, fmt.Errorf("reading the cursor: %w", err)
	}
	return m, nil
}

func outputMessage(o correlation.Output, shard string, at time.Time) streams.Msg {
	return streams.Msg{Subject: o.Subject, Body: o.Body, Header: cloudevents.Binary(cloudevents.Attributes{
		ID: o.ID, Source: sourceName(shard), Type: o.Type, Time: at,
	})}
}

func controlMessage(subj, kind, shard, id string, body []byte, at time.Time) streams.Msg {
	return streams.Msg{Subject: subj, Body: body, Header: cloudevents.Binary(cloudevents.Attributes{
		ID: id, Source: sourceName(shard), Type: events.TypeControl, Subject: kind, Time: at,
	})}
}

func sourceName(shard string) string { return "/countersign/" + shard + "/correlator" }
