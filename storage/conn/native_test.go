package conn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"

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
