package read

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/storage/internal/rows"
)

// The tiles of a tree (see rows.TileHeight).
const (
	tileHeight = rows.TileHeight
	tileWidth  = rows.TileWidth
)

// tilesPerQuery bounds a query and the memory for its answer: 8 KB a tile.
const tilesPerQuery = 512

// TreeNodes returns hashes of a shard's Merkle log at the given tlog indexes, in their order. It
// reads stored hashes, or computes them from stored hashes and the hashes of records. A hash that
// is stored with two values is computed from the records below it. It
// returns storage.ErrNotFound if a hash is missing, and *storage.ConflictError if there are two
// records of one sequence. Its memory is bounded for any number of indexes.
func (r *Reader) TreeNodes(ctx context.Context, shard string, idx []uint64) ([][32]byte, error) {
	read := treeRead{reader: r, shard: shard, indexes: idx, hashes: make([][32]byte, len(idx)), requested: map[tileAt][]int{}}
	var records, stored []tileAt
	for i, index := range idx {
		at, _ := tileOf(index)
		if len(read.requested[at]) == 0 {
			if at.level == 0 {
				records = append(records, at)
			} else {
				stored = append(stored, at)
			}
		}
		read.requested[at] = append(read.requested[at], i)
	}
	// Concurrently: the server needs some time to plan each query and little to run it.
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range [][]tileAt{records, stored} {
		if len(list) > 0 {
			group.Go(func() error { return read.makeHashes(ctx, list) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return read.hashes, nil
}

// treeRead is one call of TreeNodes.
type treeRead struct {
	reader    *Reader
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
				if r.hashes[i], err = r.spanHash(ctx, tiles[at], span); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// spanHash computes the hash over a span of a tile. A writer stores the tree's hashes before the
// records, so one that died in between can leave hashes of records that were then made by
// another policy. Those that count are computed from the level below.
func (r treeRead) spanHash(ctx context.Context, t *tile, s leafSpan) (hash [32]byte, err error) {
	for i := s.from; i < s.from+1<<s.height && t.at.level > 0; i++ {
		if t.states[i] != hashDiffers {
			continue
		}
		below := tileAt{t.at.level - tileHeight, t.at.n*tileWidth + uint64(i)}
		tiles, err := r.loadTiles(ctx, []tileAt{below})
		if err != nil {
			return hash, err
		}
		if t.hashes[i], err = r.spanHash(ctx, tiles[below], leafSpan{0, tileHeight}); err != nil {
			return hash, err
		}
		t.states[i] = hashPresent
	}
	return t.spanHash(s)
}

// loadTiles reads the tiles of a list.
func (r treeRead) loadTiles(ctx context.Context, list []tileAt) (tileSet, error) {
	tiles := make(tileSet, len(list))
	for _, at := range list {
		tiles[at] = &tile{shard: r.shard, at: at}
	}
	return tiles, r.reader.fetchTiles(ctx, r.shard, list, tiles)
}
