package storage

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

const checkpointColumns = "shard, size, root, note, created"

func scanCheckpoint(r driver.Rows) (c Checkpoint, err error) {
	var root string
	err = r.Scan(&c.Shard, &c.Size, &root, &c.Note, &c.Created)
	copy(c.Root[:], root)
	c.Created = c.Created.UTC()
	return c, err
}

// Checkpoints gives all checkpoints of a shard, the smallest tree first.
func (db *DB) Checkpoints(ctx context.Context, shard string) (list []Checkpoint, err error) {
	err = db.each(ctx, `SELECT `+checkpointColumns+` FROM checkpoints WHERE shard = {shard:String} ORDER BY size, created`,
		func(r driver.Rows) error {
			c, err := scanCheckpoint(r)
			list = append(list, c)
			return err
		}, arg("shard", shard))
	return list, err
}

// LatestCheckpoint gives the checkpoint of a shard's largest tree, or ErrNotFound.
func (db *DB) LatestCheckpoint(ctx context.Context, shard string) (c Checkpoint, err error) {
	found := false
	err = db.each(ctx, `SELECT `+checkpointColumns+` FROM checkpoints WHERE shard = {shard:String} ORDER BY size DESC, created DESC LIMIT 1`,
		func(r driver.Rows) (err error) {
			c, err = scanCheckpoint(r)
			found = true
			return err
		}, arg("shard", shard))
	if err == nil && !found {
		err = fmt.Errorf("checkpoint of shard %s: %w", shard, ErrNotFound)
	}
	return c, err
}
