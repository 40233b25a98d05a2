package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

func TestMain(m *testing.M) {
	RunEngineChildIfAsked()
	runFakeServerIfAsked()
	runHelperIfAsked()
	code := m.Run()
	if shared.engine != nil {
		if err := shared.engine.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the shared engine:", err)
			code = 1
		}
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// shared is the engine that most tests use, each with a database of its own
// shards.
var shared struct {
	once   sync.Once
	dir    string
	engine *Engine
	db     *DB
	err    error
}

// needLibrary skips a test that cannot have the real engine, and says why.
func needLibrary(t testing.TB) {
	t.Helper()
	_, err := FetchEngine(t.Context(), "", nil)
	if errors.Is(err, ErrFetch) || errors.Is(err, ErrPlatform) {
		t.Skipf("no ClickHouse engine to test with: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func startEngine(t testing.TB, dir string, port int) *Engine {
	t.Helper()
	needLibrary(t)
	e, err := StartEngine(t.Context(), EngineOptions{DataDir: dir, TCPPort: port, Embedded: true, MaxMemory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	return e
}

func openDB(t testing.TB, dsn string) *DB {
	t.Helper()
	db, err := Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// sharedDB is a migrated database on the shared engine.
func sharedDB(t testing.TB) *DB {
	t.Helper()
	needLibrary(t)
	shared.once.Do(func() {
		ctx := context.Background()
		if shared.dir, shared.err = os.MkdirTemp("", "storage-test-*"); shared.err != nil {
			return
		}
		if shared.engine, shared.err = StartEngine(ctx, EngineOptions{DataDir: shared.dir, Embedded: true, MaxMemory: 1 << 30}); shared.err != nil {
			return
		}
		if shared.db, shared.err = Open(ctx, shared.engine.DSN()); shared.err != nil {
			return
		}
		shared.err = shared.db.Migrate(ctx)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.db
}

// testShard is a shard of the test's own, another one each time it runs.
func testShard(t testing.TB) string { return "GOV@" + t.Name() + "@" + randomToken()[:8] }

// testTime is the broker time of sequence 0.
var testTime = time.Date(2026, 11, 20, 6, 41, 50, 123456789, time.UTC)

// row makes an event row of session s1.
func row(shard string, seq uint64) EvidenceRow {
	index := seq - 1
	return EvidenceRow{
		Shard: shard, Seq: seq, Tenant: "acme", Session: "s1", Kind: KindEvent, Subject: "gov.events.acme.rt1.aaep.s1.tool",
		BrokerTime: testTime.Add(time.Duration(seq)), BodyDigest: "sha256:00", Record: fmt.Sprintf(`{"body":{"n":%d},"v":1}`, seq),
		RecordHash: [32]byte{byte(seq), byte(seq >> 8), byte(seq >> 16), 1}, SessionIndex: &index,
	}
}

// recordRow makes a row with a service record as the body of its record.
func recordRow(t testing.TB, shard string, seq uint64, kind string, body any) EvidenceRow {
	t.Helper()
	text, err := events.Encode(map[string]any{"v": 1, "body": body})
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Fatalf("not JSON: %s", text)
	}
	r := row(shard, seq)
	r.Kind, r.Record = kind, string(text)
	return r
}

func rowsOf(shard string, first, last uint64) (rows []EvidenceRow) {
	for seq := first; seq <= last; seq++ {
		rows = append(rows, row(shard, seq))
	}
	return rows
}

// count runs a query that gives one number.
func count(t testing.TB, db *DB, query string, args ...any) (n uint64) {
	t.Helper()
	if err := db.conn.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
