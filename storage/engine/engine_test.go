package engine

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/schema"
	"github.com/countersign-dev/countersign/storage/write"
)

// alive reports whether a process exists.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// tcpPort is where an engine listens.
func tcpPort(t testing.TB, dsn string) int {
	t.Helper()
	o, err := clickhouse.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(o.Addr[0])
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRestartKeepsDataAndPasswords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's <&> \"here\"") // the path goes into XML and SQL
	e := startEngine(t, dir, 0)
	if e.Kind() != KindEmbedded || e.PID() == 0 || !strings.HasPrefix(e.Version(), "26.7.") || e.Err() != nil {
		t.Errorf("kind %s, pid %d, version %s, err %v", e.Kind(), e.PID(), e.Version(), e.Err())
	}
	db := openMigrated(t, e)
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, "S", 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-e.Done():
	default:
		t.Error("Done is open after Stop")
	}
	if e.Err() != nil || alive(e.PID()) {
		t.Errorf("after Stop: err %v, process alive %v", e.Err(), alive(e.PID()))
	}
	again := startEngine(t, dir, tcpPort(t, e.DSN()))
	if again.DSN() != e.DSN() || again.ReadonlyDSN() != e.ReadonlyDSN() {
		t.Error("the DSNs changed over a restart on the same port")
	}
	storagetest.WantRows(t, openPool(t, again.DSN()), "S", storagetest.OneEach)
}

func TestEngineDiesWithItsOwner(t *testing.T) {
	needLibrary(t)
	dir := t.TempDir()
	owner, report := startOwner(t, dir)
	db := openPool(t, report.DSN)
	if err := schema.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.Rows("S", 1, 10)); err != nil {
		t.Fatal(err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	e := startEngine(t, dir, 0) // has to wait for the orphan's lock, which goes with its last thread
	if n := storagetest.RowsIn(t, openPool(t, e.DSN()), "evidence", "S"); n != 10 {
		t.Errorf("%d rows survived, want 10", n)
	}
}

// The kernel's parent-death signal is one way; the pipe alone must do as well.
func TestEngineDiesWithItsPipe(t *testing.T) {
	e := startEngine(t, t.TempDir(), 0)
	e.proc.stdin.Close()
	<-e.Done()
	if !errors.Is(e.Err(), ErrEngineDied) {
		t.Errorf("error %v, want ErrEngineDied", e.Err())
	}
}

func TestKilledEngine(t *testing.T) {
	dir := t.TempDir()
	e := startEngine(t, dir, 0)
	db := openMigrated(t, e)
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, "S", 1)); err != nil {
		t.Fatal(err)
	}
	for _, polite := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := syscall.Kill(e.PID(), polite); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Fatalf("after polite signals: %v", err)
	}
	if err := syscall.Kill(e.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	if !errors.Is(e.Err(), ErrEngineDied) {
		t.Errorf("error %v, want ErrEngineDied", e.Err())
	}
	if err := write.New(db).InsertEvidence(t.Context(), "t", storagetest.Rows("S", 6, 6)); err == nil {
		t.Error("an insert into a dead engine succeeded")
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Errorf("stopping a dead engine: %v", err)
	}
	again := startEngine(t, dir, tcpPort(t, e.DSN()))
	storagetest.WantRows(t, openPool(t, again.DSN()), "S", storagetest.OneEach)
	// The connections of before find the way again, and a retry stays one.
	if err := write.New(db).CommitEvidence(t.Context(), storagetest.OneOfEach(t, "S", 1)); err != nil {
		t.Error(err)
	}
	storagetest.WantRows(t, db, "S", storagetest.OneEach)
}

func TestOneEngineForADirectory(t *testing.T) {
	sharedPool(t)
	_, err := Start(t.Context(), Options{DataDir: shared.dir, Embedded: true})
	if !errors.Is(err, ErrDataDirInUse) || !strings.Contains(err.Error(), strconv.Itoa(shared.engine.PID())) {
		t.Errorf("error %v, want ErrDataDirInUse and the process", err)
	}
	if err := shared.pool.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBusyPort(t *testing.T) {
	needLibrary(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), Options{DataDir: t.TempDir(), TCPPort: port, Embedded: true})
	if !errors.Is(err, ErrPortBusy) || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("error %v, want ErrPortBusy and the port", err)
	}
}

func TestCancelledStart(t *testing.T) {
	needLibrary(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if e, err := Start(ctx, Options{DataDir: dir, Embedded: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("engine %v, error %v", e, err)
	}
	locks, err := lockDataDir(t.Context(), dir) // nothing of it is left running
	if err != nil {
		t.Fatal(err)
	}
	locks.close()
}

func TestStopWithoutTime(t *testing.T) {
	e := startEngine(t, t.TempDir(), 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it had to be killed", err)
	}
	if alive(e.PID()) || e.Err() != nil {
		t.Errorf("alive %v, err %v", alive(e.PID()), e.Err())
	}
}

func TestServerOfOnesOwn(t *testing.T) {
	sharedPool(t)
	e, err := Start(t.Context(), Options{DSN: shared.engine.DSN(), ReadonlyDSN: "ro"})
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind() != KindDSN || e.PID() != 0 || e.DSN() != shared.engine.DSN() || e.ReadonlyDSN() != "ro" || e.Version() == "" {
		t.Errorf("%s %d %s", e.Kind(), e.PID(), e.Version())
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	<-e.Done()
	if err := shared.pool.Ping(t.Context()); err != nil {
		t.Errorf("Stop reached somebody else's server: %v", err)
	}
	if _, err := Start(t.Context(), Options{DSN: "clickhouse://u:secret@127.0.0.1:1/x"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestEngineOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"data directory":      {},
		"loopback":            {DataDir: t.TempDir(), Host: "0.0.0.0"},
		"loopback addresses ": {DataDir: t.TempDir(), Host: "localhost"},
	} {
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
