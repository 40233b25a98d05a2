package write

import (
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
)

// What is behind the sequence goes, the hashes of the tree over it among them: the
// writer makes other records there, and their hashes must not meet the first ones.
func TestCutBehind(t *testing.T) {
	t.Parallel()
	db := freshWriter(t)
	shard := storagetest.Shard(t)
	rows := storagetest.Rows(shard, 1, 600)
	storagetest.StoreTree(t, db, shard, rows, storagetest.Tree(t, rows))
	if err := db.DeleteAfter(t.Context(), shard, 400); err != nil {
		t.Fatal(err)
	}
	if n := storagetest.RowsIn(t, db.pool, "evidence", shard); n != 400 {
		t.Errorf("%d rows are left, want 400", n)
	}
	if n := storagetest.RowsIn(t, db.pool, "tree_hashes", shard); n != 1 {
		t.Errorf("%d hashes of level 8 are left, want the one of the first 256 records", n)
	}
	for i := 400; i < len(rows); i++ {
		rows[i].RecordHash[0]++
	}
	all := storagetest.Tree(t, rows)
	if err := db.InsertTreeNodes(t.Context(), shard, all[tlog.StoredHashCount(400):]); err != nil {
		t.Fatal(err)
	}
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 401), rows[400:]); err != nil {
		t.Fatal(err)
	}
	storagetest.WantNodes(t, read.New(db.pool), shard, all)
}
