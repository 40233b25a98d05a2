package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/schema"
)

func TestMain(m *testing.M) {
	RunChildIfAsked()
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

// shared is the engine of the tests that need none of their own. Package enginetest, which the
// other packages use, imports this one.
var shared struct {
	once   sync.Once
	dir    string
	engine *Engine
	pool   *conn.Pool
	err    error
}

// needLibrary skips a test that cannot have the real engine, and says why. Under -short none has it.
func needLibrary(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts ClickHouse: left out of -short")
	}
	_, err := Fetch(t.Context(), "", nil)
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
	e, err := Start(t.Context(), Options{DataDir: dir, TCPPort: port, Embedded: true, MaxMemory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	return e
}

func openPool(t testing.TB, dsn string) *conn.Pool {
	t.Helper()
	pool, err := conn.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// openMigrated connects to an engine and makes its tables.
func openMigrated(t testing.TB, e *Engine) *conn.Pool {
	t.Helper()
	pool := openPool(t, e.DSN())
	if err := schema.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

// sharedPool connects to the shared engine's migrated database.
func sharedPool(t testing.TB) *conn.Pool {
	t.Helper()
	needLibrary(t)
	shared.once.Do(func() { shared.err = startShared(context.Background()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.pool
}

func startShared(ctx context.Context) (err error) {
	if shared.dir, err = os.MkdirTemp("", "engine-test-*"); err != nil {
		return err
	}
	if shared.engine, err = Start(ctx, Options{DataDir: shared.dir, Embedded: true, MaxMemory: 1 << 30}); err != nil {
		return err
	}
	if shared.pool, err = conn.Open(ctx, shared.engine.DSN()); err != nil {
		return err
	}
	return schema.Migrate(ctx, shared.pool)
}
