package correlator

import (
	"context"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// Two writes can be open: one with a sent cursor, and the next one, with outputs that are
// sent as they come. The server keeps staged outputs apart until their cursor comes and checks
// the fence only then, so their transfer overlaps with the write before. Each write is still one
// atomic batch, and its cursor is sent only after the write before was stored: at any time at
// most one write can move the fence.

// openWrite is a write that has begun and has no result. A goroutine encodes and sends it; it shares
// only the channels with the worker.
type openWrite struct {
	parts  chan batchPart
	result chan writeResult // closed without a result if the write was abandoned
	sent   int              // outputs passed to the goroutine
}

// batchPart is a part of the outputs of a write; the last one has the cursor.
type batchPart struct {
	outgoing
	last bool
}

// writes are the open writes of a shard's outputs. The worker's goroutine owns them.
type writes struct {
	log        *shardLog
	committing *openWrite // the write with a sent cursor; nil without one
	staged     *openWrite // the next write, without a cursor yet; nil without one
}

// acknowledgement delivers the result of the write with a sent cursor.
func (s *writes) acknowledgement() <-chan writeResult { return s.committing.acknowledgement() }

// isCommitting reports whether a cursor was sent and has no known result.
func (s *writes) isCommitting() bool { return s.committing != nil }

// settle notes the result of the write with a sent cursor. A write that stored less than it was
// passed takes the next one with it, which starts where this one was to end.
func (s *writes) settle(res writeResult) {
	if w := s.committing; res.err != nil || w != nil && res.n < w.sent {
		s.abandonStaged()
	}
	s.committing = nil
}

// startWrite starts the goroutine of a write.
func (g *shardLog) startWrite(ctx context.Context) *openWrite {
	w := &openWrite{parts: make(chan batchPart, 2), result: make(chan writeResult, 1)}
	go func() {
		defer close(w.result)
		d := g.newDraft()
		defer d.sent.Close()
		for {
			select {
			case <-ctx.Done():
				w.result <- writeResult{err: ctx.Err()}
				return
			case p, more := <-w.parts:
				if !more {
					return
				}
				if d.addOutputs(p.outputs); p.last {
					w.result <- d.storeWithCursor(ctx, p.outgoing)
					return
				}
			}
		}
	}()
	return w
}

// acknowledgement delivers the result of the write; it is nil without a write.
func (w *openWrite) acknowledgement() <-chan writeResult {
	if w == nil {
		return nil
	}
	return w.result
}

// stage sends the pending outputs that no write has sent yet, while another write is committing or the
// next one has to wait. The goroutine gets more once it has taken the previous part.
func (s *writes) stage(ctx context.Context, pending []pendingOutput) {
	begins := 0
	if s.committing != nil {
		begins = s.committing.sent
	}
	n := min(len(pending)-begins, maxOutputs)
	if n <= 0 {
		return
	}
	if s.staged == nil {
		s.staged = s.log.startWrite(ctx)
	}
	if w := s.staged; n > w.sent && len(w.parts) == 0 {
		w.parts <- batchPart{outgoing: outgoing{outputs: slices.Clone(pending[begins+w.sent : begins+n])}}
		w.sent = n
	}
}

// commit stores what is staged, with all outputs since: next gives those, without the first sent
// ones.
func (s *writes) commit(ctx context.Context, next func(sent int) outgoing) {
	w := s.staged
	if w == nil {
		w = s.log.startWrite(ctx)
	}
	b := next(w.sent)
	w.sent += len(b.outputs)
	w.parts <- batchPart{b, true} // does not block: stage leaves one place free
	s.committing, s.staged = w, nil
}

// abandonStaged gives up the staged write. The server discards it.
func (s *writes) abandonStaged() {
	if s.staged != nil {
		close(s.staged.parts)
		<-s.staged.result
		s.staged = nil
	}
}

// await waits for the write with a sent cursor and abandons the next one.
func (s *writes) await() {
	s.abandonStaged()
	if s.committing != nil {
		<-s.committing.result
		s.committing = nil
	}
}

// batchDraft is an atomic batch being built.
type batchDraft struct {
	log          *shardLog
	sent         *streams.FencedBatch
	msgs         []streams.Msg // all of them, for a possible retry
	size         int
	firstLeftOut *pendingOutput // the first output that did not fit
}

func (g *shardLog) newDraft() *batchDraft {
	return &batchDraft{log: g, sent: streams.NewFencedBatch(g.nc, g.flags.Stream, g.cursorSubject())}
}

func (g *shardLog) cursorSubject() string {
	return g.flags.Space().Control(g.flags.Stream, events.ControlCursor)
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
		d.msgs = append(d.msgs, outputMessage(p.out, d.log.flags.Stream, p.at))
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
	res := writeResult{n: len(d.msgs), cursor: b.cursor}
	body, err := events.Encode(b.cursor)
	if err != nil {
		res.err = err
		return res
	}
	id := fmt.Sprintf("cursor-%d-%d", b.cursor.Consumed, b.cursor.Partial)
	last := controlMessage(d.log.cursorSubject(), events.ControlCursor, d.log.flags.Stream, id, body, b.at)
	last.Header[events.HeaderSettings] = []string{d.log.flags.settingsText()}
	batch := append(d.msgs, last)
	res.seq, res.err = d.log.storeBatch(ctx, d.sent, batch, body, b.fence)
	return res
}
