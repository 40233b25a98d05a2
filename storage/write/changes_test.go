package write

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/schema"
)

// keyRow is the record of a new key, which the table changes has a row of.
func keyRow(t *testing.T, shard string, seq uint64) storage.EvidenceRow {
	t.Helper()
	r := storagetest.RecordRow(t, shard, seq, storage.KindControl, events.KeyRecord{KeyID: "k1", Use: "receipt"})
	r.Tenant, r.Session, r.SessionIndex, r.Subject = "", "", nil, "gov.control.GOV.key"
	return r
}

// The writer's condition is the one of the table, for every kind of record.
func TestChangesHasIsTheCondition(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	var rows []storage.EvidenceRow
	want := uint64(0)
	for _, kind := range storage.Kinds {
		for _, name := range []string{"key", "cursor", "tick", "cursor.key", "xcursor"} {
			r := storagetest.Row(shard, uint64(len(rows)+1))
			r.Kind, r.Subject = kind, "gov.control.GOV."+name
			if rows = append(rows, r); schema.ChangesHas(r) {
				want++
			}
		}
	}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	got := storagetest.Count(t, db.pool, "SELECT count() FROM evidence WHERE shard = {s:String} AND ("+schema.Changes.Condition+")", conn.Param("s", shard))
	if got != want || want != 3 {
		t.Errorf("the condition picks %d rows, the writer %d, want 3", got, want)
	}
	storagetest.WantRows(t, db.pool, shard, map[string]uint64{"changes": want})
}

// Each batch brings its changes, once, without a repair.
func TestEveryBatchBringsItsChanges(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	for seq := uint64(1); seq < 9; seq += 2 {
		if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, seq), []storage.EvidenceRow{keyRow(t, shard, seq), storagetest.Row(shard, seq+1)}); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.WantRows(t, db.pool, shard, map[string]uint64{"evidence": 8, "changes": 4})
	if added, err := db.Repair(t.Context(), shard); added != 0 || err != nil {
		t.Errorf("repair added %d (%v)", added, err)
	}
}

// A writer can be held up between its batch and the changes of it, while another one takes over and
// repairs the table. Whenever it goes on, every change is there once when the other one has stored a
// batch.
func TestHeldUpWriterDoublesNoChange(t *testing.T) {
	pool := enginetest.Pool(t)
	for name, goesOn := range map[string]string{"after the repair": "repair", "after the first batch": "batch"} {
		t.Run(name, func(t *testing.T) {
			shard := storagetest.Shard(t)
			heldUp, next := New(pool), New(pool)
			rows := []storage.EvidenceRow{keyRow(t, shard, 1), storagetest.Row(shard, 2)}
			if err := heldUp.insertColumns(t.Context(), insertEvidence, EvidenceToken(shard, 1), evidenceColumns(rows)...); err != nil {
				t.Fatal(err)
			}
			step := func(now string) {
				if now != goesOn {
					return
				}
				if err := heldUp.insertChanges(t.Context(), EvidenceToken(shard, 1), rows); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := next.Repair(t.Context(), shard); err != nil || n != 1 {
				t.Fatalf("repair added %d (%v), want 1", n, err)
			}
			step("repair")
			if err := next.CommitEvidence(t.Context(), []storage.EvidenceRow{storagetest.Row(shard, 3)}); err != nil {
				t.Fatal(err)
			}
			step("batch")
			storagetest.WantRows(t, pool, shard, map[string]uint64{"evidence": 3, "changes": 1})
		})
	}
}

// A change of a hold, an erasure and an expiry say what it is about, who ordered it and why.
func TestChangesOfWhatIsKept(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	row := func(seq uint64, kind string, body any) storage.EvidenceRow {
		r := storagetest.RecordRow(t, shard, seq, storage.KindControl, body)
		r.Tenant, r.Session, r.SessionIndex, r.Subject = "", "", nil, "gov.control.GOV."+kind
		return r
	}
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), []storage.EvidenceRow{
		row(1, events.ControlRetention, events.RetentionChange{Tenant: "acme", What: "release", ID: "h1", Session: "s1", By: "ann", Reason: "the case is over"}),
		row(2, events.ControlErasure, events.Erasure{ErasureID: "e1", Tenant: "acme", State: events.ErasureBegun, Sessions: []string{"s1"}, OrderedBy: "bob", Reason: "asked for"}),
		row(3, events.ControlExpiry, events.Expiry{ExpiryID: "x1", Tenant: "acme", State: events.ErasureDone, Policy: "acme@01"}),
	}); err != nil {
		t.Fatal(err)
	}
	got := storagetest.Count(t, db.pool, "SELECT countIf((seq, tenant, author, message, items.change, items.tenant, items.name) IN ("+
		"(1, 'acme', 'ann', 'the case is over', ['release'], ['acme'], ['h1 s1']), (2, 'acme', 'bob', 'asked for', ['begun'], ['acme'], ['e1']), "+
		"(3, 'acme', '', '', ['done'], ['acme'], ['acme@01']))) FROM changes WHERE shard = {s:String}", conn.Param("s", shard))
	if got != 3 {
		t.Errorf("%d of 3 changes are as the records say", got)
	}
}

// Of two writers with the same batch only one stores it, and its changes.
func TestCompetitorDoublesNoChange(t *testing.T) {
	pool, shard := enginetest.Pool(t), storagetest.Shard(t)
	for range 2 {
		if err := New(pool).InsertEvidence(t.Context(), EvidenceToken(shard, 1), []storage.EvidenceRow{keyRow(t, shard, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.WantRows(t, pool, shard, map[string]uint64{"evidence": 1, "changes": 1})
}

// A copy has its changes when it is finished.
func TestCopyHasItsChanges(t *testing.T) {
	t.Parallel()
	db := freshWriter(t)
	for _, shard := range []string{"A", "B"} {
		if err := db.InsertCopy(t.Context(), []storage.EvidenceRow{keyRow(t, shard, 3), storagetest.Row(shard, 4)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.FinishCopy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, shard := range []string{"A", "B"} {
		storagetest.WantRows(t, db.pool, shard, map[string]uint64{"changes": 1})
	}
}
