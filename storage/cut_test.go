package storage

import (
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// What is behind the sequence goes, the hashes of the tree over it among them: the
// writer makes other records there, and their hashes must not meet the first ones.
func TestCutBehind(t *testing.T) {
	db := freshDB(t)
	shard := testShard(t)
	rows := rowsOf(shard, 1, 600)
	storeTree(t, db, shard, rows, treeOf(t, rows))
	if err := db.DeleteAfter(t.Context(), shard, 400); err != nil {
		t.Fatal(err)
	}
	if n := rowsIn(t, db, "evidence", shard); n != 400 {
		t.Errorf("%d rows are left, want 400", n)
	}
	if n := rowsIn(t, db, "tree_hashes", shard); n != 1 {
		t.Errorf("%d hashes of level 8 are left, want the one of the first 256 records", n)
	}
	for i := 400; i < len(rows); i++ {
		rows[i].RecordHash[0]++
	}
	all := treeOf(t, rows)
	if err := db.InsertTreeNodes(t.Context(), shard, all[tlog.StoredHashCount(400):]); err != nil {
		t.Fatal(err)
	}
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 401), rows[400:]); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, db, shard, all)
}
