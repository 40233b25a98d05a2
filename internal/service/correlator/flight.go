package correlator

import (
	"context"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// Two writes can be under way: one whose cursor was sent, and the next one, whose outputs are
// sent as they come. The server keeps staged outputs apart until their cursor comes and checks
// the fence only then, so their transfer overlaps with the write before. Each write is still one
// atomic batch, and its cursor is sent only after the write before was stored: at any time at
// most one write can move the fence.

// inFlightBatch is a write under way. A goroutine encodes and sends it; it shares only the
// channels with the worker.
type inFlightBatch struct {
	parts  chan batchPart
	result chan writeResult // closed without a result if the write was abandoned
	sent   int              // outputs passed to the goroutine
}

// batchPart is a part of the outputs of a write; the last one has the cursor.
type batchPart struct {
	outgoing
	last bool
}

// startWrite starts the goroutine of a write.
func (w *worker) startWrite(ctx context.Context) *inFlightBatch {
	f := &inFlightBatch{parts: make(chan batchPart, 2), result: make(chan writeResult, 1)}
	go func() {
		defer close(f.result)
		d := w.newDraft()
		defer d.sent.Close()
		for {
			select {
			case <-ctx.Done():
				f.result <- writeResult{err: ctx.Err()}
				return
			case p, more := <-f.parts:
				if !more {
					return
				}
				if d.addOutputs(p.outputs); p.last {
					f.result <- d.storeWithCursor(ctx, p.outgoing)
					return
				}
			}
		}
	}()
	return f
}

// acknowledgement delivers the result of the write; it is nil without a write.
func (f *inFlightBatch) acknowledgement() <-chan writeResult {
	if f == nil {
		return nil
	}
	return f.result
}

// stageOutputs sends outputs that no write has sent yet, while another write is under way or the
// next one has to wait. The goroutine gets more once it has taken the previous part.
func (w *worker) stageOutputs(ctx context.Context) {
	begins := 0
	if w.inFlight != nil {
		begins = w.inFlight.sent
	}
	n := min(len(w.pending)-begins, maxOutputs)
	if n <= 0 {
		return
	}
	if w.staged == nil {
		w.staged = w.startWrite(ctx)
	}
	if s := w.staged; n > s.sent && len(s.parts) == 0 {
		s.parts <- batchPart{outgoing: outgoing{outputs: slices.Clone(w.pending[begins+s.sent : begins+n])}}
		s.sent = n
	}
}

// commitStaged stores what is staged, with all outputs since.
func (w *worker) commitStaged(ctx context.Context) {
	f := w.staged
	if f == nil {
		f = w.startWrite(ctx)
	}
	b := w.nextOutgoing(f.sent)
	f.sent += len(b.outputs)
	f.parts <- batchPart{b, true} // does not block: stageOutputs leaves one place free
	w.inFlight, w.staged = f, nil
}

// abandonStaged gives up the staged write. The server discards it.
func (w *worker) abandonStaged() {
	if w.staged != nil {
		close(w.staged.parts)
		<-w.staged.result
		w.staged = nil
	}
}

// awaitWrites waits for the write under way and abandons the next one.
func (w *worker) awaitWrites() {
	w.abandonStaged()
	if w.inFlight != nil {
		<-w.inFlight.result
		w.inFlight = nil
	}
}

// batchDraft is an atomic batch being built.
type batchDraft struct {
	w            *worker // only its settings are used
	sent         *streams.FencedBatch
	msgs         []streams.Msg // all of them, for a possible retry
	size         int
	firstLeftOut *pendingOutput // the first output that did not fit
}

func (w *worker) newDraft() *batchDraft {
	return &batchDraft{w: w, sent: streams.NewFencedBatch(w.nc, w.flags.Stream, w.cursorSubject())}
}

func (w *worker) cursorSubject() string {
	return w.flags.Space().Control(w.flags.Stream, events.ControlCursor)
}

// addOutputs encodes and sends outputs, as many as fit.
func (d *batchDraft) addOutputs(outputs []pendingOutput) {
	from := len(d.msgs)
	for i, p := range outputs {
		if d.firstLeftOut != nil {
			break
		}
		p.out.Encode()
		if len(d.msgs) > 0 && d.size+len(p.out.Body) > maxBytes {
			d.firstLeftOut = &outputs[i]
			break
		}
		d.size += len(p.out.Body)
		d.msgs = append(d.msgs, outputMessage(p.out, d.w.flags.Stream, p.at))
	}
	if len(d.msgs) > from {
		_ = d.sent.Stage(d.msgs[from:]) // Commit reports the error
	}
}

// storeWithCursor stores the batch with the cursor.
func (d *batchDraft) storeWithCursor(ctx context.Context, b outgoing) writeResult {
	if d.firstLeftOut != nil {
		b.limitTo(*d.firstLeftOut)
	}
	b.cursor.Outputs = len(d.msgs)
	l := writeResult{n: len(d.msgs), cursor: b.cursor}
	body, err := events.Encode(b.cursor)
	if err != nil {
		l.err = err
		return l
	}
	id := fmt.Sprintf("cursor-%d-%d", b.cursor.Consumed, b.cursor.Partial)
	last := controlMessage(d.w.cursorSubject(), events.ControlCursor, d.w.flags.Stream, id, body, b.at)
	last.Header[events.HeaderSettings] = []string{d.w.flags.settingsText()}
	batch := append(d.msgs, last)
	l.seq, l.err = d.w.storeBatch(ctx, d.sent, batch, body, b.fence)
	return l
}

// writeBatch stores outputs and the position in one atomic batch.
func (w *worker) writeBatch(ctx context.Context, b outgoing) writeResult {
	d := w.newDraft()
	defer d.sent.Close()
	d.addOutputs(b.outputs)
	return d.storeWithCursor(ctx, b)
}
