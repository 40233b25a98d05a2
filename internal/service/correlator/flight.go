package correlator

import (
	"context"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// Two writes can be on their way: one whose cursor was sent, and behind it one
// whose outputs are sent as they come. The server keeps those apart until their
// cursor comes, and looks at the fence only then; so what it costs to take them in
// is done while the write before is under way. Each write is one atomic batch all the
// same, and its cursor goes only when the one before has landed: there is never
// more than one that could move the fence.

// inFlightBatch is a write on its way. A goroutine encodes and sends; it shares nothing
// with the worker but the channels.
type inFlightBatch struct {
	parts  chan batchPart
	result chan writeResult // closed without one when the write was given up
	sent   int              // outputs that the goroutine was given
}

// batchPart is some of the outputs of a write, or the last of them and the cursor.
type batchPart struct {
	outgoing
	last bool
}

// startWrite begins a write.
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

// acknowledgement delivers how the write ended, or nothing if there is none.
func (f *inFlightBatch) acknowledgement() <-chan writeResult {
	if f == nil {
		return nil
	}
	return f.result
}

// stageOutputs sends what no write has sent yet, while another one is under way or this
// one has to wait. The goroutine gets more when it has taken what it got.
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

// commitStaged has what is staged stored, with everything that has come since.
func (w *worker) commitStaged(ctx context.Context) {
	f := w.staged
	if f == nil {
		f = w.startWrite(ctx)
	}
	b := w.nextOutgoing(f.sent)
	f.sent += len(b.outputs)
	f.parts <- batchPart{b, true} // there is room: stage leaves one place
	w.inFlight, w.staged = f, nil
}

// abandonStaged gives up what is staged. The server forgets it.
func (w *worker) abandonStaged() {
	if w.staged != nil {
		close(w.staged.parts)
		<-w.staged.result
		w.staged = nil
	}
}

// awaitWrites waits for the write that is under way, and gives up the next one.
func (w *worker) awaitWrites() {
	w.abandonStaged()
	if w.inFlight != nil {
		<-w.inFlight.result
		w.inFlight = nil
	}
}

// batchDraft is an atomic batch that is being written.
type batchDraft struct {
	w            *worker // its settings alone
	sent         *streams.FencedBatch
	msgs         []streams.Msg // all of them: they may have to be sent again
	size         int
	firstLeftOut *pendingOutput // the first output that did not fit
}

func (w *worker) newDraft() *batchDraft {
	return &batchDraft{w: w, sent: streams.NewFencedBatch(w.nc, w.flags.Stream, w.cursorSubject())}
}

func (w *worker) cursorSubject() string {
	return w.flags.Space().Control(w.flags.Stream, events.ControlCursor)
}

// addOutputs encodes outputs and sends them, as many as fit.
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
		_ = d.sent.Stage(d.msgs[from:]) // Commit says what was wrong
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
