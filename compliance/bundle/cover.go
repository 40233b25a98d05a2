package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// A cover proves many leaves of a tree at once, in less space than their inclusion proofs: it holds
// the roots of the largest complete subtrees without any of the leaves, from left to right.
// Leaves and subtrees together are the whole tree, so appending them in their order must give
// its root.

// coverNode is one subtree of a cover: its height and its root.
type coverNode struct {
	Level int       `json:"level"`
	Hash  tlog.Hash `json:"hash"`
}

// subtree names a complete subtree: the 1<<level leaves from n<<level on.
type subtree struct {
	level int
	n     int64
}

// between lists the largest complete subtrees that together cover the leaves from a to b, b
// excluded.
func between(a, b int64) (list []subtree) {
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

// storedIndex is the index of the subtree's root among a tree's stored hashes.
func (s subtree) storedIndex() int64 { return tlog.StoredHashIndex(s.level, s.n) }

// coverReader appends records and cover to a tree in the order of the leaves.
type coverReader struct {
	lines    *lines
	tree     *tree.Tree
	mismatch bool
}

func (c *coverReader) addLeaf(r evidence.Row) error {
	if err := c.appendSubtrees(int64(r.Seq) - 1); err != nil || c.mismatch {
		return err
	}
	c.mismatch = !c.tree.AppendSubtree(0, tree.LeafHash(r.RecordHash))
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
			return fmt.Errorf("%w: %s: %w", ErrInvalid, memberCover, err)
		}
		var n coverNode
		if err := strictjson.Unmarshal(text, &n, strictjson.RejectUnknown); err != nil {
			return fmt.Errorf("%w: %s line %d: not a subtree", ErrInvalid, memberCover, c.lines.lineNumber)
		}
		again, err := events.Encode(n)
		c.mismatch = err != nil || !bytes.Equal(again, text) || !c.tree.AppendSubtree(n.Level, n.Hash)
	}
	c.mismatch = c.mismatch || c.tree.Size() > size
	return nil
}

// finish appends the subtrees after the last record; no line may be left over.
func (c *coverReader) finish(size int64) error {
	if err := c.appendSubtrees(size); err != nil {
		return err
	}
	if _, err := c.lines.next(); !errors.Is(err, io.EOF) {
		c.mismatch = true
	}
	return nil
}
