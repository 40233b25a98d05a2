package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// A cover proves many leaves of a tree at once, in less space than their
// inclusion proofs would take: the roots of the largest complete subtrees
// without any of the leaves, from left to right. Leaves and subtrees together
// are the whole tree, so that whoever appends them in their order must arrive at
// its root.

// coverNode is one subtree of a cover: its height and its root.
type coverNode struct {
	Level int       `json:"level"`
	Hash  tlog.Hash `json:"hash"`
}

// subtree is a complete subtree by its place: the leaves from n<<level on, 1<<level
// of them.
type subtree struct {
	level int
	n     int64
}

// subtreesBetween lists the largest complete subtrees that together have the leaves from
// a to b, b excluded.
func subtreesBetween(a, b int64) (list []subtree) {
	for a < b {
		level := bits.Len64(uint64(b-a)) - 1
		if a > 0 {
			level = min(level, bits.TrailingZeros64(uint64(a)))
		}
		list = append(list, subtree{level, a >> level})
		a += 1 << level
	}
	return list
}

// storedIndex is the place of the subtree's root among a tree's stored hashes.
func (s subtree) storedIndex() int64 { return tlog.StoredHashIndex(s.level, s.n) }

// appendSubtree appends a complete subtree of 1<<level leaves; false says that it
// cannot stand at this place.
func (t *Tree) appendSubtree(level int, h tlog.Hash) bool {
	if level < 0 || level > 52 || t.size&(1<<level-1) != 0 || t.size+1<<level > MaxSeq {
		return false
	}
	for at := level; t.size>>at&1 == 1; at++ {
		last := len(t.peaks) - 1
		h = tlog.NodeHash(t.peaks[last], h)
		t.peaks = t.peaks[:last]
	}
	t.peaks = append(t.peaks, h)
	t.size += 1 << level
	return true
}

// coverReader appends records and cover to a tree in their order.
type coverReader struct {
	lines    *lineReader
	tree     *Tree
	mismatch bool
}

func (c *coverReader) addLeaf(r Row) error {
	if err := c.appendSubtrees(int64(r.Seq) - 1); err != nil || c.mismatch {
		return err
	}
	c.tree.appendLeaf(LeafHash(r.RecordHash))
	return nil
}

// appendSubtrees appends subtrees until the tree has size leaves.
func (c *coverReader) appendSubtrees(size int64) error {
	for !c.mismatch && c.tree.Size() < size {
		text, err := c.lines.next()
		if errors.Is(err, io.EOF) {
			c.mismatch = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBundle, memberCover, err)
		}
		var n coverNode
		if err := strictjson.Unmarshal(text, &n, strictjson.RejectUnknown); err != nil {
			return fmt.Errorf("%w: %s line %d: not a subtree", ErrBundle, memberCover, c.lines.lineNumber)
		}
		again, err := events.Encode(n)
		c.mismatch = err != nil || !bytes.Equal(again, text) || !c.tree.appendSubtree(n.Level, n.Hash)
	}
	c.mismatch = c.mismatch || c.tree.Size() > size
	return nil
}

// finish appends what is behind the last record; no line may be left.
func (c *coverReader) finish(size int64) error {
	if err := c.appendSubtrees(size); err != nil {
		return err
	}
	if _, err := c.lines.next(); !errors.Is(err, io.EOF) {
		c.mismatch = true
	}
	return nil
}
