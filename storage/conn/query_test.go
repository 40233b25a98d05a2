package conn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// A cancelled query ends in the engine too.
func TestCancelReachesTheEngine(t *testing.T) {
	db := enginetest.Pool(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var err error
	work.Go(func() {
		err = db.EachRow(ctx, "SELECT 'endless-query', sum(number) FROM system.numbers", nil)
	})
	running := "SELECT count() FROM system.processes WHERE query LIKE 'SELECT \\'endless-query%'"
	for storagetest.Count(t, db, running) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the query never ran")
		}
	}
	cancel()
	work.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for storagetest.Count(t, db, running) > 0 {
		if t.Context().Err() != nil {
			t.Fatal("the query never ended")
		}
	}
}

// A query whose rows are refused ends, however many are left: these have no end.
func TestARefusedRowEndsTheQuery(t *testing.T) {
	refused := errors.New("refused")
	err := enginetest.Pool(t).EachRow(t.Context(), "SELECT number FROM system.numbers", func(driver.Rows) error { return refused })
	if err != refused { //nolint:errorlint // it is returned unchanged
		t.Errorf("error %v", err)
	}
}

// A deadline must not become the setting max_execution_time: users with
// readonly=1 may not set any. It must still end the query.
func TestReadingHidesTheDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, has := conn.QueryContext(ctx).Deadline(); has {
		t.Error("the deadline shows")
	}
	<-conn.QueryContext(ctx).Done()
	if err := read.New(enginetest.Pool(t)).Scan(ctx, "S", 1, 2, func(storage.EvidenceRow) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
