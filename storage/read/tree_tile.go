package read

import (
	"cmp"
	"crypto/sha256"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/storage"
)

// tileAt names a tile: the hashes n*tileWidth to (n+1)*tileWidth-1 of a stored level.
type tileAt struct {
	level int
	n     uint64
}

func (a tileAt) compare(b tileAt) int {
	return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.n, b.n))
}

// leafSpan names the hashes of a tile that another hash is computed from: 1<<height of them,
// starting at index from.
type leafSpan struct {
	from   int
	height int
}

// tileOf returns the tile and the span in it that the hash at a tlog index is computed from.
func tileOf(index uint64) (tileAt, leafSpan) {
	level, n := tlog.SplitStoredHashIndex(int64(index))
	height := level % tileHeight
	first := uint64(n) << height
	return tileAt{level - height, first / tileWidth}, leafSpan{int(first % tileWidth), height}
}

// tile holds the hashes of one tile: hashes of the tree, or of records at level 0.
type tile struct {
	shard  string
	at     tileAt
	hashes [tileWidth][32]byte
	states [tileWidth]uint8
}

// States of a hash in a tile.
const (
	hashAbsent = iota
	hashPresent
	hashDiffers // two different values were read
)

// tileSet holds the tiles of one query.
type tileSet map[tileAt]*tile

// addHash stores a hash of a stored level in its tile; it ignores one of no tile in the set.
func (s tileSet) addHash(level int, n uint64, hash [32]byte) {
	t := s[tileAt{level, n / tileWidth}]
	if t == nil {
		return
	}
	i := n % tileWidth
	switch {
	case t.states[i] == hashAbsent:
		t.hashes[i], t.states[i] = hash, hashPresent
	case t.hashes[i] != hash:
		t.states[i] = hashDiffers
	}
}

// storedIndex is the tlog index of hash i of the tile.
func (t *tile) storedIndex(i int) uint64 {
	return uint64(tlog.StoredHashIndex(t.at.level, int64(t.at.n*tileWidth)+int64(i)))
}

// spanHash computes the hash over a span of known hashes.
func (t *tile) spanHash(s leafSpan) ([32]byte, error) {
	if s.height == 0 {
		return t.hashAt(s.from)
	}
	s.height--
	left, err := t.spanHash(s)
	if err != nil {
		return left, err
	}
	s.from += 1 << s.height
	right, err := t.spanHash(s)
	return tlog.NodeHash(left, right), err
}

func (t *tile) hashAt(i int) ([32]byte, error) {
	switch {
	case t.states[i] == hashAbsent:
		return [32]byte{}, fmt.Errorf("tree hash %d of shard %s: %w", t.storedIndex(i), t.shard, storage.ErrNotFound)
	case t.states[i] == hashDiffers:
		return [32]byte{}, &storage.ConflictError{Shard: t.shard, Seq: t.at.n*tileWidth + uint64(i) + 1, What: "there are two different hashes"}
	case t.at.level == 0:
		return leafHash(t.hashes[i]), nil
	}
	return t.hashes[i], nil
}

// leafHash is tlog.RecordHash of a record's hash (RFC 6962, 2.1) without its allocations.
func leafHash(recordHash [32]byte) [32]byte {
	var b [1 + len(recordHash)]byte
	copy(b[1:], recordHash[:])
	return sha256.Sum256(b[:])
}
