package write

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
)

func TestSameTokenIsStoredOnceEverywhere(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.OneOfEach(t, shard, 1)
	for range 3 {
		if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), rows); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.WantRows(t, db.pool, shard, storagetest.OneEach)
	if err := db.InsertEvidence(t.Context(), shard+" another token", rows); err != nil {
		t.Fatal(err)
	}
	if got := storagetest.RowsIn(t, db.pool, "evidence", shard); got != 10 {
		t.Errorf("with another token the table has %d rows, want 10: the token is what de-duplicates", got)
	}
}

func TestConfirm(t *testing.T) {
	db := New(enginetest.Pool(t))
	other := func(rows []storage.EvidenceRow) []storage.EvidenceRow { rows[1].RecordHash[5] = 9; return rows }
	for _, c := range []struct {
		name     string
		stored   func(shard string) []storage.EvidenceRow
		first    uint64
		last     uint64
		landed   bool
		conflict uint64 // the sequence named, 0 for no conflict
	}{
		{"all there", func(s string) []storage.EvidenceRow { return storagetest.Rows(s, 1, 5) }, 2, 4, true, 0},
		{"none there", func(s string) []storage.EvidenceRow { return storagetest.Rows(s, 1, 1) }, 2, 4, false, 0},
		{"the first one missing", func(s string) []storage.EvidenceRow { return storagetest.Rows(s, 3, 4) }, 2, 4, false, 2},
		{"the last one missing", func(s string) []storage.EvidenceRow { return storagetest.Rows(s, 2, 3) }, 2, 4, false, 4},
		{"one in the middle missing", func(s string) []storage.EvidenceRow {
			return append(storagetest.Rows(s, 2, 2), storagetest.Rows(s, 4, 4)...)
		}, 2, 4, false, 3},
		{"another hash", func(s string) []storage.EvidenceRow { return other(storagetest.Rows(s, 2, 4)) }, 2, 4, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			shard := storagetest.Shard(t)
			if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), c.stored(shard)); err != nil {
				t.Fatal(err)
			}
			landed, err := db.VerifyStored(t.Context(), shard, c.first, c.last, storagetest.Rows(shard, c.first, c.last))
			storagetest.WantConflict(t, err, c.conflict)
			if landed != c.landed {
				t.Errorf("landed = %v, want %v", landed, c.landed)
			}
		})
	}
}

func TestSecondWriterIsFound(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	mine, theirs := storagetest.Rows(shard, 1, 4), storagetest.Rows(shard, 1, 4)
	theirs[2].RecordHash[9] = 7
	if err := db.CommitEvidence(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	// The token keeps the rows out without an error; only reading back shows it.
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), mine); err != nil {
		t.Fatal(err)
	}
	storagetest.WantConflict(t, db.CommitEvidence(t.Context(), mine), 3)
	if n := storagetest.RowsIn(t, db.pool, "evidence", shard); n != 4 {
		t.Errorf("there are %d rows, want 4", n)
	}
	// A writer with tokens of its own doubles a sequence: found as well.
	if err := db.InsertEvidence(t.Context(), shard+" rogue", mine[1:2]); err != nil {
		t.Fatal(err)
	}
	_, err := db.VerifyStored(t.Context(), shard, 1, 4, theirs)
	storagetest.WantConflict(t, err, 2)
}

func TestAcknowledgedAndAbsentIsAConflict(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 5), storagetest.Rows(shard, 1, 2)); err != nil {
		t.Fatal(err)
	}
	storagetest.WantConflict(t, db.CommitEvidence(t.Context(), storagetest.Rows(shard, 5, 6)), 5)
}

func TestBatchRules(t *testing.T) {
	db := New(enginetest.Pool(t))
	change := func(f func([]storage.EvidenceRow)) []storage.EvidenceRow {
		rows := storagetest.Rows("S", 1, 3)
		f(rows)
		return rows
	}
	for name, rows := range map[string][]storage.EvidenceRow{
		"has 0 rows":             nil,
		"has no shard":           change(func(r []storage.EvidenceRow) { r[0].Shard = "" }),
		"is of shard T":          change(func(r []storage.EvidenceRow) { r[1].Shard = "T" }),
		"sequences start at 1":   change(func(r []storage.EvidenceRow) { r[0].Seq = 0 }),
		"has seq 2 after 2":      change(func(r []storage.EvidenceRow) { r[2].Seq = 2 }),
		"kind is none":           change(func(r []storage.EvidenceRow) { r[2].Kind = "Decision" }),
		"broker time is missing": change(func(r []storage.EvidenceRow) { r[2].BrokerTime = time.Time{} }),
		"out of range":           change(func(r []storage.EvidenceRow) { r[2].BrokerTime = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"no record hash":         change(func(r []storage.EvidenceRow) { r[2].RecordHash = [32]byte{} }),
		"bytes of records":       change(func(r []storage.EvidenceRow) { r[1].Record = strings.Repeat("x", MaxBatchBytes) }),
	} {
		err := db.InsertEvidence(t.Context(), "token", rows)
		if !errors.Is(err, ErrBatch) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := db.InsertEvidence(t.Context(), "", storagetest.Rows("S", 1, 1)); !errors.Is(err, ErrBatch) {
		t.Errorf("without a token: error %v", err)
	}
}

func TestCommitGivesUp(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.OneOfEach(t, shard, 1)
	rows[0].BodyDigest = "CUT-HERE"
	cut := through(t, startProxy(t, sharedAddress(t), "CUT-HERE", true, 1000))
	if err := cut.CommitEvidence(t.Context(), rows); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("error %v, want ErrAmbiguous", err)
	}
	if landed, err := db.VerifyStored(t.Context(), shard, 1, 5, rows); landed || err != nil {
		t.Errorf("landed = %v (%v)", landed, err)
	}
}

// A batch with megabytes of text is stored as it is.
func TestLargeBatch(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.Rows(shard, 1, 40)
	for i := range rows {
		rows[i].Record = strings.Repeat(string(rune('a'+i%26)), 40<<10+i)
	}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := read.New(db.pool).Scan(t.Context(), shard, 0, storage.AllSequences, func(r storage.EvidenceRow) error {
		if r.Record != rows[n].Record || r.Subject != rows[n].Subject {
			t.Errorf("row %d is another", n)
		}
		n++
		return nil
	}); err != nil || n != len(rows) {
		t.Errorf("%d rows (%v)", n, err)
	}
}
