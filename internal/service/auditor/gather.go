package auditor

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/retry"
)

// Bounds of the messages that wait while a batch is being stored: maxBatchBytes for those of
// one batch, maxReadBytes for those of one read, by which a batch may exceed the former. The
// server sends about as many ahead.
const (
	maxBatchBytes = 24 << 20
	maxReadBytes  = 8 << 20
)

// pendingMessages are messages that were read and have no records yet.
type pendingMessages struct {
	msgs  []events.LogMessage
	bytes int // of all that they hold
}

// collectMessages adds messages that were read. They wait until they fill a batch, until the end
// of the log is reached (handleIdle), or until a batch is overdue because the end moves on. They
// are in the log; a crash loses nothing.
func (a *auditor) collectMessages(ctx context.Context, msgs []events.LogMessage) error {
	for len(msgs) > 0 {
		n := min(len(msgs), a.flags.Batch-len(a.pending.msgs))
		a.pending.add(msgs[:n])
		msgs = msgs[n:]
		full := len(a.pending.msgs) == a.flags.Batch || a.pending.bytes >= maxBatchBytes
		if !full && (a.store.isStoring() || time.Since(a.store.started) < a.store.overdueAfter()) {
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
		w.bytes += msgs[i].Size()
	}
	if w.msgs == nil {
		w.msgs = msgs[:len(msgs):len(msgs)] // kept, but not appended to
		return
	}
	w.msgs = append(w.msgs, msgs...)
}

func (w *pendingMessages) drain() []events.LogMessage {
	msgs := w.msgs
	*w = pendingMessages{}
	return msgs
}

// handleIdle is called when the whole log has been read, and then every IdleEvery: what is pending is
// stored and signed. Once ready, it holds the reader up for the rest of the interval, so that the
// next batch fills.
func (a *auditor) handleIdle(ctx context.Context) error {
	if msgs := a.pending.drain(); len(msgs) > 0 {
		if err := a.auditBatch(ctx, msgs); err != nil {
			return err
		}
	}
	if err := a.store.await(); err != nil {
		return err
	}
	if err := a.checkpoints.sign(ctx, true); err != nil {
		return err
	}
	if a.ready {
		return a.waitForBatch(ctx)
	}
	a.ready = true
	return a.env.Ready()
}

// waitForBatch lets the next batch fill after one is stored. The wait counts from the start of
// storing, so a record after a silence does not wait.
func (a *auditor) waitForBatch(ctx context.Context) error {
	wait := a.store.interval() - time.Since(a.store.started)
	if wait <= 0 {
		return nil
	}
	_ = retry.Sleep(ctx, wait)
	return nil
}
