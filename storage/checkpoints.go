package storage

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Checkpoints gives all checkpoints of a shard, the smallest tree first.
func (db *DB) Checkpoints(ctx context.Context, shard string) ([]Checkpoint, error) {
	return db.queryCheckpoints(ctx, `shard = {shard:String} ORDER BY size, created`, queryParam("shard", shard))
}

// LatestCheckpoint gives the checkpoint of a shard's largest tree, or ErrNotFound.
func (db *DB) LatestCheckpoint(ctx context.Context, shard string) (Checkpoint, error) {
	list, err := db.queryCheckpoints(ctx, `shard = {shard:String} ORDER BY size DESC, created DESC LIMIT 1`, queryParam("shard", shard))
	switch {
	case err != nil:
		return Checkpoint{}, err
	case len(list) == 0:
		return Checkpoint{}, fmt.Errorf("checkpoint of shard %s: %w", shard, ErrNotFound)
	}
	return list[0], nil
}

// CheckpointsAt gives the checkpoints of a shard's tree of one size, the oldest
// first: the log's own, and what witnesses signed of it later.
func (db *DB) CheckpointsAt(ctx context.Context, shard string, size uint64) ([]Checkpoint, error) {
	return db.queryCheckpoints(ctx, `shard = {shard:String} AND size = {size:UInt64} ORDER BY created`, queryParam("shard", shard), queryParam("size", size))
}

// CosignedCheckpoints gives the checkpoints of a shard that have more than one signature, the
// largest tree first, at most so many of them. Nobody has checked the signatures
// here; the auditor did before it stored them.
func (db *DB) CosignedCheckpoints(ctx context.Context, shard string, from uint64, most int) ([]Checkpoint, error) {
	return db.queryCheckpoints(ctx, `shard = {shard:String} AND size >= {size:UInt64} AND countSubstrings(note, '\n— ') > 1
		ORDER BY size DESC, created LIMIT {most:UInt64}`, queryParam("shard", shard), queryParam("size", from), queryParam("most", uint64(max(most, 0))))
}

func (db *DB) queryCheckpoints(ctx context.Context, where string, args ...any) (list []Checkpoint, err error) {
	err = db.eachRow(ctx, `SELECT shard, size, root, note, created FROM checkpoints WHERE `+where, func(r driver.Rows) error {
		var c Checkpoint
		var root string
		err := r.Scan(&c.Shard, &c.Size, &root, &c.Note, &c.Created)
		copy(c.Root[:], root)
		c.Created = c.Created.UTC()
		list = append(list, c)
		return err
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoints: %w", err)
	}
	return list, nil
}
