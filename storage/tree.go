package storage

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// TreeNodes gives the stored hashes of a shard's Merkle log at the given tlog
// indexes, in their order. An index that is not stored is ErrNotFound; two
// different hashes at one are a *ConflictError.
func (db *DB) TreeNodes(ctx context.Context, shard string, idx []uint64) ([][32]byte, error) {
	if len(idx) == 0 {
		return nil, nil
	}
	table, err := ext.NewTable("wanted", ext.Column("i", "UInt64"))
	if err != nil {
		return nil, err
	}
	for _, i := range idx {
		if err := table.Append(i); err != nil {
			return nil, err
		}
	}
	found := make(map[uint64][32]byte, len(idx))
	ctx = clickhouse.Context(reading(ctx), clickhouse.WithExternalTable(table))
	err = db.each(ctx, `SELECT idx, hash FROM tree_nodes WHERE shard = {shard:String} AND idx IN (SELECT i FROM wanted)`,
		func(r driver.Rows) error { return collectNode(r, shard, found) }, arg("shard", shard))
	if err != nil {
		return nil, err
	}
	hashes := make([][32]byte, len(idx))
	for n, i := range idx {
		h, ok := found[i]
		if !ok {
			return nil, fmt.Errorf("tree hash %d of shard %s: %w", i, shard, ErrNotFound)
		}
		hashes[n] = h
	}
	return hashes, nil
}

func collectNode(r driver.Rows, shard string, found map[uint64][32]byte) error {
	var i uint64
	var text string
	if err := r.Scan(&i, &text); err != nil {
		return err
	}
	var hash [32]byte
	copy(hash[:], text)
	if old, ok := found[i]; ok && old != hash {
		return &ConflictError{Shard: shard, Table: "tree_nodes", Seq: i, What: "there are two different hashes"}
	}
	found[i] = hash
	return nil
}

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
