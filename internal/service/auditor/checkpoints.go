package auditor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// restoreWindow is how many published checkpoints are compared with the stored ones at a time.
const restoreWindow = 4096

// checkpointer signs the stored tree and publishes its checkpoints. Its state belongs to the batch in
// flight until that is stored.
type checkpointer struct {
	shardAccess
	metrics *metrics.Auditor
	every   time.Duration // while records come in

	begun    int64      // size of the tree at the start
	ahead    int64      // size of the newest published checkpoint, until the stored tree has reached it; then 0
	stored   *tree.Tree // with the stored records only
	signed   int64      // tree size of the newest checkpoint
	signedAt time.Time

	restores atomic.Int32 // that are still to end: until then the database may lack published checkpoints
}

// noteStored notes the tree with the records that are stored now.
func (c *checkpointer) noteStored(merkle *tree.Tree) { c.stored = merkle }

// readSigned reads the size that is signed. A checkpoint counts as signed only once it is published,
// too.
func (c *checkpointer) readSigned(ctx context.Context) error {
	last, err := c.db.LatestCheckpoint(ctx, c.shard)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("reading the last checkpoint: %w", err)
	}
	published, _, err := c.lastPublished(ctx)
	if err != nil {
		return err
	}
	c.signed = min(int64(last.Size), published)
	return nil
}

// restore stores again the published checkpoints of this shard, above one size and up to another, that
// the database lacks. A checkpoint is stored before it is published, so a missing one was deleted, or
// an older database was restored. It is tried again until all are stored or ctx ends: until then what
// a witness signed may be of a checkpoint that the database lacks.
func (c *checkpointer) restore(ctx context.Context, above, upTo uint64) error {
	restored := 0
	err := c.retry(ctx, fmt.Sprintf("published checkpoints above size %d, up to %d", above, upTo), func() error { // two may run at a time
		n, err := c.storeMissing(ctx, above, upTo)
		restored += n
		return err
	})
	if restored > 0 {
		c.env.Log.Error().Int("checkpoints", restored).Uint64("above_size", above).Uint64("up_to_size", upTo).Str("shard", c.shard).
			Msg("published checkpoints were missing from the database and were stored again; unless a backup was restored, find out which user deleted them")
	}
	if err == nil {
		c.restores.Add(-1)
	}
	return err
}

// storeMissing does the work of restore once, and returns how many checkpoints it has stored.
func (c *checkpointer) storeMissing(ctx context.Context, above, upTo uint64) (restored int, err error) {
	var window []storage.Checkpoint
	storeWindow := func() error {
		missing, err := c.db.MissingCheckpoints(ctx, c.shard, window)
		window = window[:0]
		for _, cp := range missing {
			if err := c.writer.InsertCheckpoint(ctx, cp); err != nil {
				return err
			}
			restored++
		}
		return err
	}
	err = c.eachPublished(ctx, above+1, func(cp storage.Checkpoint) error {
		if cp.Size > upTo {
			return nil
		}
		if window = append(window, cp); len(window) < restoreWindow {
			return nil
		}
		return storeWindow()
	})
	if err == nil {
		err = storeWindow()
	}
	return restored, err
}

// sign signs the stored tree, then stores and publishes the note, unless its size is signed. While
// records come in it does so every CheckpointEvery; with atOnce, whenever it is called. It signs nothing
// below the size of the newest published checkpoint: only then are all signed roots compared (signedRoots).
// Then it first restores those checkpoints, however long that takes: auditing waits.
func (c *checkpointer) sign(ctx context.Context, atOnce bool) error {
	size := c.stored.Size()
	if size < c.ahead {
		return nil
	}
	if c.ahead > c.begun {
		if err := c.restore(ctx, uint64(c.begun), uint64(c.ahead)); err != nil {
			return err
		}
	}
	c.ahead = 0
	if size == c.signed || (!atOnce && time.Since(c.signedAt) < c.every) {
		return nil
	}
	text, err := tree.SignCheckpoint(c.signer, tree.Checkpoint{Shard: c.shard, Size: size, Root: c.stored.Root()})
	if err != nil {
		return fmt.Errorf("signing the checkpoint of size %d: %w", size, err)
	}
	at := time.Now()
	cp := storage.Checkpoint{Shard: c.shard, Size: uint64(size), Root: c.stored.Root(), Note: text, Created: at}
	if err := c.retry(ctx, "checkpoint", func() error { return c.writer.InsertCheckpoint(ctx, cp) }); err != nil {
		return err
	}
	msg := streams.Msg{
		Subject: c.space.Checkpoints(c.stream), Body: []byte(text),
		Header: cloudevents.Binary(cloudevents.Attributes{
			ID: fmt.Sprintf("%s/%d", c.shard, size), Source: c.source(), Type: events.TypeCheckpoint, Time: at,
			DataContentType: "text/plain; charset=utf-8",
		}),
	}
	if err := c.retry(ctx, "published checkpoint", func() error { return c.publish(ctx, msg, size) }); err != nil {
		return err
	}
	c.signed, c.signedAt = size, at
	c.metrics.Checkpoint(size)
	return nil
}

// publish publishes a checkpoint behind those that are not larger. daemon.ErrFenced means that another auditor has
// published a larger one: this one stood still and has lost its lease.
func (c *checkpointer) publish(ctx context.Context, msg streams.Msg, size int64) error {
	newest, seq, err := c.lastPublished(ctx)
	if err != nil {
		return err
	}
	if newest > size {
		return fmt.Errorf("%w: a checkpoint of size %d is published, this one is of size %d", daemon.ErrFenced, newest, size)
	}
	_, err = streams.AppendFenced(ctx, c.nc, streams.StreamCheckpoints, []streams.Msg{msg}, streams.Fence{Subject: msg.Subject, ExpectedLastSeq: seq})
	return err
}

// lastPublished is the size of the newest checkpoint of this shard on NATS, and the sequence of the newest one
// of any incarnation.
func (c *checkpointer) lastPublished(ctx context.Context) (size int64, seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, c.js, streams.StreamCheckpoints, c.space.Checkpoints(c.stream))
	if err != nil {
		return 0, 0, fmt.Errorf("reading the published checkpoint: %w", err)
	}
	if m == nil {
		return 0, 0, nil
	}
	cp, err := tree.PeekCheckpoint(string(m.Body))
	if err != nil || cp.Shard != c.shard {
		return 0, m.Seq, nil // of an earlier incarnation of the log
	}
	return cp.Size, m.Seq, nil
}
