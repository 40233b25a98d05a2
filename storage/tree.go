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

// Of the tree's levels only every tileHeight-th is stored. The hashes of records,
// level 0, are in evidence already, and what lies between two stored levels is
// made from hashes of the lower one that lie in one tile: tileWidth of them side by
// side, which are read together.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// tilesPerQuery bounds a query, and what is held of its answer: 8 KB a tile.
const tilesPerQuery = 512

// InsertTreeNodes stores hashes durably; those that TreeNodes makes from others it
// leaves out, which are all but one in 510. Storing a hash again does no harm.
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

// TreeNodes gives hashes of a shard's Merkle log at the given tlog indexes, in
// their order: stored ones, or made from stored ones and the hashes of records. One
// that cannot be had is ErrNotFound; two different hashes at one index, or of one
// record, among those that were needed are a *ConflictError. What it holds meanwhile
// is bounded, however many it is asked for.
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
	// Side by side: each takes the server some time to plan and little to do.
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
	hashes    [][32]byte       // for idx; each has one writer
	requested map[tileAt][]int // places in idx, by the tile that they are made from
}

// makeHashes makes what was asked for of some tiles, which are all of level 0 or all of
// higher ones.
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
	if err := r.db.fetchTiles(ctx, r.shard, list, tiles); err != nil {
		return nil, err
	}
	return tiles, r.fetchBefore(ctx, list, tiles)
}

// missingHashes lists the hashes that a tile is asked for and has not.
func (r treeRead) missingHashes(at tileAt, tiles tileSet) (missing []uint64) {
	for _, i := range r.requested[at] {
		_, span := tileOf(r.indexes[i])
		missing = tiles[at].appendMissing(span, missing)
	}
	return missing
}

// fetchBefore looks for stored hashes that are missing where an earlier version
// put them.
func (r treeRead) fetchBefore(ctx context.Context, list []tileAt, tiles tileSet) error {
	if list[0].level == 0 {
		return nil
	}
	var missing []uint64
	for _, at := range list {
		missing = append(missing, r.missingHashes(at, tiles)...)
	}
	slices.Sort(missing)
	for part := range slices.Chunk(slices.Compact(missing), tilesPerQuery*8) {
		if err := r.db.fetchTreeNodes(ctx, r.shard, part, tiles); err != nil {
			return err
		}
	}
	return nil
}
