package engine

import (
	"context"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/expiry"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/questions"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/records"
	"github.com/countersign-dev/countersign/storage/write"
)

func TestReadonlyUserIsEnoughToQuery(t *testing.T) {
	db, shard := sharedPool(t), storagetest.Shard(t)
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 1)); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db).InsertTreeNodes(t.Context(), shard, []storage.TreeNode{{Index: 0, Hash: [32]byte{1}}}); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db).InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: shard, Size: 1, Root: [32]byte{1}, Note: "n", Created: storagetest.Time}); err != nil {
		t.Fatal(err)
	}
	ro := openPool(t, shared.engine.ReadonlyDSN())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, query := range libraryQueries(t, ro, shard) {
		if err := query(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ro.Ping(ctx); err != nil {
		t.Error(err)
	}
}

// libraryQueries are the queries of every reader, for a shard with OneOfEach in it.
func libraryQueries(t *testing.T, ro *conn.Pool, shard string) map[string]func() error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a deadline must not become a setting
	t.Cleanup(cancel)
	keep := func(storage.EvidenceRow) error { return nil }
	list := map[string]func() error{
		"Ping":        func() error { return ro.Ping(ctx) },
		"Position":    func() error { _, _, err := read.New(ro).Position(ctx, shard); return err },
		"Shards":      func() error { _, err := read.New(ro).Shards(ctx); return err },
		"Scan":        func() error { return read.New(ro).Scan(ctx, shard, 1, 9, keep) },
		"ScanSubject": func() error { return read.New(ro).ScanSubject(ctx, shard, "gov.control.GOV.key", keep) },
		"Chain":       func() error { return read.New(ro).Chain(ctx, "acme", "s1", keep) },
		"RecordHashes": func() error {
			return read.New(ro).RecordHashes(ctx, shard, 1, 9, func(uint64, [32]byte) error { return nil })
		},
		"SessionsNaming": func() error { _, err := expiry.New(ro).SessionsContaining(ctx, shard, "acme", `"s1"`); return err },
		"RecordsNaming": func() error {
			return expiry.New(ro).RecordsContaining(ctx, shard, "acme", `"s1"`, func(string, uint64) error { return nil })
		},
		"LooseNaming": func() error { _, err := expiry.New(ro).SessionlessContaining(ctx, shard, "acme", `"s1"`); return err },
		"SilentSince": func() error {
			return expiry.New(ro).IdleSessions(ctx, shard, "acme", time.Now(), false, func(string, uint64, time.Time) error { return nil })
		},
		"CountEvidence": func() error { _, err := read.New(ro).CountEvidence(ctx, shard); return err },
		"Confirm": func() error {
			_, err := write.New(ro).VerifyStored(ctx, shard, 1, 5, storagetest.OneOfEach(t, shard, 1))
			return err
		},
		"SessionHeads": func() error {
			return read.New(ro).SessionHeads(ctx, shard, []events.SessionID{{Tenant: "acme", Session: "s1"}}, func(storage.EvidenceRow) error { return nil })
		},
		"TreeNodes":        func() error { _, err := read.New(ro).TreeNodes(ctx, shard, []uint64{0}); return err },
		"Checkpoints":      func() error { _, err := read.New(ro).Checkpoints(ctx, shard); return err },
		"LatestCheckpoint": func() error { _, err := read.New(ro).LatestCheckpoint(ctx, shard); return err },
		"LatestCalls":      func() error { _, err := records.New(ro).LatestCalls(ctx, "acme", records.CallFilter{}); return err },
		"LatestFindings": func() error {
			_, err := records.New(ro).LatestFindings(ctx, "acme", records.FindingFilter{})
			return err
		},
		"LatestVerdicts": func() error { _, err := records.New(ro).LatestVerdicts(ctx, "acme", []string{"s1"}); return err },
		"SessionParents": func() error { _, err := records.New(ro).SessionParents(ctx, shard, "acme", 1, 9); return err },
		"DecisionPlaces": func() error { _, err := records.New(ro).DecisionPlaces(ctx, "acme", "d1"); return err },
	}
	for _, q := range questions.All() {
		list["Ask "+q.Name] = func() error {
			_, err := questions.Ask(ctx, ro, q, questions.Params{Tenant: "acme", Agent: "a", ID: "d1"})
			return err
		}
	}
	return list
}
