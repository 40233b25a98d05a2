package write

import (
	"fmt"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
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

// A cut that ends after any of its statements leaves the evidence where it was, and the same cut
// completes it: the writer can then make all rows again.
func TestACutThatWasInterrupted(t *testing.T) {
	t.Parallel()
	db := freshWriter(t)
	all := 3 * len(partsAfter("", 0))
	for _, done := range []int{2, all - 1} {
		shard := fmt.Sprintf("%s.%d", storagetest.Shard(t), done)
		rows := storagetest.OneOfEach(t, shard, 1)
		if err := db.CommitEvidence(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		var statements []string
		for _, p := range partsAfter(shard, 0) {
			statements = append(statements, p.deletion()...)
		}
		for _, s := range statements[:done] {
			if err := db.pool.Exec(longQuery(t.Context(), clickhouse.Settings{"mutations_sync": 2}), s); err != nil {
				t.Fatal(err)
			}
		}
		if n := storagetest.RowsIn(t, db.pool, "evidence", shard); n != uint64(len(rows)) {
			t.Fatalf("after %d statements evidence has %d rows of %d: the command would find nothing to cut", done, n, len(rows))
		}
		if err := db.DeleteAfter(t.Context(), shard, 0); err != nil {
			t.Fatal(err)
		}
		if err := db.CommitEvidence(t.Context(), rows); err != nil {
			t.Fatalf("after %d statements and a whole cut: %v", done, err)
		}
		storagetest.WantRows(t, db.pool, shard, storagetest.OneEach)
	}
}
