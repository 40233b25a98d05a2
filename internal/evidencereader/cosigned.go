package evidencereader

import (
	"context"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/evidence/tree"
)

// CosignedCheckpoint returns the newest checkpoint of a shard that covers a record and that the log
// and one of the given witnesses signed, with their signatures and no other line; "" without one. Of
// what the database holds, only what the keys signed counts: otherwise one of its users could put a
// witness's name on a bundle, or hide the checkpoint that a witness signed (TestCosignedCheckpoint).
func (rd Reader) CosignedCheckpoint(ctx context.Context, shard string, last uint64, keys, witnesses []note.Verifier) (string, error) {
	if len(witnesses) == 0 {
		return "", nil
	}
	newest, size := "", int64(0)
	known := slices.Concat(keys, witnesses)
	for c, err := range rd.DB.CosignedCheckpoints(ctx, shard, max(last, 1)) {
		if err != nil {
			return "", err
		}
		kept, err := tree.KeepSignatures(c.Note, known...)
		if err != nil || len(tree.Cosigners(kept, witnesses)) == 0 {
			continue
		}
		if cp, err := tree.OpenCheckpoint(kept, note.VerifierList(keys...)); err == nil && cp.Shard == shard && cp.Size >= int64(last) {
			newest, size = kept, cp.Size
			break
		}
	}
	if newest == "" {
		return "", nil
	}
	same, err := rd.DB.CheckpointsAt(ctx, shard, uint64(size))
	if err != nil {
		return "", err
	}
	for _, c := range same {
		kept, err := tree.KeepSignatures(c.Note, known...)
		if err != nil {
			continue
		}
		// A checkpoint with another root is a fork: verification reports it, an export has one of
		// them.
		if joined, err := tree.MergeSignatures(newest, kept); err == nil {
			newest = joined
		}
	}
	return tree.KeepSignatures(newest, known...)
}

// signedByLog returns a stored checkpoint without the lines that none of the log's keys signed. It
// returns one that none of them signed as it is: verification reports it.
func signedByLog(stored string, keys []note.Verifier) string {
	if kept, err := tree.KeepSignatures(stored, keys...); err == nil {
		return kept
	}
	return stored
}
