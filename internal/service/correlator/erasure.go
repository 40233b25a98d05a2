package correlator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/streams"
)

// errErased says that messages were erased which this worker's state may hold.
var errErased = errors.New("a session was erased; its calls are forgotten by reading the log again")

// erasureState is what a worker knows of erasures.
type erasureState struct {
	log     *erasures.Log
	subject string // of the log's erasure records
	// readFrom is the log's last sequence when this worker began to read: what was
	// erased before that it has never seen.
	readFrom uint64
	// owedSeq is the sequence of an erasure record that a cursor has to cover before
	// anything is erased, outputs or not: from then on what goes is behind the
	// fence, and nobody needs it to know what to put out.
	owedSeq uint64
}

// gapHandler is asked where the log has a gap.
func (w *worker) gapHandler(ctx context.Context) func(from, to uint64) error {
	return func(from, to uint64) error { return w.erasure.log.Explain(ctx, from, to) }
}

// noteErasure looks at an input that may be an erasure record. What is behind one that
// is done is gone from the log, and must be gone from here: the state knows
// arguments of calls, and so do its snapshots. The sessions' keys are gone, too.
func (w *worker) noteErasure(m events.LogMessage) error {
	if m.Subject != w.erasure.subject {
		return nil
	}
	e, err := events.DecodeRecord[events.Erasure](m.Body)
	switch {
	case err != nil:
		return nil
	case e.State == events.ErasureBegun:
		w.erasure.owedSeq = m.Seq
	case e.State == events.ErasureDone && m.Seq > w.erasure.readFrom:
		w.keys.forgetErased(e)
		return fmt.Errorf("%w (erasure %s, sequence %d)", errErased, e.ErasureID, m.Seq)
	}
	return nil
}

// owesCursor reports whether a cursor has to be written although there are no outputs.
func (w *worker) owesCursor() bool {
	return w.cursor.Consumed < w.erasure.owedSeq && w.head >= w.erasure.owedSeq
}

// checkNothingErased reports whether a snapshot that ends at a sequence knows nothing that was
// erased since.
func (w *worker) checkNothingErased(ctx context.Context, seq uint64) error {
	m, err := streams.NextBySubject(ctx, w.js, w.flags.Stream, w.erasure.subject, seq+1)
	if err != nil {
		return err
	}
	if m != nil {
		return fmt.Errorf("%w: something was erased behind sequence %d", errSnapshot, seq)
	}
	return nil
}

// dropSnapshot removes the snapshot from the disk.
func (w *worker) dropSnapshot() error {
	if w.snapshots.dir == "" {
		return nil
	}
	if err := os.Remove(w.snapshots.filePath(w.flags.Stream)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a snapshot that may hold what was erased: %w", err)
	}
	return nil
}

// newFromScratch is a worker that has read nothing yet, in the place of one that knows too
// much.
func (w *worker) newFromScratch() *worker {
	next := newWorkerWith(w.flags, w.env, w.nc, w.js, correlation.New(w.snapshots.options), w.metrics)
	next.ready = w.ready
	next.snapshots = snapshots{dir: w.snapshots.dir, every: uint64(w.flags.StateEvery), key: w.snapshots.key, options: w.snapshots.options, context: w.snapshots.context}
	next.keys, next.erasure.log = w.keys, w.erasure.log
	return next
}
