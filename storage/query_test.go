package storage

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

func collect(t testing.TB, scan func(func(EvidenceRow) error) error) (rows []EvidenceRow) {
	t.Helper()
	if err := scan(func(r EvidenceRow) error { rows = append(rows, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestScanGivesBackWhatWasStored(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	want := rowsOf(shard, 1, 2000)
	want[7].SessionIndex = nil
	want[8].Session, want[8].Tenant, want[8].Record = "s\t'\\\n\x00é", "", "\xff\xfe\x00"
	for i := 0; i < len(want); i += 500 { // several parts, as the writer makes them
		if err := db.InsertEvidence(t.Context(), EvidenceToken(shard, want[i].Seq), want[i:i+500]); err != nil {
			t.Fatal(err)
		}
	}
	got := collect(t, func(fn func(EvidenceRow) error) error { return db.Scan(t.Context(), shard, 1, AllSequences, fn) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("scan of all (-want +got):\n%.2000s", d)
	}
	got = collect(t, func(fn func(EvidenceRow) error) error { return db.Scan(t.Context(), shard, 400, 600, fn) })
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
	db := sharedDB(t)
	if seq, hash, err := db.Position(t.Context(), "no such"); seq != 0 || hash != [32]byte{} || err != nil {
		t.Errorf("position %d %x %v", seq, hash, err)
	}
	if c, err := db.CountEvidence(t.Context(), "no such"); c != (Count{}) || err != nil {
		t.Errorf("count %+v %v", c, err)
	}
	if _, err := db.LatestCheckpoint(t.Context(), "no such"); !errors.Is(err, ErrNotFound) {
		t.Errorf("checkpoint: %v", err)
	}
	if _, err := db.DecisionByID(t.Context(), "acme", "no such"); !errors.Is(err, ErrNotFound) {
		t.Errorf("decision: %v", err)
	}
}

func TestScanHidesNoDuplicate(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	forged := row(shard, 2)
	forged.RecordHash[3] = 99
	for token, rows := range map[string][]EvidenceRow{"writer": rowsOf(shard, 1, 3), "forger": {forged}} {
		if err := db.InsertEvidence(t.Context(), shard+token, rows); err != nil {
			t.Fatal(err)
		}
	}
	var seqs []uint64
	for _, r := range collect(t, func(fn func(EvidenceRow) error) error { return db.Scan(t.Context(), shard, 1, 9, fn) }) {
		seqs = append(seqs, r.Seq)
	}
	if !slices.Equal(seqs, []uint64{1, 2, 2, 3}) {
		t.Errorf("sequences %v", seqs)
	}
}

// Ids come from producers: whatever they hold, they are values and not SQL.
func TestHostileIdentifiers(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	names := []string{`plain`, `' OR 1=1 --`, `\`, `\'`, "tab\tnl\ncr\r", "nul\x00byte", `{x:String}`, "é\u202e", "\xff\xfe", `a","b`, "$1 ? @p", ``}
	for i := range names { // sessions of this run only
		names[i] += shard
	}
	var rows []EvidenceRow
	for i, n := range names {
		r := recordRow(t, shard, uint64(i+1), KindFinding, events.Finding{FindingID: fmt.Sprint(i), Rule: "r"})
		r.Tenant, r.Session, r.SessionIndex = n, n, new(uint64)
		rows = append(rows, r)
	}
	if err := db.InsertEvidence(t.Context(), shard, rows); err != nil {
		t.Fatal(err)
	}
	var keys []SessionID
	for i, n := range names {
		keys = append(keys, SessionID{n, n})
		chain := collect(t, func(fn func(EvidenceRow) error) error { return db.Chain(t.Context(), n, n, fn) })
		if d := cmp.Diff(rows[i:i+1], chain); d != "" {
			t.Errorf("chain of %q (-want +got):\n%s", n, d)
		}
		found, err := db.Findings(t.Context(), n, n)
		if err != nil || len(found) != 1 || found[0].Seq != uint64(i+1) {
			t.Errorf("findings of %q: %v %v", n, found, err)
		}
	}
	heads, err := db.SessionHeads(t.Context(), shard, append(keys, SessionID{"no", "such"}))
	if err != nil || len(heads) != len(names) {
		t.Errorf("heads of %d of %d sessions (%v)", len(heads), len(names), err)
	}
	for i, k := range keys {
		if got := heads[k].Hash; got != rows[i].RecordHash {
			t.Errorf("head of %q is %x", k.Session, got)
		}
	}
}

func TestChainGoesOverShards(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	var want []EvidenceRow
	for _, s := range []string{shard + "-1", shard + "-2"} {
		rows := rowsOf(s, 1, 6)
		for i := range rows {
			if rows[i].Session = shard; i%2 == 1 {
				rows[i].Session = "another"
			} else {
				want = append(want, rows[i])
			}
		}
		if err := db.InsertEvidence(t.Context(), EvidenceToken(s, 1), rows); err != nil {
			t.Fatal(err)
		}
	}
	got := collect(t, func(fn func(EvidenceRow) error) error { return db.Chain(t.Context(), "acme", shard, fn) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("chain (-want +got):\n%s", d)
	}
	key := SessionID{"acme", shard}
	heads, err := db.SessionHeads(t.Context(), shard+"-2", []SessionID{key})
	if err != nil || heads[key] != (Head{4, want[5].RecordHash}) {
		t.Errorf("head %+v (%v)", heads[key], err)
	}
}

func TestCheckpoints(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	want := []Checkpoint{
		{shard, 3, [32]byte{3}, "note 3\n\n— x", testTime},
		{shard, 10, [32]byte{10}, "note 10", testTime.Add(1)},
		{shard, 10, [32]byte{10}, "note 10 again", testTime.Add(2)},
	}
	for _, i := range []int{2, 0, 1, 1} {
		if err := db.InsertCheckpoint(t.Context(), want[i]); err != nil {
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
	if err := db.InsertCheckpoint(t.Context(), Checkpoint{Shard: shard}); !errors.Is(err, ErrBatch) {
		t.Errorf("an empty checkpoint: %v", err)
	}
}
