package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/records"
	"github.com/countersign-dev/countersign/storage/write"
)

func TestScanGivesBackWhatWasStored(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	want := storagetest.Rows(shard, 1, 2000)
	want[7].SessionIndex = nil
	want[8].Session, want[8].Tenant, want[8].Record = "s\t'\\\n\x00é", "", "\xff\xfe\x00"
	for i := 0; i < len(want); i += 500 { // several parts, as the writer makes them
		if err := write.New(db.pool).InsertEvidence(t.Context(), write.EvidenceToken(shard, want[i].Seq), want[i:i+500]); err != nil {
			t.Fatal(err)
		}
	}
	got := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error {
		return db.Scan(t.Context(), shard, 1, storage.AllSequences, fn)
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("scan of all (-want +got):\n%.2000s", d)
	}
	got = storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error { return db.Scan(t.Context(), shard, 400, 600, fn) })
	if d := cmp.Diff(want[399:600], got); d != "" {
		t.Errorf("scan of a range (-want +got):\n%.2000s", d)
	}
	last, hash, err := db.Position(t.Context(), shard)
	if err != nil || last != 2000 || hash != want[1999].RecordHash {
		t.Errorf("position %d %x (%v)", last, hash[:4], err)
	}
	c, err := db.CountEvidence(t.Context(), shard)
	if err != nil || c != (Count{2000, 2000, 1, 2000}) {
		t.Errorf("count %+v (%v)", c, err)
	}
	if shards, err := db.Shards(t.Context()); err != nil || !slices.Contains(shards, shard) {
		t.Errorf("shards %v (%v)", shards, err)
	}
}

func TestNothingThere(t *testing.T) {
	db := New(enginetest.Pool(t))
	if seq, hash, err := db.Position(t.Context(), "no such"); seq != 0 || hash != [32]byte{} || err != nil {
		t.Errorf("position %d %x %v", seq, hash, err)
	}
	if c, err := db.CountEvidence(t.Context(), "no such"); c != (Count{}) || err != nil {
		t.Errorf("count %+v %v", c, err)
	}
	if _, err := db.LatestCheckpoint(t.Context(), "no such"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("checkpoint: %v", err)
	}
	if _, err := records.New(db.pool).DecisionPlaces(t.Context(), "acme", "no such"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("decision: %v", err)
	}
}

func TestScanHidesNoDuplicate(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	forged := storagetest.Row(shard, 2)
	forged.RecordHash[3] = 99
	for token, rows := range map[string][]storage.EvidenceRow{"writer": storagetest.Rows(shard, 1, 3), "forger": {forged}} {
		if err := write.New(db.pool).InsertEvidence(t.Context(), shard+token, rows); err != nil {
			t.Fatal(err)
		}
	}
	var seqs []uint64
	for _, r := range storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error { return db.Scan(t.Context(), shard, 1, 9, fn) }) {
		seqs = append(seqs, r.Seq)
	}
	if !slices.Equal(seqs, []uint64{1, 2, 2, 3}) {
		t.Errorf("sequences %v", seqs)
	}
}

// Ids come from producers: whatever they hold, they are values and not SQL.
func TestHostileIdentifiers(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	names := []string{`plain`, `' OR 1=1 --`, `\`, `\'`, "tab\tnl\ncr\r", "nul\x00byte", `{x:String}`, "é\u202e", "\xff\xfe", `a","b`, "$1 ? @p", ``}
	for i := range names { // sessions of this run only
		names[i] += shard
	}
	var rows []storage.EvidenceRow
	for i, n := range names {
		r := storagetest.RecordRow(t, shard, uint64(i+1), storage.KindFinding, events.Finding{FindingID: fmt.Sprint(i), Rule: "r"})
		r.Tenant, r.Session, r.SessionIndex = n, n, new(uint64)
		rows = append(rows, r)
	}
	if err := write.New(db.pool).InsertEvidence(t.Context(), shard, rows); err != nil {
		t.Fatal(err)
	}
	var keys []events.SessionID
	for i, n := range names {
		keys = append(keys, events.SessionID{Tenant: n, Session: n})
		chain := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error { return db.Chain(t.Context(), n, n, fn) })
		if d := cmp.Diff(rows[i:i+1], chain); d != "" {
			t.Errorf("chain of %q (-want +got):\n%s", n, d)
		}
		found, err := records.New(db.pool).LatestFindings(t.Context(), n, records.FindingFilter{Session: n})
		if err != nil || len(found) != 1 || found[0].Seq != uint64(i+1) {
			t.Errorf("findings of %q: %v %v", n, found, err)
		}
	}
	heads := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error {
		return db.SessionHeads(t.Context(), shard, append(keys, events.SessionID{Tenant: "no", Session: "such"}), fn)
	})
	slices.SortFunc(heads, func(a, b storage.EvidenceRow) int { return int(a.Seq) - int(b.Seq) })
	if d := cmp.Diff(rows, heads); d != "" {
		t.Errorf("heads (-want +got):\n%s", d)
	}
}

func TestChainGoesOverShards(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	var want []storage.EvidenceRow
	for _, s := range []string{shard + "-1", shard + "-2"} {
		rows := storagetest.Rows(s, 1, 6)
		for i := range rows {
			if rows[i].Session = shard; i%2 == 1 {
				rows[i].Session = "another"
			} else {
				want = append(want, rows[i])
			}
		}
		if err := write.New(db.pool).InsertEvidence(t.Context(), write.EvidenceToken(s, 1), rows); err != nil {
			t.Fatal(err)
		}
	}
	got := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error { return db.Chain(t.Context(), "acme", shard, fn) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("chain (-want +got):\n%s", d)
	}
	key := events.SessionID{Tenant: "acme", Session: shard}
	heads := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error {
		return db.SessionHeads(t.Context(), shard+"-2", []events.SessionID{key}, fn)
	})
	if d := cmp.Diff(want[5:], heads); d != "" {
		t.Errorf("head (-want +got):\n%s", d)
	}
}

func TestCheckpoints(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	want := []storage.Checkpoint{
		{Shard: shard, Size: 3, Root: [32]byte{3}, Note: "note 3\n\n— x", Created: storagetest.Time},
		{Shard: shard, Size: 10, Root: [32]byte{10}, Note: "note 10", Created: storagetest.Time.Add(1)},
		{Shard: shard, Size: 10, Root: [32]byte{10}, Note: "note 10 again", Created: storagetest.Time.Add(2)},
	}
	for _, i := range []int{2, 0, 1, 1} {
		if err := write.New(db.pool).InsertCheckpoint(t.Context(), want[i]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := db.Checkpoints(t.Context(), shard)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	latest, err := db.LatestCheckpoint(t.Context(), shard)
	if err != nil || latest != want[2] {
		t.Errorf("latest %+v (%v)", latest, err)
	}
	if err := write.New(db.pool).InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: shard}); !errors.Is(err, write.ErrBatch) {
		t.Errorf("an empty checkpoint: %v", err)
	}
}

func TestScanStops(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	if err := write.New(db.pool).InsertEvidence(t.Context(), shard, storagetest.Rows(shard, 1, 100)); err != nil {
		t.Fatal(err)
	}
	enough, n := errors.New("enough"), 0
	err := db.Scan(t.Context(), shard, 1, storage.AllSequences, func(storage.EvidenceRow) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 3 {
		t.Errorf("after %d rows: %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Scan(ctx, shard, 1, 2, func(storage.EvidenceRow) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	if err := write.New(db.pool).InsertEvidence(ctx, shard+"x", storagetest.Rows(shard, 200, 201)); !errors.Is(err, context.Canceled) {
		t.Errorf("insert cancelled before: %v", err)
	}
}
