package auditor

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// What waits while a batch is being stored is bounded: maxBatchBytes is the bodies
// of one batch, maxReadBytes those of what comes at a time, by which a batch may
// exceed the former. The server sends about as many ahead.
const (
	maxBatchBytes = 24 << 20
	maxReadBytes  = 8 << 20
)

// waiting are messages that were read and of which no records were made yet.
type waiting struct {
	msgs  []events.LogMessage
	bytes int // of their bodies
}

// gather takes what was read. An insert costs ClickHouse tens of milliseconds of
// processor time whatever its size, and the server hands over what it has in
// small portions at first: so while a batch is in flight, messages wait until
// they are a full batch or it has landed. What waits is in the log; a crash loses
// nothing.
func (a *auditor) gather(ctx context.Context, msgs []events.LogMessage) error {
	for len(msgs) > 0 {
		n := min(len(msgs), a.flags.Batch-len(a.waiting.msgs))
		a.waiting.add(msgs[:n])
		msgs = msgs[n:]
		full := len(a.waiting.msgs) == a.flags.Batch || a.waiting.bytes >= maxBatchBytes
		if !full && a.airborne() {
			continue
		}
		if err := a.audit(ctx, a.waiting.take()); err != nil {
			return err
		}
	}
	return nil
}

func (w *waiting) add(msgs []events.LogMessage) {
	for i := range msgs {
		w.bytes += len(msgs[i].Body)
	}
	if w.msgs == nil {
		w.msgs = msgs[:len(msgs):len(msgs)] // ours to keep, not to grow
		return
	}
	w.msgs = append(w.msgs, msgs...)
}

func (w *waiting) take() []events.LogMessage {
	msgs := w.msgs
	*w = waiting{}
	return msgs
}

// idle is called when everything in the log is audited, and every now and then
// while nothing comes: the last records get their checkpoint.
func (a *auditor) idle(ctx context.Context) error {
	if msgs := a.waiting.take(); len(msgs) > 0 {
		if err := a.audit(ctx, msgs); err != nil {
			return err
		}
	}
	if err := a.land(); err != nil {
		return err
	}
	if err := a.checkpoint(ctx, true); err != nil {
		return err
	}
	if a.ready {
		return a.pause(ctx)
	}
	a.ready = true
	return a.env.Ready()
}

// maxPace is how long a record waits at most for others to be stored with. An
// insert costs ClickHouse tens of milliseconds of processor time whatever its
// size, and a log that moves all the time would have one follow the other.
const maxPace = 200 * time.Millisecond

// pause lets the next batch gather, once this one is stored. It is counted from
// when that began, so a record that comes after a silence does not wait.
func (a *auditor) pause(ctx context.Context) error {
	wait := min(maxPace, a.flags.CheckpointEvery) - time.Since(a.launched)
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return nil
}
