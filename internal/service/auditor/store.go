package auditor

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
)

// batchStore stores batches, one at a time.
type batchStore struct {
	shardAccess
	intents         *intents
	checkpoints     *checkpointer
	metrics         *metrics.Auditor
	checkpointEvery time.Duration

	stored   *tree.Tree     // with all records before the batch in flight, or before the last one
	inFlight *inFlightBatch // nil without one
	started  time.Time      // start of the last store
	took     time.Duration  // how long the last batch took to store
}

// inFlightBatch is a batch that is being stored.
type inFlightBatch struct {
	done chan struct{}
	err  error         // set before done is closed
	took time.Duration // to store it; set before done is closed, too
}

// start starts storing a batch, and signs a checkpoint if one is due. No other batch may be
// in flight: of two inserts the second could succeed and the first fail.
func (s *batchStore) start(ctx context.Context, b *batch) {
	s.started = time.Now()
	f := &inFlightBatch{done: make(chan struct{})}
	s.inFlight, s.stored = f, b.behind
	go func() {
		defer close(f.done)
		begun := time.Now()
		if f.err = s.write(ctx, b); f.err != nil {
			return
		}
		f.took = time.Since(begun)
		s.metrics.Stored(b.before, b.built, begun)
		s.checkpoints.noteStored(b.tree)
		f.err = s.checkpoints.sign(ctx, false)
	}()
}

// isStoring reports whether a batch is still being stored.
func (s *batchStore) isStoring() bool {
	if s.inFlight == nil {
		return false
	}
	select {
	case <-s.inFlight.done:
		return false
	default:
		return true
	}
}

// await waits until no batch is in flight and returns the result. After an error it is
// unknown what is stored: this auditor must not continue.
func (s *batchStore) await() error {
	f := s.inFlight
	if f == nil {
		return nil
	}
	<-f.done
	if f.err == nil {
		s.inFlight, s.took = nil, f.took
	}
	return f.err
}

// write writes one batch and returns once it is durable. It retries until ctx ends.
//
// Of two auditors only one succeeds, and no row is stored twice: an auditor inserts only after it
// has read the position right before its batch. If another auditor inserts in between, its batch
// begins at the same sequence and so has the same token, and ClickHouse drops the later one.
func (s *batchStore) write(ctx context.Context, b *batch) error {
	if err := s.retry(ctx, "position", func() error { return s.checkFence(ctx, b.before) }); err != nil {
		return err
	}
	if err := s.intents.store(ctx, b.tree); err != nil {
		return err
	}
	if err := s.retry(ctx, "tree", func() error { return s.writer.InsertTreeNodes(ctx, s.shard, b.nodes) }); err != nil {
		return err
	}
	return s.retry(ctx, "evidence", func() error { return s.writer.CommitEvidence(ctx, b.rows) })
}

// checkFence checks that the evidence ends where this auditor left it.
func (s *batchStore) checkFence(ctx context.Context, left uint64) error {
	position, _, err := s.db.Position(ctx, s.shard)
	if err == nil && position != left {
		err = fmt.Errorf("%w: the evidence of shard %s ends at sequence %d, and not at %d where this auditor left it",
			daemon.ErrFenced, s.shard, position, left)
	}
	return err
}

// While the end of the log moves, batches begin at intervals of batchIntervalFactor times what the
// last one took to store, within bounds. Storing costs ClickHouse some 30 to 100 ms of processor
// time whatever the size of a batch, because each insert analyses the query of the derived table,
// and every part that it writes is merged later. So the interval grows with the cost: on a slow or
// busy machine fewer and larger batches are stored. The lower bound is for machines that store
// quickly. The upper bound is for high rates, at which the rows cost more than the insert does:
// larger batches save nothing then, and the evidence is later.
const (
	minBatchInterval    = 500 * time.Millisecond
	maxBatchInterval    = time.Second
	batchIntervalFactor = 2
)

// interval is the time between the starts of two batches.
func (s *batchStore) interval() time.Duration {
	interval := min(max(batchIntervalFactor*s.took, minBatchInterval), maxBatchInterval)
	return min(interval, s.checkpointEvery)
}

// overdueAfter is how long after the start of the last batch the next one begins although the end
// of the log is not reached. The reader needs the half interval to read what has gathered: a batch
// that began earlier would leave the rest of it to another insert.
func (s *batchStore) overdueAfter() time.Duration { return s.interval() * 3 / 2 }
