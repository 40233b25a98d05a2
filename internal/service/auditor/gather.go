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

// pendingMessages are messages that were read and of which no records were made yet.
type pendingMessages struct {
	msgs  []events.LogMessage
	bytes int // of their bodies
}

// collectMessages takes what was read. An insert costs ClickHouse tens of milliseconds of
// processor time whatever its size, and the server hands over what it has in
// small portions at first: so while a batch is in flight, messages wait until
// they are a full batch or it has landed. What waits is in the log; a crash loses
// nothing.
func (a *auditor) collectMessages(ctx context.Context, msgs []events.LogMessage) error {
	for len(msgs) > 0 {
		n := min(len(msgs), a.flags.Batch-len(a.pending.msgs))
		a.pending.add(msgs[:n])
		msgs = msgs[n:]
		full := len(a.pending.msgs) == a.flags.Batch || a.pending.bytes >= maxBatchBytes
		if !full && a.isStoring() {
			continue
		}
		if err := a.auditBatch(ctx, a.pending.drain()); err != nil {
			return err
		}
	}
	return nil
}

func (w *pendingMessages) add(msgs []events.LogMessage) {
	for i := range msgs {
		w.bytes += len(msgs[i].Body)
	}
	if w.msgs == nil {
		w.msgs = msgs[:len(msgs):len(msgs)] // ours to keep, not to grow
		return
	}
	w.msgs = append(w.msgs, msgs...)
}

func (w *pendingMessages) drain() []events.LogMessage {
	msgs := w.msgs
	*w = pendingMessages{}
	return msgs
}

// handleIdle is called when everything in the log is audited, and every now and then
// while nothing comes: the last records get their checkpoint.
func (a *auditor) handleIdle(ctx context.Context) error {
	if msgs := a.pending.drain(); len(msgs) > 0 {
		if err := a.auditBatch(ctx, msgs); err != nil {
			return err
		}
	}
	if err := a.awaitStore(); err != nil {
		return err
	}
	if err := a.signCheckpoint(ctx, true); err != nil {
		return err
	}
	if a.ready {
		return a.waitForBatch(ctx)
	}
	a.ready = true
	return a.env.Ready()
}

// maxBatchWait is how long a record waits at most for others to be stored with. An
// insert costs ClickHouse tens of milliseconds of processor time whatever its
// size, and a log that moves all the time would have one follow the other.
const maxBatchWait = 200 * time.Millisecond

// waitForBatch lets the next batch gather, once this one is stored. It is counted from
// when that began, so a record that comes after a silence does not wait.
func (a *auditor) waitForBatch(ctx context.Context) error {
	wait := min(maxBatchWait, a.flags.CheckpointEvery) - time.Since(a.storeStarted)
	if wait <= 0 {
		return nil
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return nil
}
