package conn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/write"
)

// Where there is no plain connection the rows come the other way; what the server
// says of a query is an error, and so is the end of the context.
func TestSweepWithoutPlainConnection(t *testing.T) {
	db, shard := enginetest.Pool(t), storagetest.Shard(t)
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.Rows(shard, 1, 30)); err != nil {
		t.Fatal(err)
	}
	other := func(change func(*clickhouse.Options)) *conn.Pool {
		pool := enginetest.Open(t, enginetest.Engine(t).DSN())
		conn.ChangeOptions(pool, change)
		return pool
	}
	stream := func(ctx context.Context, pool *conn.Pool) error {
		return pool.StreamNative(ctx, "SELECT 1 AS one", proto.Results{{Name: "one", Data: new(proto.ColUInt8)}}, func(int) error { return nil })
	}
	none := func(*storage.EvidenceRow) error { return nil }
	for name, change := range map[string]func(*clickhouse.Options){
		"TLS":      func(o *clickhouse.Options) { o.TLS = &tls.Config{} },
		"far away": func(o *clickhouse.Options) { o.Addr = []string{"10.0.0.1:9000"} },
		"nobody":   func(o *clickhouse.Options) { o.Addr = []string{"127.0.0.1:1"} },
		"password": func(o *clickhouse.Options) { o.Auth.Password = "wrong" },
	} {
		if err := stream(t.Context(), other(change)); !errors.Is(err, conn.ErrNotPlain) {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := other(func(o *clickhouse.Options) { o.Auth.Database = "system" })
	if err := read.New(elsewhere).ScanReusingRow(t.Context(), shard, 0, 10, none); err == nil || !strings.Contains(err.Error(), "evidence") {
		t.Errorf("a database without the table: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := read.New(db).ScanReusingRow(ctx, shard, 0, 30, func(*storage.EvidenceRow) error { cancel(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := stream(ctx, db); err == nil {
		t.Error("cancelled before it began, and nothing happened")
	}
}

// The short way and the way through clickhouse-go give the same.
func TestTreeBothWays(t *testing.T) {
	db, shard := enginetest.Pool(t), storagetest.Shard(t)
	rows := storagetest.Rows(shard, 1, 1000)
	all := storagetest.Tree(t, rows)
	storagetest.StoreTree(t, write.New(db), shard, rows, all)
	far := enginetest.Open(t, enginetest.Engine(t).DSN())
	conn.ChangeOptions(far, func(o *clickhouse.Options) { o.Addr = append(slices.Clone(o.Addr), "192.0.2.1:9000") }) // not this machine alone
	near, err := read.New(db).TreeNodes(t.Context(), shard, storagetest.Indexes(all))
	if err != nil {
		t.Fatal(err)
	}
	got, err := read.New(far).TreeNodes(t.Context(), shard, storagetest.Indexes(all))
	if d := cmp.Diff(near, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if conn.Idle(far) != 0 || conn.Idle(db) == 0 {
		t.Error("one of them did not take its way")
	}
}

// A kept connection that has ended is not noticed; a call that is given up is.
func TestKeptConnections(t *testing.T) {
	db, shard := enginetest.Open(t, enginetest.Engine(t).DSN()), storagetest.Shard(t)
	rows := storagetest.Rows(shard, 1, 300)
	all := storagetest.Tree(t, rows)
	storagetest.StoreTree(t, write.New(db), shard, rows, all)
	storagetest.WantNodes(t, read.New(db), shard, all)
	conn.BreakIdle(db)
	storagetest.WantNodes(t, read.New(db), shard, all)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := read.New(db).TreeNodes(given, shard, []uint64{0}); !errors.Is(err, context.Canceled) {
		t.Errorf("given up before: %v", err)
	}
	slow, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := db.QueryNative(slow, "SELECT sleep(3)", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up meanwhile: %v", err)
	}
	storagetest.WantNodes(t, read.New(db), shard, all)
	if err := db.QueryNative(t.Context(), "SELECT 1 FROM no_such_table", nil, nil); err == nil || errors.Is(err, conn.ErrNotPlain) {
		t.Errorf("a table that is not there: %v", err)
	}
	storagetest.WantNodes(t, read.New(db), shard, all)
	if err := db.Close(); err != nil || conn.Idle(db) != 0 {
		t.Errorf("closing: %v, %d kept", err, conn.Idle(db))
	}
}

// TestLookupSettings: a query that fails for a reason of its own takes the settings from no look-up after
// it. Those of a user that may set nothing go without.
func TestLookupSettings(t *testing.T) {
	lookUp := func(pool *conn.Pool, failsIf string) error {
		return pool.QueryNative(t.Context(), "SELECT throwIf("+failsIf+") AS one", proto.Results{{Name: "one", Data: new(proto.ColUInt8)}}, func(int) error { return nil })
	}
	const set, unset = "getSetting('enable_analyzer') = false", "getSetting('enable_analyzer') = true"
	db := enginetest.Open(t, enginetest.Engine(t).DSN())
	if err := lookUp(db, set); err == nil {
		t.Error("a failing look-up was sent without the settings")
	}
	if err := lookUp(db, unset); err != nil {
		t.Errorf("the next one: %v", err)
	}
	reader := enginetest.Open(t, enginetest.Engine(t).ReadonlyDSN())
	for range 2 {
		if err := lookUp(reader, set); err != nil {
			t.Errorf("a user that may set nothing: %v", err)
		}
	}
}
