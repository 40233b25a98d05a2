package write

import (
	"testing"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
)

// A small insert makes no skip indexes. The merge of such parts does, and a large insert too.
func TestMergesMakeTheSkipIndexes(t *testing.T) {
	t.Parallel()
	db := freshWriter(t)
	exec := func(statement string) {
		t.Helper()
		if err := db.pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	indexBytes := func() uint64 {
		return storagetest.Count(t, db.pool, "SELECT sum(secondary_indices_marks_bytes) FROM system.parts WHERE database = currentDatabase() AND table = 'record_fields' AND active")
	}
	exec("SYSTEM STOP MERGES record_fields")
	for seq := uint64(1); seq < 12; seq += 5 {
		if err := db.InsertEvidence(t.Context(), EvidenceToken("S", seq), storagetest.OneOfEach(t, "S", seq)); err != nil {
			t.Fatal(err)
		}
	}
	if n := indexBytes(); n != 0 {
		t.Errorf("inserts of five rows have skip indexes of %d bytes", n)
	}
	exec("SYSTEM START MERGES record_fields")
	exec("OPTIMIZE TABLE record_fields FINAL")
	if indexBytes() == 0 {
		t.Error("the merged part has no skip indexes")
	}
	large := make([]storage.EvidenceRow, indexedRows)
	for i := range large {
		large[i] = storagetest.RecordRow(t, "L", uint64(i+1), storage.KindCall, storagetest.FullCall)
	}
	before := indexBytes()
	exec("SYSTEM STOP MERGES record_fields")
	if err := db.InsertEvidence(t.Context(), "L", large); err != nil {
		t.Fatal(err)
	}
	if indexBytes() == before {
		t.Error("the large insert has no skip indexes")
	}
}
