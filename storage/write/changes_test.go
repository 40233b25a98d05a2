package write

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
)

// keyRow is the record of a new key, which the view changes has a row of.
func keyRow(t *testing.T, shard string, seq uint64) storage.EvidenceRow {
	t.Helper()
	r := storagetest.RecordRow(t, shard, seq, storage.KindControl, events.KeyRecord{KeyID: "k1", Use: "receipt"})
	r.Tenant, r.Session, r.SessionIndex, r.Subject = "", "", nil, "gov.control.GOV.key"
	return r
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
