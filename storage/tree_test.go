package storage

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"
)

// treeOf is the Merkle log over rows: every hash at its tlog index.
func treeOf(t *testing.T, rows []EvidenceRow) (all []TreeNode) {
	t.Helper()
	read := tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, i := range indexes {
			list = append(list, all[i].Hash)
		}
		return list, nil
	})
	for i, r := range rows {
		hashes, err := tlog.StoredHashes(int64(i), r.RecordHash[:], read)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hashes {
			all = append(all, TreeNode{uint64(len(all)), h})
		}
	}
	return all
}

// storeTree stores rows and their tree, as the auditor does: the tree first.
func storeTree(t *testing.T, db *DB, shard string, rows []EvidenceRow, all []TreeNode) {
	t.Helper()
	if err := db.InsertTreeNodes(t.Context(), shard, all); err != nil {
		t.Fatal(err)
	}
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, rows[0].Seq), rows); err != nil {
		t.Fatal(err)
	}
}

func indexes(nodes []TreeNode) (list []uint64) {
	for _, n := range nodes {
		list = append(list, n.Index)
	}
	return list
}

// wantNodes checks that every hash can be had.
func wantNodes(t *testing.T, db *DB, shard string, want []TreeNode) {
	t.Helper()
	got, err := db.TreeNodes(t.Context(), shard, indexes(want))
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

func TestTreeNodes(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := rowsOf(shard, 1, 2300)
	all := treeOf(t, rows)
	for _, part := range [][]TreeNode{all[:1500], all[1000:], nil} { // a restarted writer stores some again
		if err := db.InsertTreeNodes(t.Context(), shard, part); err != nil {
			t.Fatal(err)
		}
	}
	for part := range slices.Chunk(rows, 600) {
		if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, part[0].Seq), part); err != nil {
			t.Fatal(err)
		}
	}
	if n := rowsIn(t, db, "tree_hashes", shard); n != 9 { // 2300/256, one of them twice
		t.Errorf("%d hashes are stored of %d", n, len(all))
	}
	if n := rowsIn(t, db, "tree_nodes", shard); n != 0 {
		t.Errorf("%d hashes are stored as before", n)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	mixed := append(slices.Clone(all), all[50], all[0], all[50])
	rng.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	wantNodes(t, db, shard, mixed)
	wantNodes(t, db, shard, nil)
	for range 50 {
		wantNodes(t, db, shard, mixed[rng.IntN(len(mixed)):][:1])
	}
	for _, idx := range [][]uint64{{0, uint64(len(all)) + 40}, {uint64(tlog.StoredHashIndex(8, 9))}, {uint64(tlog.StoredHashIndex(13, 0))}} {
		if _, err := db.TreeNodes(t.Context(), shard, idx); !errors.Is(err, ErrNotFound) {
			t.Errorf("one that is not there, %d: %v", idx, err)
		}
	}
}

// Level 16 takes millions of records to fill a tile of, so its hashes are made up.
func TestHighTiles(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	var nodes []TreeNode
	for n := range int64(600) {
		nodes = append(nodes, TreeNode{uint64(tlog.StoredHashIndex(16, n)), [32]byte{1, byte(n), byte(n >> 8)}})
	}
	nodes = append(nodes, TreeNode{uint64(tlog.StoredHashIndex(24, 2)), [32]byte{2}})
	if err := db.InsertTreeNodes(t.Context(), shard, nodes); err != nil {
		t.Fatal(err)
	}
	pair := tlog.NodeHash(nodes[258].Hash, nodes[259].Hash)
	wantNodes(t, db, shard, append(nodes, TreeNode{uint64(tlog.StoredHashIndex(17, 129)), pair}))
}

// beforeTiles stores hashes as versions before did: every fourth level, by index.
func beforeTiles(t *testing.T, db *DB, shard string, all []TreeNode) {
	t.Helper()
	shards, idx, hash := []string{}, []uint64{}, []string{}
	for _, n := range all {
		if level, _ := tlog.SplitStoredHashIndex(int64(n.Index)); level > 0 && level%4 == 0 {
			shards, idx, hash = append(shards, shard), append(idx, n.Index), append(hash, string(n.Hash[:]))
		}
	}
	if err := db.insertColumns(t.Context(), "INSERT INTO tree_nodes (shard, idx, hash)", randomToken(), shards, idx, hash); err != nil {
		t.Fatal(err)
	}
}

// A shard that an earlier version began and this one goes on with: the migration
// copies what is needed, and what an earlier auditor stored after it is found too.
func TestTreeOfBefore(t *testing.T) {
	db := openDB(t, startEngine(t, t.TempDir(), 0).DSN())
	if err := db.migrateTo(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	shard := testShard(t)
	rows := rowsOf(shard, 1, 3000)
	all := treeOf(t, rows)
	parts := [][]TreeNode{all[:2500], all[2500:4000], all[4000:]}
	beforeTiles(t, db, shard, parts[0])
	for range 2 {
		if err := db.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := rowsIn(t, db, "tree_hashes", shard); n != 4 {
		t.Errorf("%d hashes were copied, want those of level 8: 4", n)
	}
	beforeTiles(t, db, shard, parts[1])
	storeTree(t, db, shard, rows, parts[2])
	wantNodes(t, db, shard, all)
}

func TestTwoHashesAtOnePlace(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := rowsOf(shard, 1, 40)
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), rows); err != nil {
		t.Fatal(err)
	}
	stored := uint64(tlog.StoredHashIndex(8, 0))
	for _, b := range []byte{1, 2} {
		if err := db.InsertTreeNodes(t.Context(), shard, []TreeNode{{stored, [32]byte{b}}}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := db.TreeNodes(t.Context(), shard, []uint64{stored})
	wantConflict(t, err, stored)
	forged := rows[2:3]
	forged[0].RecordHash[7] = 9
	if err := db.InsertEvidence(t.Context(), shard+" forger", forged); err != nil {
		t.Fatal(err)
	}
	if _, err = db.TreeNodes(t.Context(), shard, []uint64{2}); err != nil { // made of the leaves 0 and 1
		t.Error(err)
	}
	_, err = db.TreeNodes(t.Context(), shard, []uint64{uint64(tlog.StoredHashIndex(1, 1))})
	wantConflict(t, err, 3)
}

// The short way and the way through clickhouse-go give the same.
func TestTreeBothWays(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := rowsOf(shard, 1, 1000)
	all := treeOf(t, rows)
	storeTree(t, db, shard, rows, all)
	far := openDB(t, shared.engine.DSN())
	far.options.Addr = append(slices.Clone(far.options.Addr), "192.0.2.1:9000") // not this machine alone
	near, err := db.TreeNodes(t.Context(), shard, indexes(all))
	if err != nil {
		t.Fatal(err)
	}
	got, err := far.TreeNodes(t.Context(), shard, indexes(all))
	if d := cmp.Diff(near, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if len(far.idle.list) != 0 || len(db.idle.list) == 0 {
		t.Error("one of them did not take its way")
	}
}

// A tenant's auditor has views instead of tables, and can prove what is theirs.
func TestTreeThroughViews(t *testing.T) {
	e, dsn := twoTenants(t)
	owner, auditor := openDB(t, e.DSN()), openDB(t, dsn)
	tree := []TreeNode{{Index: uint64(tlog.StoredHashIndex(3, 0))}, {Index: 0}, {Index: uint64(tlog.StoredHashIndex(8, 0))}}
	want, err := owner.TreeNodes(t.Context(), "S", indexes(tree))
	if err != nil {
		t.Fatal(err)
	}
	got, err := auditor.TreeNodes(t.Context(), "S", indexes(tree))
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if !auditor.hasViews.Load() || owner.hasViews.Load() {
		t.Error("the auditor has tables, or the owner views")
	}
}

// A kept connection that has ended is not noticed; a call that is given up is.
func TestKeptConnections(t *testing.T) {
	sharedDB(t)
	db, shard := openDB(t, shared.engine.DSN()), testShard(t)
	rows := rowsOf(shard, 1, 300)
	all := treeOf(t, rows)
	storeTree(t, db, shard, rows, all)
	wantNodes(t, db, shard, all)
	for _, c := range db.idle.list {
		_ = c.Conn.Close()
	}
	wantNodes(t, db, shard, all)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.TreeNodes(given, shard, []uint64{0}); !errors.Is(err, context.Canceled) {
		t.Errorf("given up before: %v", err)
	}
	slow, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := db.queryNative(slow, "SELECT sleep(3)", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up meanwhile: %v", err)
	}
	wantNodes(t, db, shard, all)
	if err := db.queryNative(t.Context(), "SELECT 1 FROM no_such_table", nil, nil); err == nil || errors.Is(err, errNative) {
		t.Errorf("a table that is not there: %v", err)
	}
	wantNodes(t, db, shard, all)
	if err := db.Close(); err != nil || len(db.idle.list) != 0 {
		t.Errorf("closing: %v, %d kept", err, len(db.idle.list))
	}
}
