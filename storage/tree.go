package storage

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"
)

// TreeNode is one hash of a shard's Merkle log.
type TreeNode struct {
	Index uint64 // tlog.StoredHashIndex
	Hash  [32]byte
}

// Only every tileHeight-th level of the tree is stored. Level 0, the hashes of records, is in
// evidence already. A hash between two stored levels is computed from hashes of the lower one
// in one tile: tileWidth adjacent hashes, which are read together.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// tilesPerQuery bounds a query and the memory for its answer: 8 KB a tile.
const tilesPerQuery = 512

// InsertTreeNodes stores hashes durably. It omits those that TreeNodes computes from others,
// which are all but one in 510. Storing a hash again does no harm.
func (db *DB) InsertTreeNodes(ctx context.Context, shard string, nodes []TreeNode) error {
	if shard == "" {
		return fmt.Errorf("%w: it has no shard", ErrBatch)
	}
	var shards, hash []string
	var levels []uint8
	var tiles, at []uint64
	for _, node := range nodes {
		level, n := tlog.SplitStoredHashIndex(int64(node.Index))
		if level == 0 || level%tileHeight != 0 {
			continue
		}
		shards, hash = append(shards, shard), append(hash, string(node.Hash[:]))
		levels, tiles, at = append(levels, uint8(level)), append(tiles, uint64(n)/tileWidth), append(at, uint64(n))
	}
	if len(at) == 0 {
		return nil
	}
	return db.insertColumns(ctx, "INSERT INTO tree_hashes (shard, level, tile, n, hash)", randomToken(), shards, levels, tiles, at, hash)
}

// TreeNodes returns hashes of a shard's Merkle log at the given tlog indexes, in their order. It
// reads stored hashes, or computes them from stored hashes and the hashes of records. It
// returns ErrNotFound if a hash is missing, and *ConflictError if a hash that it needs is
// there twice with different values. Its memory is bounded for any number of indexes.
func (db *DB) TreeNodes(ctx context.Context, shard string, idx []uint64) ([][32]byte, error) {
	r := treeRead{db: db, shard: shard, indexes: idx, hashes: make([][32]byte, len(idx)), requested: map[tileAt][]int{}}
	var records, stored []tileAt
	for i, index := range idx {
		at, _ := tileOf(index)
		if len(r.requested[at]) == 0 {
			if at.level == 0 {
				records = append(records, at)
			} else {
				stored = append(stored, at)
			}
		}
		r.requested[at] = append(r.requested[at], i)
	}
	// Concurrently: the server needs some time to plan each query and little to run it.
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range [][]tileAt{records, stored} {
		if len(list) > 0 {
			group.Go(func() error { return r.makeHashes(ctx, list) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return r.hashes, nil
}

// treeRead is one call of TreeNodes.
type treeRead struct {
	db        *DB
	shard     string
	indexes   []uint64
	hashes    [][32]byte       // by position in indexes; each has one writer
	requested map[tileAt][]int // positions in indexes, by the tile that the hash is computed from
}

// makeHashes computes the requested hashes of some tiles. The tiles are all of level 0, or all
// of higher levels.
func (r treeRead) makeHashes(ctx context.Context, list []tileAt) error {
	slices.SortFunc(list, tileAt.compare)
	for part := range slices.Chunk(list, tilesPerQuery) {
		tiles, err := r.loadTiles(ctx, part)
		if err != nil {
			return err
		}
		for _, at := range part {
			for _, i := range r.requested[at] {
				_, span := tileOf(r.indexes[i])
				if r.hashes[i], err = tiles[at].spanHash(span); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// loadTiles reads the tiles of a list.
func (r treeRead) loadTiles(ctx context.Context, list []tileAt) (tileSet, error) {
	tiles := make(tileSet, len(list))
	for _, at := range list {
		tiles[at] = &tile{shard: r.shard, at: at}
	}
	return tiles, r.db.fetchTiles(ctx, r.shard, list, tiles)
}
