package read

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

func TestTreeNodes(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.Rows(shard, 1, 2300)
	all := storagetest.Tree(t, rows)
	for _, part := range [][]storage.TreeNode{all[:1500], all[1000:], nil} { // a restarted writer stores some again
		if err := write.New(db.pool).InsertTreeNodes(t.Context(), shard, part); err != nil {
			t.Fatal(err)
		}
	}
	for part := range slices.Chunk(rows, 600) {
		if err := write.New(db.pool).InsertEvidence(t.Context(), write.EvidenceToken(shard, part[0].Seq), part); err != nil {
			t.Fatal(err)
		}
	}
	if n := storagetest.RowsIn(t, db.pool, "tree_hashes", shard); n != 9 { // 2300/256, one of them twice
		t.Errorf("%d hashes are stored of %d", n, len(all))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	mixed := append(slices.Clone(all), all[50], all[0], all[50])
	rng.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	storagetest.WantNodes(t, db, shard, mixed)
	storagetest.WantNodes(t, db, shard, nil)
	for range 50 {
		storagetest.WantNodes(t, db, shard, mixed[rng.IntN(len(mixed)):][:1])
	}
	for _, idx := range [][]uint64{{0, uint64(len(all)) + 40}, {uint64(tlog.StoredHashIndex(8, 9))}, {uint64(tlog.StoredHashIndex(13, 0))}} {
		if _, err := db.TreeNodes(t.Context(), shard, idx); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("one that is not there, %d: %v", idx, err)
		}
	}
}

// Level 16 takes millions of records to fill a tile of, so its hashes are made up.
func TestHighTiles(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	var nodes []storage.TreeNode
	for n := range int64(600) {
		nodes = append(nodes, storage.TreeNode{Index: uint64(tlog.StoredHashIndex(16, n)), Hash: [32]byte{1, byte(n), byte(n >> 8)}})
	}
	nodes = append(nodes, storage.TreeNode{Index: uint64(tlog.StoredHashIndex(24, 2)), Hash: [32]byte{2}})
	if err := write.New(db.pool).InsertTreeNodes(t.Context(), shard, nodes); err != nil {
		t.Fatal(err)
	}
	pair := tlog.NodeHash(nodes[258].Hash, nodes[259].Hash)
	storagetest.WantNodes(t, db, shard, append(nodes, storage.TreeNode{Index: uint64(tlog.StoredHashIndex(17, 129)), Hash: pair}))
}

// A writer that died before its records were stored can leave hashes that are not theirs.
func TestTwoHashesAtOnePlace(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.Rows(shard, 1, 520)
	if err := write.New(db.pool).InsertEvidence(t.Context(), write.EvidenceToken(shard, 1), rows); err != nil {
		t.Fatal(err)
	}
	nodes := storagetest.Tree(t, rows)
	stale := []storage.TreeNode{{Index: uint64(tlog.StoredHashIndex(8, 1)), Hash: [32]byte{1}}, {Index: uint64(tlog.StoredHashIndex(16, 0)), Hash: [32]byte{2}}}
	for _, list := range [][]storage.TreeNode{stale, nodes, {{Index: stale[1].Index, Hash: [32]byte{3}}}} {
		if err := write.New(db.pool).InsertTreeNodes(t.Context(), shard, list); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.WantNodes(t, db, shard, nodes)
	if _, err := db.TreeNodes(t.Context(), shard, []uint64{stale[1].Index}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a hash of more records than there are: %v", err)
	}
	forged := rows[2:3]
	forged[0].RecordHash[7] = 9
	if err := write.New(db.pool).InsertEvidence(t.Context(), shard+" forger", forged); err != nil {
		t.Fatal(err)
	}
	if _, err := db.TreeNodes(t.Context(), shard, []uint64{2}); err != nil { // made of the leaves 0 and 1
		t.Error(err)
	}
	_, err := db.TreeNodes(t.Context(), shard, []uint64{uint64(tlog.StoredHashIndex(1, 1))})
	storagetest.WantConflict(t, err, 3)
}

// A tenant's auditor has views instead of tables, and can prove what is theirs.
func TestTreeThroughViews(t *testing.T) {
	e, dsn := enginetest.WithAuditor(t)
	storagetest.TwoTenants(t, write.New(enginetest.Open(t, e.DSN())))
	owner, auditor := New(enginetest.Open(t, e.DSN())), New(enginetest.Open(t, dsn))
	tree := []storage.TreeNode{{Index: uint64(tlog.StoredHashIndex(3, 0))}, {Index: 0}, {Index: uint64(tlog.StoredHashIndex(8, 0))}}
	want, err := owner.TreeNodes(t.Context(), "S", storagetest.Indexes(tree))
	if err != nil {
		t.Fatal(err)
	}
	got, err := auditor.TreeNodes(t.Context(), "S", storagetest.Indexes(tree))
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if !auditor.hasViews.Load() || owner.hasViews.Load() {
		t.Error("the auditor has tables, or the owner views")
	}
}
