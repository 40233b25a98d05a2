package write

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

// InsertTreeNodes stores hashes durably. It omits those that read.Reader.TreeNodes computes from others,
// which are all but one in 510. Storing a hash again does no harm, also with another value: readers
// compute such a hash from the records.
func (w *Writer) InsertTreeNodes(ctx context.Context, shard string, nodes []storage.TreeNode) error {
	if shard == "" {
		return fmt.Errorf("%w: it has no shard", ErrBatch)
	}
	var shards, hash []string
	var levels []uint8
	var tiles, at []uint64
	for _, node := range nodes {
		level, n := tlog.SplitStoredHashIndex(int64(node.Index))
		if level == 0 || level%rows.TileHeight != 0 {
			continue
		}
		shards, hash = append(shards, shard), append(hash, string(node.Hash[:]))
		levels, tiles, at = append(levels, uint8(level)), append(tiles, uint64(n)/rows.TileWidth), append(at, uint64(n))
	}
	if len(at) == 0 {
		return nil
	}
	return w.insertColumns(ctx, "INSERT INTO tree_hashes (shard, level, tile, n, hash)", randomToken(), shards, levels, tiles, at, hash)
}

// InsertCheckpoint stores a checkpoint durably; storing the same one again has no effect.
func (w *Writer) InsertCheckpoint(ctx context.Context, c storage.Checkpoint) error {
	if c.Shard == "" || c.Note == "" || !c.Created.After(conn.MinTime) || !c.Created.Before(conn.MaxTime) {
		return fmt.Errorf("%w: a checkpoint needs a shard, a note and a time", ErrBatch)
	}
	token := fmt.Sprintf("%s/%d/%s/%d", c.Shard, c.Size, hex.EncodeToString(c.Root[:]), c.Created.UnixNano())
	return w.insertColumns(ctx, "INSERT INTO checkpoints (shard, size, root, note, created)", token,
		[]string{c.Shard}, []uint64{c.Size}, []string{string(c.Root[:])}, []string{c.Note}, []time.Time{c.Created.UTC()})
}
