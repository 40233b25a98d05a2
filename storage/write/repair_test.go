package write

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/schema"
)

func TestRepair(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	if err := db.CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 1)); err != nil {
		t.Fatal(err)
	}
	for _, table := range schema.DerivedTables {
		if err := db.pool.Exec(t.Context(), "ALTER TABLE "+table.Name+" DELETE WHERE shard = {s:String} AND seq < 4 SETTINGS mutations_sync = 2", conn.Param("s", shard)); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.WantRows(t, db.pool, shard, map[string]uint64{"evidence_chain": 2, "decisions": 0, "calls": 0, "findings": 1, "approvals": 1})
	for i, want := range []uint64{5, 0} {
		added, err := db.Repair(t.Context(), shard)
		if err != nil || added != want {
			t.Errorf("repair %d added %d (%v), want %d", i, added, err, want)
		}
	}
	storagetest.WantRows(t, db.pool, shard, storagetest.OneEach)
}

// A writer can die when only some of the tables have its batch; its successor
// goes on behind it.
func TestSuccessorRepairsHalfAnInsert(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, t.TempDir(), 0)
	db, shard := New(enginetest.Open(t, e.DSN())), ""
	if err := schema.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) {
		if err := db.pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE trap (seq UInt64) ENGINE = MergeTree ORDER BY seq")
	// The server fills views in the order of ids that it draws for them: a trap that
	// comes behind the decisions is set again, on another shard.
	for try := 0; ; try++ {
		shard = fmt.Sprintf("%s-%d", storagetest.Shard(t), try)
		exec("CREATE MATERIALIZED VIEW trap_mv TO trap AS SELECT seq + throwIf(kind = 'decision') AS seq FROM evidence")
		if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), storagetest.OneOfEach(t, shard, 1)); !errors.Is(err, ErrAmbiguous) {
			t.Fatalf("error %v, want ErrAmbiguous", err)
		}
		exec("DROP VIEW trap_mv")
		if storagetest.RowsIn(t, db.pool, "evidence", shard) != 5 {
			t.Fatal("the trap came before the evidence")
		}
		if storagetest.RowsIn(t, db.pool, "decisions", shard) == 0 {
			break
		}
		if try == 50 {
			t.Fatal("the trap never stopped an insert half-way")
		}
	}
	next := New(enginetest.Open(t, e.DSN()))
	for seq := uint64(6); seq <= 7; seq++ {
		if err := next.CommitEvidence(t.Context(), []storage.EvidenceRow{storagetest.Row(shard, seq)}); err != nil {
			t.Fatal(err)
		}
	}
	storagetest.WantRows(t, db.pool, shard, map[string]uint64{"evidence": 7, "evidence_chain": 7, "decisions": 1, "calls": 1, "findings": 1, "approvals": 1})
}

// A server that is started anew may have lost what its derived tables had: they are
// compared with the evidence again, also if nothing was under way.
func TestCommitRepairsAfterARestart(t *testing.T) {
	dir := t.TempDir()
	e := enginetest.Start(t, dir, 0)
	db, shard := New(enginetest.Open(t, e.DSN())), storagetest.Shard(t)
	if err := schema.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq < 11; seq += 5 { // the second one goes smoothly
		if err := db.CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, seq)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.pool.Exec(t.Context(), "ALTER TABLE record_fields DELETE WHERE kind = 'decision' AND seq < 10 SETTINGS mutations_sync = 2"); err != nil {
		t.Fatal(err)
	}
	commit := func(seq, want uint64) {
		t.Helper()
		if err := db.CommitEvidence(t.Context(), []storage.EvidenceRow{storagetest.Row(shard, seq)}); err != nil {
			t.Fatal(err)
		}
		if n := storagetest.RowsIn(t, db.pool, "decisions", shard); n != want {
			t.Errorf("%d decisions, want %d", n, want)
		}
	}
	commit(11, 0)
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // a server tells its start by seconds
	enginetest.Start(t, dir, enginetest.Port(t, e.DSN()))
	commit(12, 2)
}

// sleepLong permits slowView to sleep.
const sleepLong = "?function_sleep_max_microseconds_per_block=300000000"

// slowView makes a view that keeps inserts into evidence of a pool with sleepLong busy after
// evidence has its rows and before the derived tables have theirs.
func slowView(t *testing.T, db *Writer) (drop func()) {
	t.Helper()
	exec := func(statement string) {
		if err := db.pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE slow (seq UInt64) ENGINE = MergeTree ORDER BY seq")
	exec("CREATE MATERIALIZED VIEW a_slow_mv TO slow AS SELECT seq + sleepEachRow(20) AS seq FROM evidence")
	return func() { exec("DROP VIEW a_slow_mv") }
}

// What Repair adds for an insert that was ended half-way has no token. The writer
// of that insert may try it again afterwards: another one, that took over in
// between, has repaired the tables.
func TestRepairedInsertTriedAgain(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, t.TempDir(), 0)
	db, shard := New(enginetest.Open(t, e.DSN()+sleepLong)), storagetest.Shard(t)
	if err := schema.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	drop := slowView(t, db)
	rows := storagetest.OneOfEach(t, shard, 1)
	var insert sync.WaitGroup
	var err error
	insert.Go(func() { err = db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), rows) })
	for storagetest.RowsIn(t, db.pool, "evidence", shard) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("evidence never had the rows")
		}
	}
	// Some view may have had its rows in the moment in which the insert was ended, not all of them.
	if n, err := New(enginetest.Open(t, e.DSN())).Repair(t.Context(), shard); err != nil || n == 0 {
		t.Fatalf("repair added %d rows (%v), want some", n, err)
	}
	insert.Wait()
	if !errors.Is(err, ErrAmbiguous) {
		t.Fatalf("error %v, want ErrAmbiguous", err)
	}
	drop()
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	storagetest.WantRows(t, db.pool, shard, storagetest.OneEach)
	if n := storagetest.Count(t, db.pool, "SELECT count() FROM system.mutations WHERE database = currentDatabase() AND command ILIKE '%DELETE%'"); n != 0 {
		t.Error("rows were written twice and had to be taken out")
	}
}

// Rows that are there twice, or that evidence lacks, go.
func TestRepairTakesOut(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	if err := db.CommitEvidence(t.Context(), append(storagetest.OneOfEach(t, shard, 1), storagetest.OneOfEach(t, shard, 6)...)); err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) {
		if err := db.pool.Exec(t.Context(), statement, conn.Param("s", shard)); err != nil {
			t.Fatal(statement, err)
		}
	}
	for _, table := range schema.DerivedTables {
		exec("INSERT INTO " + table.Name + " SELECT * FROM " + table.Name + " WHERE shard = {s:String} AND seq < 6")
	}
	exec("INSERT INTO evidence_chain (tenant, session, shard, seq) VALUES ('acme', 's1', {s:String}, 11)")
	exec("INSERT INTO record_fields (tenant, session, shard, seq, kind, form) VALUES ('acme', 's1', {s:String}, 1, 'decision', 1)") // no decision
	if _, err := db.Repair(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	two := map[string]uint64{}
	for table, n := range storagetest.OneEach {
		two[table] = 2 * n
	}
	storagetest.WantRows(t, db.pool, shard, two)
	if n := storagetest.Count(t, db.pool, "SELECT count() FROM decisions WHERE shard = {s:String} AND decision_id = 'd1'", conn.Param("s", shard)); n != 2 {
		t.Errorf("%d decisions, want 2", n)
	}
	if added, err := db.Repair(t.Context(), shard); added != 0 || err != nil {
		t.Errorf("once more: added %d (%v)", added, err)
	}
}

// An engine goes on with the insert of a client that is gone. Were it still at it
// while Repair looks, rows would be added twice.
func TestRepairEndsUnfinishedInserts(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, t.TempDir(), 0)
	db, shard := New(enginetest.Open(t, e.DSN()+sleepLong)), storagetest.Shard(t)
	if err := schema.Migrate(t.Context(), db.pool); err != nil {
		t.Fatal(err)
	}
	drop := slowView(t, db)
	rows := storagetest.OneOfEach(t, shard, 1)
	var insert sync.WaitGroup
	var err error
	insert.Go(func() { err = db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), rows) })
	running := "SELECT count() FROM system.processes WHERE startsWith(query_id, {p:String})"
	for storagetest.Count(t, db.pool, running, conn.Param("p", evidenceQueries(shard))) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the insert never ran")
		}
	}
	if _, err := db.Repair(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	if n := storagetest.Count(t, db.pool, running, conn.Param("p", evidenceQueries(shard))); n != 0 {
		t.Error("the insert is still under way")
	}
	insert.Wait()
	if err == nil { // ErrAmbiguous, unless it was ended before its rows were sent
		t.Error("the insert was not ended")
	}
	drop()
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	storagetest.WantRows(t, db.pool, shard, storagetest.OneEach)
}

// A later version of a view writes a higher number into the column form. Rows with a
// lower one, which have less in them, are made anew, and only those.
func TestRowsOfAnEarlierViewAreMadeAnew(t *testing.T) {
	t.Parallel()
	db := freshWriter(t)
	shard := storagetest.Shard(t)
	rows := []storage.EvidenceRow{storagetest.RecordRow(t, shard, 1, storage.KindDecision, storagetest.FullDecision), storagetest.RecordRow(t, shard, 2, storage.KindFinding, storagetest.FullFinding),
		storagetest.RecordRow(t, shard, 3, storage.KindApproval, storagetest.FullApproval), storagetest.RecordRow(t, shard, 4, storage.KindCall, storagetest.FullCall)}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE TABLE before AS record_fields",
		"INSERT INTO before (tenant, session, shard, seq, broker_time, kind, form) SELECT tenant, session, shard, seq, broker_time, kind, form - 1 FROM record_fields",
		"EXCHANGE TABLES before AND record_fields",
		"DROP TABLE before",
	} {
		if err := db.pool.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for i, want := range []uint64{4, 0} {
		if added, err := db.Repair(t.Context(), shard); err != nil || added != want {
			t.Errorf("repair %d made %d rows anew (%v), want %d", i, added, err, want)
		}
	}
	storagetest.WantRows(t, db.pool, shard, map[string]uint64{"evidence_chain": 4, "decisions": 1, "calls": 1, "findings": 1, "approvals": 1})
	if n := storagetest.Count(t, db.pool, "SELECT count() FROM decisions WHERE canonical_tool = 'shell.run' AND length(`counts.key`) = 2"); n != 1 {
		t.Errorf("%d decisions have what the new form has", n)
	}
	if n := storagetest.Count(t, db.pool, "SELECT count() FROM calls WHERE retried_from != '' AND binding != ''"); n != 1 {
		t.Errorf("%d calls have what the new form has", n)
	}
}

// Rows that were changed by hand, and that a start does not notice, are made anew
// from the texts; those that are right stay.
func TestRepairContents(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.OneOfEach(t, shard, 1)
	for i := range rows { // the texts here have no index
		rows[i].SessionIndex = nil
	}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for i, statement := range []string{
		"ALTER TABLE record_fields UPDATE fields = " + storagetest.WithMember("verdict", "allow") + " WHERE kind = 'decision'",
		"ALTER TABLE record_fields UPDATE topic = 'low' WHERE kind = 'finding'", "ALTER TABLE record_fields DELETE WHERE kind = 'call'", "",
		"ALTER TABLE evidence UPDATE session_index = 7, expiry = 1 WHERE true", "",
	} {
		if statement != "" {
			if err := db.pool.Exec(t.Context(), statement+" AND shard = {s:String} SETTINGS mutations_sync = 2", conn.Param("s", shard)); err != nil {
				t.Fatal(err)
			}
		}
		changed, err := db.RepairContents(t.Context(), shard, 5)
		want := uint64(min(1, len(statement)))
		if strings.Contains(statement, "evidence") {
			want = uint64(len(rows))
		}
		if err != nil || changed != want {
			t.Errorf("%d: %d rows were made anew (%v), want %d", i, changed, err, want)
		}
		storagetest.WantRows(t, db.pool, shard, storagetest.OneEach)
	}
	if n := storagetest.Count(t, db.pool, "SELECT count() FROM decisions WHERE shard = {s:String} AND decision_id = 'd1' AND verdict = 'deny'", conn.Param("s", shard)); n != 1 {
		t.Errorf("%d decisions say deny", n)
	}
}
