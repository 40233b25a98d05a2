package auditor

import (
	"context"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// restoreCheckpoints stores again the published checkpoints of this shard, up to a size, that the
// database lacks. A checkpoint is stored before it is published, so a missing one was deleted. It
// runs once, beside the auditing. Errors are logged; `countersign verify` compares the two in any
// case.
func (a *auditor) restoreCheckpoints(ctx context.Context, size uint64) {
	missing, err := a.missingCheckpoints(ctx, size)
	for _, c := range missing {
		if err == nil {
			err = a.writer.InsertCheckpoint(ctx, c)
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.env.Log.Warn().Err(err).Msg("the stored checkpoints could not be compared with the published ones")
	case len(missing) > 0:
		a.env.Log.Error().Int("checkpoints", len(missing)).Uint64("first_size", missing[0].Size).Str("shard", a.shard).
			Msg("published checkpoints were missing from the database and were stored again; find out which user deleted them")
	}
}

// repairContents restores derived rows with changed contents: the start compares only their
// number. It runs once, beside the auditing, up to the position at the start.
func (a *auditor) repairContents(ctx context.Context, to uint64) {
	changed, err := a.writer.RepairContents(ctx, a.shard, to)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.env.Log.Warn().Err(err).Msg("the contents of the derived tables could not be compared with the evidence")
	case changed > 0:
		a.env.Log.Error().Uint64("rows", changed).Str("shard", a.shard).Msg("rows of derived tables were changed by hand and were made anew; find out which user did it")
	}
}

// missingCheckpoints lists the published checkpoints of this shard, up to a size, that this
// auditor's key signed and that are not stored.
func (a *auditor) missingCheckpoints(ctx context.Context, size uint64) (missing []storage.Checkpoint, err error) {
	key, err := signing.CheckpointVerifier(a.verifierKey)
	if err != nil {
		return nil, err
	}
	var published []storage.Checkpoint
	err = streams.EachMessage(ctx, a.js, streams.StreamCheckpoints, func(m *events.LogMessage) error {
		c, err := tree.PeekCheckpoint(string(m.Body))
		if err == nil && c.Shard == a.shard && uint64(c.Size) <= size {
			published = append(published, storage.Checkpoint{Shard: a.shard, Size: uint64(c.Size), Root: c.Root, Note: string(m.Body), Created: m.Time})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	stored, err := a.db.Checkpoints(ctx, a.shard)
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, c := range stored {
		have[c.Note] = true
	}
	for _, c := range published {
		if have[c.Note] {
			continue
		}
		if _, err := tree.OpenCheckpoint(c.Note, note.VerifierList(key)); err != nil {
			continue // verification reports it
		}
		have[c.Note] = true
		missing = append(missing, c)
	}
	return missing, nil
}
