// Package tree holds the Merkle tree over the records of a shard (RFC 6962), the proofs of
// inclusion and consistency, the checkpoints that sign the root of the tree, the intents that
// precede a checkpoint, and the cosignatures of witnesses. Begin reading with Tree.Append and
// Checkpoint.
//
// It knows a record as a hash and its sequence alone. Leaf seq-1 is the record of log
// sequence seq. The package is pure: it reads no clock, no randomness and no files.
package tree

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Errors that callers decide on.
var (
	// ErrCheckpoint says that a note is not a checkpoint of this log, or not
	// signed by a known key.
	ErrCheckpoint = errors.New("evidence: not a valid checkpoint")
	// ErrTree says that stored tree hashes do not fit the size of the tree.
	ErrTree = errors.New("evidence: the tree hashes do not fit the tree size")
	// ErrWitnessKey says that a text is not a witness's key.
	ErrWitnessKey = errors.New("evidence: not a witness key (name+hash+key with type byte 4)")
	// ErrRollback says that the witness has already signed a larger tree of the log.
	ErrRollback = errors.New("evidence: the log has become shorter")
	// ErrFork says that a checkpoint does not extend the one that the witness signed before.
	ErrFork = errors.New("evidence: the log has another history than the one that was signed")
)

// MaxSeq is the greatest log sequence of a record: 2^53, the greatest integer that every
// JSON reader decodes to the same value.
const MaxSeq = 1 << 53

// LeafHash is the tree's leaf for a record: SHA-256(0x00 || record hash), the RFC 6962 hash
// of the leaf data, which are the 32 bytes of the record's hash.
func LeafHash(recordHash [32]byte) tlog.Hash { return tlog.RecordHash(recordHash[:]) }

// Node is one hash of the tree at its index in tlog's stored-hash order.
type Node struct {
	Index int64
	Hash  tlog.Hash
}

// Tree is the right edge of a Merkle tree: at most 63 hashes, enough to append leaves and to
// compute the root. The zero Tree is empty. Leaf seq-1 is the record of log sequence seq.
type Tree struct {
	size  int64
	peaks []tlog.Hash // of the complete subtrees, from the largest to the smallest
}

// FrontierIndexes lists the stored-hash indexes of the hashes that New needs for a tree
// of size leaves, in the order that it needs them.
func FrontierIndexes(size int64) []int64 {
	var out []int64
	at := int64(0)
	for level := 62; level >= 0; level-- {
		if size>>level&1 == 1 {
			out = append(out, tlog.StoredHashIndex(level, at>>level))
			at += 1 << level
		}
	}
	return out
}

// New restores the tree of size leaves from the hashes at FrontierIndexes(size).
func New(size int64, frontier []tlog.Hash) (*Tree, error) {
	if size < 0 || size > MaxSeq || len(frontier) != bits.OnesCount64(uint64(size)) {
		return nil, fmt.Errorf("%w: %d hashes for size %d", ErrTree, len(frontier), size)
	}
	return &Tree{size: size, peaks: slices.Clone(frontier)}, nil
}

// Clone copies the tree, so that the caller can try a batch on the copy.
func (t *Tree) Clone() *Tree { return &Tree{size: t.size, peaks: slices.Clone(t.peaks)} }

// Append adds a record's hash as the next leaf. It returns the hashes to store: the leaf and
// every subtree that it completes, at consecutive indexes.
func (t *Tree) Append(recordHash [32]byte) []Node {
	h := LeafHash(recordHash)
	nodes := append(make([]Node, 0, 2), Node{tlog.StoredHashIndex(0, t.size), h})
	for level := 0; t.size>>level&1 == 1; level++ {
		last := len(t.peaks) - 1
		h = tlog.NodeHash(t.peaks[last], h)
		t.peaks = t.peaks[:last]
		nodes = append(nodes, Node{nodes[0].Index + int64(level) + 1, h})
	}
	t.peaks = append(t.peaks, h)
	t.size++
	return nodes
}

// AppendLeaf is Append for a leaf (the LeafHash of a record's hash), without the list of hashes to store.
func (t *Tree) AppendLeaf(leaf tlog.Hash) { t.addSubtree(0, leaf) }

// AppendSubtree appends a complete subtree of 1<<level leaves, given by its root; a leaf has
// level 0. It reports false if such a subtree cannot start at the tree's size.
func (t *Tree) AppendSubtree(level int, h tlog.Hash) bool {
	if level < 0 || level > 52 || t.size&(1<<level-1) != 0 || t.size+1<<level > MaxSeq {
		return false
	}
	t.addSubtree(level, h)
	return true
}

// addSubtree appends a complete subtree that can start at the tree's size.
func (t *Tree) addSubtree(level int, h tlog.Hash) {
	for at := level; t.size>>at&1 == 1; at++ {
		last := len(t.peaks) - 1
		h = tlog.NodeHash(t.peaks[last], h)
		t.peaks = t.peaks[:last]
	}
	t.peaks = append(t.peaks, h)
	t.size += 1 << level
}

// Size is the number of leaves.
func (t *Tree) Size() int64 { return t.size }

// Root is the RFC 6962 root of the tree. The root of the empty tree is the hash of the empty
// string.
func (t *Tree) Root() tlog.Hash {
	if t.size == 0 {
		empty, _ := tlog.TreeHash(0, nil)
		return empty
	}
	h := t.peaks[len(t.peaks)-1]
	for i := len(t.peaks) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.peaks[i], h)
	}
	return h
}

// InclusionProof proves that the record of log sequence seq is in the tree of size leaves.
// It reads a few stored hashes from r.
func InclusionProof(r tlog.HashReader, size int64, seq uint64) (tlog.RecordProof, error) {
	if seq == 0 || int64(seq) > size {
		return nil, fmt.Errorf("%w: sequence %d is not below size %d", ErrTree, seq, size)
	}
	return tlog.ProveRecord(size, int64(seq)-1, r)
}

// InclusionProofs proves records to be in the tree of size leaves. It reads all hashes from r at once.
func InclusionProofs(r tlog.HashReader, size int64, seqs []uint64) ([]tlog.RecordProof, error) {
	proofs := make([]tlog.RecordProof, len(seqs))
	prove := func(r tlog.HashReader) (err error) {
		for i, seq := range seqs {
			if proofs[i], err = InclusionProof(r, size, seq); err != nil {
				return fmt.Errorf("proving record %d: %w", seq, err)
			}
		}
		return nil
	}
	wanted := map[int64]tlog.Hash{}
	if err := prove(tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { // only collects the indexes
		for _, i := range indexes {
			wanted[i] = tlog.Hash{}
		}
		return make([]tlog.Hash, len(indexes)), nil
	})); err != nil {
		return nil, err
	}
	list := slices.Sorted(maps.Keys(wanted))
	hashes, err := r.ReadHashes(list)
	if err != nil {
		return nil, fmt.Errorf("reading the tree: %w", err)
	}
	for i, n := range list {
		wanted[n] = hashes[i]
	}
	err = prove(tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, n := range indexes {
			out[i] = wanted[n]
		}
		return out, nil
	}))
	return proofs, err
}

// CheckInclusion checks a proof that the record with this hash is leaf seq-1 of
// the tree with this size and root.
func CheckInclusion(p tlog.RecordProof, size int64, root tlog.Hash, seq uint64, recordHash [32]byte) bool {
	return seq > 0 && seq <= MaxSeq && int64(seq) <= size &&
		tlog.CheckRecord(p, size, root, int64(seq)-1, LeafHash(recordHash)) == nil
}

// ConsistencyProof proves that the tree of size older is a prefix of the tree of size newer.
func ConsistencyProof(r tlog.HashReader, older, newer int64) (tlog.TreeProof, error) {
	if older < 1 || newer < older {
		return nil, fmt.Errorf("%w: no proof from size %d to %d", ErrTree, older, newer)
	}
	return tlog.ProveTree(newer, older, r)
}

// CheckConsistency checks that the newer checkpoint's tree extends the older one's. Every
// tree extends the empty one.
func CheckConsistency(p tlog.TreeProof, older, newer Checkpoint) bool {
	switch {
	case older.Shard != newer.Shard || older.Size > newer.Size:
		return false
	case older.Size == 0:
		return older.Root == (&Tree{}).Root()
	}
	return tlog.CheckTree(p, newer.Size, newer.Root, older.Size, older.Root) == nil
}
