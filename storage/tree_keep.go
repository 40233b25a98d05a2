package storage

import (
	"container/list"
	"sync"
)

// keptTiles are tiles that were read, the ones used last. What is in a tile never
// changes, so what has been read is right for good, but for rows that somebody put
// beside them since.
type keptTiles struct {
	mu    sync.Mutex
	most  int // of each kind: hashes of records, hashes of the tree
	kinds [2]keptKind
}

type keptKind struct {
	order list.List // of *tile, the last used one first
	at    map[keptAt]*list.Element
}

type keptAt struct {
	shard string
	tileAt
}

// KeepTiles lets TreeNodes keep up to most tiles of records and as many of the tree
// in memory (8 KB each), for who proves many records one after another. It then
// misses a forged second row of what it has read before, which verification of the
// whole shard does not. 0, the default, keeps none.
func (db *DB) KeepTiles(most int) {
	k := &db.tiles
	k.mu.Lock()
	defer k.mu.Unlock()
	k.most, k.kinds = most, [2]keptKind{{at: map[keptAt]*list.Element{}}, {at: map[keptAt]*list.Element{}}}
}

func (k *keptTiles) kind(at tileAt) *keptKind { return &k.kinds[min(at.level, 1)] }

// get gives a kept tile, which nobody may change, or nil.
func (k *keptTiles) get(shard string, at tileAt) *tile {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := k.kind(at)
	e := kind.at[keptAt{shard, at}]
	if e == nil {
		return nil
	}
	kind.order.MoveToFront(e)
	return e.Value.(*tile)
}

// put keeps a tile, in the place of an older reading of it.
func (k *keptTiles) put(t *tile) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.most == 0 {
		return
	}
	kind, key := k.kind(t.at), keptAt{t.shard, t.at}
	if old := kind.at[key]; old != nil {
		kind.order.Remove(old)
	}
	kind.at[key] = kind.order.PushFront(t)
	if kind.order.Len() > k.most {
		last := kind.order.Remove(kind.order.Back()).(*tile)
		delete(kind.at, keptAt{last.shard, last.at})
	}
}
