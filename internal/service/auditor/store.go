package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/write"
	"github.com/countersign-dev/countersign/streams"
)

// Pauses between attempts; the log keeps what arrives meanwhile.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 5 * time.Second
)

// storeBatch writes one batch and returns once it is durable. It retries until ctx ends.
//
// Of two auditors only one succeeds, and no row is stored twice: an auditor inserts only after it
// has read the position right before its batch. If another auditor inserts in between, its batch
// begins at the same sequence and so has the same token, and ClickHouse drops the later one.
func (a *auditor) storeBatch(ctx context.Context, b *batch) error {
	if err := a.retry(ctx, "position", func() error { return a.checkFence(ctx, b.before) }); err != nil {
		return err
	}
	if err := a.announceTree(ctx, b.tree); err != nil {
		return err
	}
	if err := a.retry(ctx, "tree", func() error { return a.writer.InsertTreeNodes(ctx, a.shard, b.nodes) }); err != nil {
		return err
	}
	return a.retry(ctx, "evidence", func() error { return a.writer.CommitEvidence(ctx, b.rows) })
}

// checkFence checks that the evidence ends where this auditor left it.
func (a *auditor) checkFence(ctx context.Context, left uint64) error {
	position, _, err := a.db.Position(ctx, a.shard)
	if err == nil && position != left {
		err = fmt.Errorf("%w: the evidence of shard %s ends at sequence %d, and not at %d where this auditor left it",
			daemon.ErrFenced, a.shard, position, left)
	}
	return err
}

// retry calls f until it succeeds, ctx ends, or another writer is detected.
func (a *auditor) retry(ctx context.Context, what string, f func() error) error {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		err := f()
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			a.issues.set(a.env.Health, what, "")
			return nil
		case errors.As(err, &conflict):
			return fmt.Errorf("%w: %w", daemon.ErrFenced, err)
		case errors.Is(err, daemon.ErrFenced), errors.Is(err, write.ErrBatch): // a retry does not help
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		a.env.Log.Warn().Err(err).Str("what", what).Dur("retry_in", wait).Msg("no way on; it will be tried again")
		a.issues.set(a.env.Health, what, err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// signCheckpoint signs the stored tree, then stores and publishes the note. While records come in
// it does so every CheckpointEvery; with now set, always.
func (a *auditor) signCheckpoint(ctx context.Context, now bool) error {
	size := a.stored.Size()
	if size == a.signed || (!now && time.Since(a.signedAt) < a.flags.CheckpointEvery) {
		return nil
	}
	text, err := tree.SignCheckpoint(a.signer, tree.Checkpoint{Shard: a.shard, Size: size, Root: a.stored.Root()})
	if err != nil {
		return fmt.Errorf("signing the checkpoint of size %d: %w", size, err)
	}
	at := time.Now()
	cp := storage.Checkpoint{Shard: a.shard, Size: uint64(size), Root: a.stored.Root(), Note: text, Created: at}
	if err := a.retry(ctx, "checkpoint", func() error { return a.writer.InsertCheckpoint(ctx, cp) }); err != nil {
		return err
	}
	msg := streams.Msg{
		Subject: a.flags.Space().Checkpoints(a.flags.Stream), Body: []byte(text),
		Header: cloudevents.Binary(cloudevents.Attributes{
			ID: fmt.Sprintf("%s/%d", a.shard, size), Source: "/countersign/" + a.flags.Stream + "/auditor", Type: events.TypeCheckpoint, Time: at,
			DataContentType: "text/plain; charset=utf-8",
		}),
	}
	if err := a.retry(ctx, "published checkpoint", func() error { return streams.StoreAll(ctx, a.nc, []streams.Msg{msg}) }); err != nil {
		return err
	}
	a.signed, a.signedAt = size, at
	a.metrics.Checkpoint(size)
	return nil
}
