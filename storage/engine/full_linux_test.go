package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/storage/write"
)

// brokenParts are the parts of which the files do not hold what they should.
func brokenParts(t *testing.T, db *conn.Pool) (broken []string) {
	t.Helper()
	tables := []string{"evidence", "tree_hashes", "checkpoints"}
	for _, d := range schema.DerivedTables {
		tables = append(tables, d.Name)
	}
	for _, table := range tables {
		err := db.EachRow(t.Context(), "CHECK TABLE "+table+" SETTINGS check_query_single_value_result = 0", func(r driver.Rows) error {
			var part, message string
			var ok bool
			if err := r.Scan(&part, &ok, &message); err != nil || ok {
				return err
			}
			broken = append(broken, fmt.Sprintf("%s of %s: %s", part, table, message))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return broken
}

// What a file does not take counts as stored nowhere: not in an insert that is
// acknowledged, nor in a merge that replaces whole parts. The engine ends instead,
// and what it acknowledged is there when it is started again. Without
// chdb.endAtFailedWrite the merge says that it is done, and its part is empty.
func TestFailedWrite(t *testing.T) {
	dir, shard := t.TempDir(), storagetest.Shard(t)
	rows := uint64(0)
	batch := func() []storage.EvidenceRow { return storagetest.OneOfEach(t, shard, rows+1) }
	for _, c := range []struct {
		name string
		do   func(*conn.Pool) error
	}{
		{"an insert", func(db *conn.Pool) error {
			return write.New(db).InsertEvidence(t.Context(), write.EvidenceToken(shard, rows+1), batch())
		}},
		{"a merge", func(db *conn.Pool) error { return db.Exec(t.Context(), "OPTIMIZE TABLE evidence FINAL") }},
		{"nothing", nil},
	} {
		e := startEngine(t, dir, 0)
		db := openPool(t, e.DSN())
		if err := schema.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if got := storagetest.RowsIn(t, db, "evidence", shard); got != rows {
			t.Errorf("before %s: %d rows, and %d were acknowledged", c.name, got, rows)
		}
		if broken := brokenParts(t, db); len(broken) > 0 {
			t.Error(strings.Join(broken, "\n"))
		}
		if c.do == nil {
			break
		}
		for range 3 {
			if err := write.New(db).CommitEvidence(t.Context(), batch()); err != nil {
				t.Fatal(err)
			}
			rows += 5
		}
		limit := unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY} // of a file's size
		if err := unix.Prlimit(e.PID(), unix.RLIMIT_FSIZE, &limit, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.do(db); err == nil {
			t.Errorf("%s was acknowledged", c.name)
			_ = e.Stop(context.Background())
			continue
		}
		select {
		case <-e.Done():
		case <-time.After(testkit.Guard):
			t.Fatalf("the engine lives on after %s that could not be written", c.name)
		}
		if err := e.Err(); !errors.Is(err, ErrEngineDied) || !strings.Contains(err.Error(), "exit status 27") || !strings.Contains(err.Error(), "a write to the engine's disk failed") {
			t.Errorf("after %s the engine ended with: %v", c.name, err)
		}
		_ = db.Close()
	}
}

// Where little room is left the engine refuses to store before a write has to fail,
// and can be read; it goes on when there is room again. It is not started on a disk
// that is full.
func TestFullDisk(t *testing.T) {
	needLibrary(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=128m"); err != nil {
		t.Skipf("a full disk needs a small file system, and mounting a tmpfs is not permitted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	leave := func(left int64) {
		free, _, err := DiskSpace(dir)
		if err == nil {
			err = os.WriteFile(filler, make([]byte, int64(free)-left), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	e := startEngine(t, dir, 0)
	db, shard := openPool(t, e.DSN()), storagetest.Shard(t)
	if err := schema.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 1)); err != nil {
		t.Fatal(err)
	}
	leave(2*MinFreeBytes - 1<<20)
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 6)); !errors.Is(err, write.ErrAmbiguous) || !strings.Contains(err.Error(), "not enough space") {
		t.Errorf("storing on a disk that is nearly full: %v", err)
	}
	if n := storagetest.RowsIn(t, db, "evidence", shard); n != 5 {
		t.Errorf("%d rows, want 5", n)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, shard, 6)); err != nil {
		t.Error(err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	leave(MinFreeBytes - 1<<20)
	if _, err := Start(t.Context(), Options{DataDir: dir, Embedded: true}); !errors.Is(err, ErrDiskFull) {
		t.Errorf("started on a full disk: %v", err)
	}
}
