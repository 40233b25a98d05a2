package storage

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// oneOfEach is a batch with a row for every derived table, in session s1.
func oneOfEach(t testing.TB, shard string, first uint64) []EvidenceRow {
	return []EvidenceRow{
		row(shard, first),
		recordRow(t, shard, first+1, KindDecision, events.Decision{DecisionID: "d1", Tenant: "acme", ToolCallID: "tc1", Verdict: events.Deny}),
		recordRow(t, shard, first+2, KindCall, events.Call{CallID: "c1", Tenant: "acme", ToolCallID: "tc1", State: events.CallDenied}),
		recordRow(t, shard, first+3, KindFinding, events.Finding{FindingID: "f1", Rule: "executed_despite_deny", ToolCallID: "tc1"}),
		recordRow(t, shard, first+4, KindApproval, events.Approval{WorkflowID: "w1", Tenant: "acme", Status: "pending"}),
	}
}

// rowsIn counts the rows of a shard in a table.
func rowsIn(t testing.TB, db *DB, table, shard string) uint64 {
	t.Helper()
	return count(t, db, "SELECT count() FROM "+table+" WHERE shard = {s:String}", queryParam("s", shard))
}

func wantRows(t testing.TB, db *DB, shard string, want map[string]uint64) {
	t.Helper()
	for table, n := range want {
		if got := rowsIn(t, db, table, shard); got != n {
			t.Errorf("table %s has %d rows, want %d", table, got, n)
		}
	}
}

var oneEach = map[string]uint64{"evidence": 5, "evidence_chain": 5, "decisions": 1, "calls": 1, "findings": 1, "approvals": 1}

func TestSameTokenIsStoredOnceEverywhere(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := oneOfEach(t, shard, 1)
	for range 3 {
		if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), rows); err != nil {
			t.Fatal(err)
		}
	}
	wantRows(t, db, shard, oneEach)
	if err := db.InsertEvidence(t.Context(), shard+" another token", rows); err != nil {
		t.Fatal(err)
	}
	if got := rowsIn(t, db, "evidence", shard); got != 10 {
		t.Errorf("with another token the table has %d rows, want 10: the token is what de-duplicates", got)
	}
}

func TestConfirm(t *testing.T) {
	db := sharedDB(t)
	other := func(rows []EvidenceRow) []EvidenceRow { rows[1].RecordHash[5] = 9; return rows }
	for _, c := range []struct {
		name     string
		stored   func(shard string) []EvidenceRow
		first    uint64
		last     uint64
		landed   bool
		conflict uint64 // the sequence named, 0 for no conflict
	}{
		{"all there", func(s string) []EvidenceRow { return rowsOf(s, 1, 5) }, 2, 4, true, 0},
		{"none there", func(s string) []EvidenceRow { return rowsOf(s, 1, 1) }, 2, 4, false, 0},
		{"the first one missing", func(s string) []EvidenceRow { return rowsOf(s, 3, 4) }, 2, 4, false, 2},
		{"the last one missing", func(s string) []EvidenceRow { return rowsOf(s, 2, 3) }, 2, 4, false, 4},
		{"one in the middle missing", func(s string) []EvidenceRow { return append(rowsOf(s, 2, 2), rowsOf(s, 4, 4)...) }, 2, 4, false, 3},
		{"another hash", func(s string) []EvidenceRow { return other(rowsOf(s, 2, 4)) }, 2, 4, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			shard := testShard(t)
			if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), c.stored(shard)); err != nil {
				t.Fatal(err)
			}
			landed, err := db.VerifyStored(t.Context(), shard, c.first, c.last, rowsOf(shard, c.first, c.last))
			wantConflict(t, err, c.conflict)
			if landed != c.landed {
				t.Errorf("landed = %v, want %v", landed, c.landed)
			}
		})
	}
}

func wantConflict(t testing.TB, err error, seq uint64) {
	t.Helper()
	var conflict *ConflictError
	switch {
	case seq == 0 && err != nil:
		t.Errorf("unexpected error: %v", err)
	case seq != 0 && !errors.As(err, &conflict):
		t.Errorf("error %v, want a conflict", err)
	case seq != 0 && conflict.Seq != seq:
		t.Errorf("the conflict is at %d, want %d: %v", conflict.Seq, seq, err)
	}
}

func TestSecondWriterIsFound(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	mine, theirs := rowsOf(shard, 1, 4), rowsOf(shard, 1, 4)
	theirs[2].RecordHash[9] = 7
	if err := db.CommitEvidence(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	// The token keeps the rows out without an error; only reading back shows it.
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 1), mine); err != nil {
		t.Fatal(err)
	}
	wantConflict(t, db.CommitEvidence(t.Context(), mine), 3)
	if n := rowsIn(t, db, "evidence", shard); n != 4 {
		t.Errorf("there are %d rows, want 4", n)
	}
	// A writer with tokens of its own doubles a sequence: found as well.
	if err := db.InsertEvidence(t.Context(), shard+" rogue", mine[1:2]); err != nil {
		t.Fatal(err)
	}
	_, err := db.VerifyStored(t.Context(), shard, 1, 4, theirs)
	wantConflict(t, err, 2)
}

func TestAcknowledgedAndAbsentIsAConflict(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, 5), rowsOf(shard, 1, 2)); err != nil {
		t.Fatal(err)
	}
	wantConflict(t, db.CommitEvidence(t.Context(), rowsOf(shard, 5, 6)), 5)
}

func TestBatchRules(t *testing.T) {
	db := sharedDB(t)
	change := func(f func([]EvidenceRow)) []EvidenceRow { rows := rowsOf("S", 1, 3); f(rows); return rows }
	for name, rows := range map[string][]EvidenceRow{
		"has 0 rows":             nil,
		"has no shard":           change(func(r []EvidenceRow) { r[0].Shard = "" }),
		"is of shard T":          change(func(r []EvidenceRow) { r[1].Shard = "T" }),
		"sequences start at 1":   change(func(r []EvidenceRow) { r[0].Seq = 0 }),
		"has seq 2 after 2":      change(func(r []EvidenceRow) { r[2].Seq = 2 }),
		"kind is none":           change(func(r []EvidenceRow) { r[2].Kind = "Decision" }),
		"broker time is missing": change(func(r []EvidenceRow) { r[2].BrokerTime = time.Time{} }),
		"out of range":           change(func(r []EvidenceRow) { r[2].BrokerTime = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"no record hash":         change(func(r []EvidenceRow) { r[2].RecordHash = [32]byte{} }),
		"bytes of records":       change(func(r []EvidenceRow) { r[1].Record = strings.Repeat("x", MaxBatchBytes) }),
	} {
		err := db.InsertEvidence(t.Context(), "token", rows)
		if !errors.Is(err, ErrBatch) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := db.InsertEvidence(t.Context(), "", rowsOf("S", 1, 1)); !errors.Is(err, ErrBatch) {
		t.Errorf("without a token: error %v", err)
	}
}

func TestCommitGivesUp(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := oneOfEach(t, shard, 1)
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
	db, shard := sharedDB(t), testShard(t)
	rows := rowsOf(shard, 1, 40)
	for i := range rows {
		rows[i].Record = strings.Repeat(string(rune('a'+i%26)), 40<<10+i)
	}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := db.Scan(t.Context(), shard, 0, AllSequences, func(r EvidenceRow) error {
		if r.Record != rows[n].Record || r.Subject != rows[n].Subject {
			t.Errorf("row %d is another", n)
		}
		n++
		return nil
	}); err != nil || n != len(rows) {
		t.Errorf("%d rows (%v)", n, err)
	}
}
