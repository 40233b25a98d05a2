package evidencereader

import (
	"context"

	"github.com/countersign-dev/countersign/evidence/tree"
)

// CosignedCheckpoint returns the newest checkpoint of a shard that a witness signed and that
// covers a record, with all its stored signatures; "" without one. The signatures are not checked
// here.
func (rd Reader) CosignedCheckpoint(ctx context.Context, shard string, last uint64) (string, error) {
	newest, err := rd.DB.CosignedCheckpoints(ctx, shard, max(last, 1), 1)
	if err != nil || len(newest) == 0 {
		return "", err
	}
	same, err := rd.DB.CheckpointsAt(ctx, shard, newest[0].Size)
	if err != nil {
		return "", err
	}
	text := newest[0].Note
	for _, c := range same {
		// A checkpoint with another root is a fork: verification reports it, an export has one of
		// them.
		if joined, err := tree.MergeSignatures(text, c.Note); err == nil {
			text = joined
		}
	}
	return text, nil
}
