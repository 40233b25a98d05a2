package storagetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/storage"
)

// Tree is the Merkle log over rows: every hash at its tlog index.
func Tree(t *testing.T, rows []storage.EvidenceRow) (all []storage.TreeNode) {
	t.Helper()
	stored := tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, i := range indexes {
			list = append(list, all[i].Hash)
		}
		return list, nil
	})
	for i, r := range rows {
		hashes, err := tlog.StoredHashes(int64(i), r.RecordHash[:], stored)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hashes {
			all = append(all, storage.TreeNode{Index: uint64(len(all)), Hash: h})
		}
	}
	return all
}

// StoreTree stores rows and their tree, as the auditor does: the tree first.
func StoreTree(t *testing.T, w Writer, shard string, rows []storage.EvidenceRow, all []storage.TreeNode) {
	t.Helper()
	if err := w.InsertTreeNodes(t.Context(), shard, all); err != nil {
		t.Fatal(err)
	}
	if err := w.InsertEvidence(t.Context(), fmt.Sprintf("%s/%d", shard, rows[0].Seq), rows); err != nil {
		t.Fatal(err)
	}
}

// Indexes lists the indexes of nodes.
func Indexes(nodes []storage.TreeNode) (list []uint64) {
	for _, n := range nodes {
		list = append(list, n.Index)
	}
	return list
}

// WantNodes checks that every hash can be had.
func WantNodes(t *testing.T, r interface {
	TreeNodes(context.Context, string, []uint64) ([][32]byte, error)
}, shard string, want []storage.TreeNode) {
	t.Helper()
	got, err := r.TreeNodes(t.Context(), shard, Indexes(want))
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d hashes of %d (%v)", len(got), len(want), err)
	}
	for i, n := range want {
		if got[i] != n.Hash {
			level, at := tlog.SplitStoredHashIndex(int64(n.Index))
			t.Fatalf("hash %d of level %d is another one", at, level)
		}
	}
}

// WantConflict checks that err is a conflict at a sequence; 0 stands for no error.
func WantConflict(t testing.TB, err error, seq uint64) {
	t.Helper()
	var conflict *storage.ConflictError
	switch {
	case seq == 0 && err != nil:
		t.Errorf("unexpected error: %v", err)
	case seq != 0 && !errors.As(err, &conflict):
		t.Errorf("error %v, want a conflict", err)
	case seq != 0 && conflict.Seq != seq:
		t.Errorf("the conflict is at %d, want %d: %v", conflict.Seq, seq, err)
	}
}
