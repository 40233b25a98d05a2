package evidencereader

import (
	"context"

	"github.com/countersign-dev/countersign/evidence"
)

// Cosigned is the newest checkpoint of a shard that somebody else signed as well
// and that covers a record, with all signatures that are stored of it; "" if there
// is none. Nobody has checked them here.
func (l Reader) Cosigned(ctx context.Context, shard string, last uint64) (string, error) {
	newest, err := l.DB.CosignedCheckpoints(ctx, shard, max(last, 1), 1)
	if err != nil || len(newest) == 0 {
		return "", err
	}
	same, err := l.DB.CheckpointsAt(ctx, shard, newest[0].Size)
	if err != nil {
		return "", err
	}
	text := newest[0].Note
	for _, c := range same {
		// One with another root is a fork: verification says so, an export has one.
		if joined, err := evidence.MergeSignatures(text, c.Note); err == nil {
			text = joined
		}
	}
	return text, nil
}
