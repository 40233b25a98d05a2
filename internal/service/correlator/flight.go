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

// flight is a write on its way. A goroutine encodes and sends; it shares nothing
// with the worker but the channels.
type flight struct {
	parts  chan part
	landed chan landing // closed without one when the write was given up
	sent   int          // outputs that the goroutine was given
}

// part is some of the outputs of a write, or the last of them and the cursor.
type part struct {
	outgoing
	last bool
}

// depart begins a write.
func (w *worker) depart(ctx context.Context) *flight {
	f := &flight{parts: make(chan part, 2), landed: make(chan landing, 1)}
	go func() {
		defer close(f.landed)
		d := w.draft()
		defer d.sent.Close()
		for {
			select {
			case <-ctx.Done():
				f.landed <- landing{err: ctx.Err()}
				return
			case p, more := <-f.parts:
				if !more {
					return
				}
				if d.add(p.outputs); p.last {
					f.landed <- d.finish(ctx, p.outgoing)
					return
				}
			}
		}
	}()
	return f
}

// landing delivers how the write ended, or nothing if there is none.
func (f *flight) landing() <-chan landing {
	if f == nil {
		return nil
	}
	return f.landed
}

// stage sends what no write has sent yet, while another one is under way or this
// one has to wait. The goroutine gets more when it has taken what it got.
func (w *worker) stage(ctx context.Context) {
	begins := 0
	if w.flight != nil {
		begins = w.flight.sent
	}
	n := min(len(w.pending)-begins, maxOutputs)
	if n <= 0 {
		return
	}
	if w.staged == nil {
		w.staged = w.depart(ctx)
	}
	if s := w.staged; n > s.sent && len(s.parts) == 0 {
		s.parts <- part{outgoing: outgoing{outputs: slices.Clone(w.pending[begins+s.sent : begins+n])}}
		s.sent = n
	}
}

// commit has what is staged stored, with everything that has come since.
func (w *worker) commit(ctx context.Context) {
	f := w.staged
	if f == nil {
		f = w.depart(ctx)
	}
	b := w.next(f.sent)
	f.sent += len(b.outputs)
	f.parts <- part{b, true} // there is room: stage leaves one place
	w.flight, w.staged = f, nil
}

// abandon gives up what is staged. The server forgets it.
func (w *worker) abandon() {
	if w.staged != nil {
		close(w.staged.parts)
		<-w.staged.landed
		w.staged = nil
	}
}

// settle waits for the write that is under way, and gives up the next one.
func (w *worker) settle() {
	w.abandon()
	if w.flight != nil {
		<-w.flight.landed
		w.flight = nil
	}
}

// draft is an atomic batch that is being written.
type draft struct {
	w    *worker // its settings alone
	sent *streams.FencedBatch
	msgs []streams.Msg // all of them: they may have to be sent again
	size int
	cut  *pending // the first output that did not fit
}

func (w *worker) draft() *draft {
	return &draft{w: w, sent: streams.NewFencedBatch(w.nc, w.flags.Stream, w.cursorSubject())}
}

func (w *worker) cursorSubject() string {
	return w.flags.Space().Control(w.flags.Stream, events.ControlCursor)
}

// add encodes outputs and sends them, as many as fit.
func (d *draft) add(outputs []pending) {
	from := len(d.msgs)
	for i, p := range outputs {
		if d.cut != nil {
			break
		}
		p.out.Encode()
		if len(d.msgs) > 0 && d.size+len(p.out.Body) > maxBytes {
			d.cut = &outputs[i]
			break
		}
		d.size += len(p.out.Body)
		d.msgs = append(d.msgs, message(p.out, d.w.flags.Stream, p.at))
	}
	if len(d.msgs) > from {
		_ = d.sent.Stage(d.msgs[from:]) // Commit says what was wrong
	}
}

// finish stores the batch with the cursor.
func (d *draft) finish(ctx context.Context, b outgoing) landing {
	if d.cut != nil {
		b.upTo(*d.cut)
	}
	b.cursor.Outputs = len(d.msgs)
	l := landing{n: len(d.msgs), cursor: b.cursor}
	body, err := events.Encode(b.cursor)
	if err != nil {
		l.err = err
		return l
	}
	id := fmt.Sprintf("cursor-%d-%d", b.cursor.Consumed, b.cursor.Partial)
	last := control(d.w.cursorSubject(), events.ControlCursor, d.w.flags.Stream, id, body, b.at)
	last.Header[events.HeaderSettings] = []string{d.w.flags.settings()}
	batch := append(d.msgs, last)
	l.seq, l.err = d.w.store(ctx, d.sent, batch, body, b.fence)
	return l
}

// write stores outputs and the position in one atomic batch.
func (w *worker) write(ctx context.Context, b outgoing) landing {
	d := w.draft()
	defer d.sent.Close()
	d.add(b.outputs)
	return d.finish(ctx, b)
}
