package storage

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestReadonlyUserIsEnoughToQuery(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	if err := db.CommitEvidence(t.Context(), oneOfEach(t, shard, 1)); err != nil {
		t.Fatal(err)
	}
	if err := db.InsertTreeNodes(t.Context(), shard, []TreeNode{{0, [32]byte{1}}}); err != nil {
		t.Fatal(err)
	}
	if err := db.InsertCheckpoint(t.Context(), Checkpoint{shard, 1, [32]byte{1}, "n", testTime}); err != nil {
		t.Fatal(err)
	}
	ro := openDB(t, shared.engine.ReadonlyDSN())
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

// libraryQueries are all queries of a DB, for a shard with oneOfEach in it.
func libraryQueries(t *testing.T, ro *DB, shard string) map[string]func() error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a deadline must not become a setting
	t.Cleanup(cancel)
	keep := func(EvidenceRow) error { return nil }
	list := map[string]func() error{
		"Ping":           func() error { return ro.Ping(ctx) },
		"Position":       func() error { _, _, err := ro.Position(ctx, shard); return err },
		"Shards":         func() error { _, err := ro.Shards(ctx); return err },
		"Scan":           func() error { return ro.Scan(ctx, shard, 1, 9, keep) },
		"ScanSubject":    func() error { return ro.ScanSubject(ctx, shard, "gov.control.GOV.key", keep) },
		"Chain":          func() error { return ro.Chain(ctx, "acme", "s1", keep) },
		"RecordHashes":   func() error { return ro.RecordHashes(ctx, shard, 1, 9, func(uint64, [32]byte) error { return nil }) },
		"SessionsNaming": func() error { _, err := ro.SessionsContaining(ctx, shard, "acme", `"s1"`); return err },
		"LooseNaming":    func() error { _, err := ro.SessionlessContaining(ctx, shard, "acme", `"s1"`); return err },
		"SilentSince": func() error {
			return ro.IdleSessions(ctx, shard, "acme", time.Now(), func(string, uint64, time.Time) error { return nil })
		},
		"CountEvidence":    func() error { _, err := ro.CountEvidence(ctx, shard); return err },
		"Confirm":          func() error { _, err := ro.VerifyStored(ctx, shard, 1, 5, oneOfEach(t, shard, 1)); return err },
		"SessionHeads":     func() error { _, err := ro.SessionHeads(ctx, shard, []SessionID{{"acme", "s1"}}); return err },
		"TreeNodes":        func() error { _, err := ro.TreeNodes(ctx, shard, []uint64{0}); return err },
		"Checkpoints":      func() error { _, err := ro.Checkpoints(ctx, shard); return err },
		"LatestCheckpoint": func() error { _, err := ro.LatestCheckpoint(ctx, shard); return err },
		"Decisions":        func() error { _, err := ro.Decisions(ctx, "acme", "s1"); return err },
		"DecisionByID":     func() error { _, err := ro.DecisionByID(ctx, "acme", "d1"); return err },
		"Calls":            func() error { _, err := ro.Calls(ctx, "acme", "s1"); return err },
		"Findings":         func() error { _, err := ro.Findings(ctx, "acme", "s1"); return err },
		"Approvals":        func() error { _, err := ro.Approvals(ctx, "acme", "s1"); return err },
		"ToolCall":         func() error { _, err := ro.ToolCall(ctx, "acme", "tc1"); return err },
	}
	for _, q := range Questions() {
		list["Ask "+q.Name] = func() error {
			_, err := ro.AnswerQuestion(ctx, q, QuestionParams{Tenant: "acme", Agent: "a", ID: "d1"})
			return err
		}
	}
	return list
}

func TestScanStops(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	if err := db.InsertEvidence(t.Context(), shard, rowsOf(shard, 1, 100)); err != nil {
		t.Fatal(err)
	}
	enough, n := errors.New("enough"), 0
	err := db.Scan(t.Context(), shard, 1, AllSequences, func(EvidenceRow) error {
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
	if err := db.Scan(ctx, shard, 1, 2, func(EvidenceRow) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	if err := db.InsertEvidence(ctx, shard+"x", rowsOf(shard, 200, 201)); !errors.Is(err, context.Canceled) {
		t.Errorf("insert cancelled before: %v", err)
	}
}

// A cancelled query ends in the engine too.
func TestCancelReachesTheEngine(t *testing.T) {
	db := sharedDB(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var err error
	work.Go(func() {
		err = db.eachRow(ctx, "SELECT 'endless-query', sum(number) FROM system.numbers", nil)
	})
	running := "SELECT count() FROM system.processes WHERE query LIKE 'SELECT \\'endless-query%'"
	for count(t, db, running) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the query never ran")
		}
	}
	cancel()
	work.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for count(t, db, running) > 0 {
		if t.Context().Err() != nil {
			t.Fatal("the query never ended")
		}
	}
}

func TestMigrateTogether(t *testing.T) {
	e := startEngine(t, t.TempDir(), 0)
	var all sync.WaitGroup
	for range 4 {
		db := openDB(t, e.DSN())
		all.Go(func() {
			if err := db.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	db := openDB(t, e.DSN())
	if err := db.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, "SELECT toUInt64(max(version_id)) FROM goose_db_version"); n != uint64(len(files)) {
		t.Errorf("version %d, want %d", n, len(files))
	}
}

func TestBadDSN(t *testing.T) {
	for dsn, why := range map[string]string{
		"":                               "no address",
		"http://u:secret@127.0.0.1:8123": "HTTP",
		"clickhouse://u:secret@127.0.0.1:9000/a;b":  "database name",
		"clickhouse://u:secret@127.0.0.1:1/x":       "nobody there",
		"clickhouse://u:secret@127.0.0.1:9000?%zz":  "escape",
		"clickhouse://u:secret@127.0.0.1:port/name": "port",
	} {
		db, err := Open(t.Context(), dsn)
		if err == nil {
			db.Close()
			t.Errorf("%s: no error", why)
			continue
		}
		if s := err.Error(); len(s) == 0 || containsSecret(s) {
			t.Errorf("%s: %s", why, s)
		}
	}
}

// A deadline must not become the setting max_execution_time: users with
// readonly=1 may not set any. It must still end the query.
func TestReadingHidesTheDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, has := queryContext(ctx).Deadline(); has {
		t.Error("the deadline shows")
	}
	<-queryContext(ctx).Done()
	if err := sharedDB(t).Scan(ctx, "S", 1, 2, func(EvidenceRow) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
