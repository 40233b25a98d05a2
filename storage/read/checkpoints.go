package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Checkpoints returns all checkpoints of a shard, the smallest tree first.
func (r *Reader) Checkpoints(ctx context.Context, shard string) ([]storage.Checkpoint, error) {
	return r.queryCheckpoints(ctx, `shard = {shard:String} ORDER BY size, created`, conn.Param("shard", shard))
}

// LatestCheckpoint returns the checkpoint of a shard's largest tree, or storage.ErrNotFound.
func (r *Reader) LatestCheckpoint(ctx context.Context, shard string) (storage.Checkpoint, error) {
	list, err := r.queryCheckpoints(ctx, `shard = {shard:String} ORDER BY size DESC, created DESC LIMIT 1`, conn.Param("shard", shard))
	switch {
	case err != nil:
		return storage.Checkpoint{}, err
	case len(list) == 0:
		return storage.Checkpoint{}, fmt.Errorf("checkpoint of shard %s: %w", shard, storage.ErrNotFound)
	}
	return list[0], nil
}

// CheckpointsAt returns the checkpoints of a shard's tree of one size, the oldest first: the
// log's own, and the versions that witnesses signed later.
func (r *Reader) CheckpointsAt(ctx context.Context, shard string, size uint64) ([]storage.Checkpoint, error) {
	return r.queryCheckpoints(ctx, `shard = {shard:String} AND size = {size:UInt64} ORDER BY created`, conn.Param("shard", shard), conn.Param("size", size))
}

// CheckpointsAbove calls fn for the checkpoints of a shard whose trees are larger than a size.
func (r *Reader) CheckpointsAbove(ctx context.Context, shard string, size uint64, fn func(storage.Checkpoint) error) error {
	return r.eachCheckpoint(ctx, fn, `shard = {shard:String} AND size > {size:UInt64}`, conn.Param("shard", shard), conn.Param("size", size))
}

// MissingCheckpoints returns those of a list of a shard's checkpoints whose notes are not stored, each
// once. It reads what is stored between the smallest and the largest size: the caller gives windows
// of sizes that lie near to each other.
func (r *Reader) MissingCheckpoints(ctx context.Context, shard string, list []storage.Checkpoint) (missing []storage.Checkpoint, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	bySize := func(a, b storage.Checkpoint) int { return cmp.Compare(a.Size, b.Size) }
	have := make(map[string]bool, len(list))
	err = r.pool.EachRow(ctx, `SELECT note FROM checkpoints WHERE shard = {shard:String} AND size BETWEEN {from:UInt64} AND {to:UInt64}`, func(row driver.Rows) error {
		var note string
		err := row.Scan(&note)
		have[note] = true
		return err
	}, conn.Param("shard", shard), conn.Param("from", slices.MinFunc(list, bySize).Size), conn.Param("to", slices.MaxFunc(list, bySize).Size))
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoints: %w", err)
	}
	for _, c := range list {
		if !have[c.Note] {
			have[c.Note] = true
			missing = append(missing, c)
		}
	}
	return missing, nil
}

// CosignedCheckpoints yields the checkpoints of a shard with more than one signature, of size
// from or more, the largest tree first. The signatures are unchecked: a user of the database can
// add lines. An error is the last thing that it yields.
func (r *Reader) CosignedCheckpoints(ctx context.Context, shard string, from uint64) iter.Seq2[storage.Checkpoint, error] {
	return func(yield func(storage.Checkpoint, error) bool) {
		enough := errors.New("the caller has enough")
		err := r.eachCheckpoint(ctx, func(c storage.Checkpoint) error {
			if !yield(c, nil) {
				return enough
			}
			return nil
		}, `shard = {shard:String} AND size >= {size:UInt64} AND countSubstrings(note, '\n— ') > 1 ORDER BY size DESC, created`, conn.Param("shard", shard), conn.Param("size", from))
		if err != nil && !errors.Is(err, enough) {
			yield(storage.Checkpoint{}, err)
		}
	}
}

func (r *Reader) queryCheckpoints(ctx context.Context, where string, args ...any) (list []storage.Checkpoint, err error) {
	err = r.eachCheckpoint(ctx, func(c storage.Checkpoint) error {
		list = append(list, c)
		return nil
	}, where, args...)
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (r *Reader) eachCheckpoint(ctx context.Context, fn func(storage.Checkpoint) error, where string, args ...any) error {
	err := r.pool.EachRow(ctx, `SELECT shard, size, root, note, created FROM checkpoints WHERE `+where, func(row driver.Rows) error {
		var c storage.Checkpoint
		var root string
		if err := row.Scan(&c.Shard, &c.Size, &root, &c.Note, &c.Created); err != nil {
			return err
		}
		copy(c.Root[:], root)
		c.Created = c.Created.UTC()
		return fn(c)
	}, args...)
	if err != nil {
		return fmt.Errorf("reading the checkpoints: %w", err)
	}
	return nil
}
