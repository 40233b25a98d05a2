// Package enginetest gives the tests of storage's packages a real engine. Each test program
// starts one when its first test asks for it; the tests of a program share it, each with shards
// of its own.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/storage/schema"
)

// Main is the TestMain of a package that uses the engine. It does not return.
func Main(m *testing.M) {
	engine.RunChildIfAsked()
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

var shared struct {
	once   sync.Once
	dir    string
	engine *engine.Engine
	pool   *conn.Pool
	err    error
}

// Need skips a test that cannot have the real engine, and says why. Under -short none has it.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts ClickHouse: left out of -short")
	}
	_, err := engine.Fetch(t.Context(), "", nil)
	if errors.Is(err, engine.ErrFetch) || errors.Is(err, engine.ErrPlatform) {
		t.Skipf("no ClickHouse engine to test with: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Start starts an engine of the test's own.
func Start(t testing.TB, dir string, port int) *engine.Engine {
	t.Helper()
	Need(t)
	e, err := engine.Start(t.Context(), engine.Options{DataDir: dir, TCPPort: port, Embedded: true, MaxMemory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	return e
}

// Open connects to a database until the test ends.
func Open(t testing.TB, dsn string) *conn.Pool {
	t.Helper()
	pool, err := conn.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// Fresh is a migrated database on an engine of the test's own.
func Fresh(t testing.TB) (*conn.Pool, *engine.Engine) {
	t.Helper()
	e := Start(t, t.TempDir(), 0)
	pool := Open(t, e.DSN())
	if err := schema.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool, e
}

// Engine is the shared engine.
func Engine(t testing.TB) *engine.Engine {
	t.Helper()
	Pool(t)
	return shared.engine
}

// Pool holds connections to the migrated database of the shared engine.
func Pool(t testing.TB) *conn.Pool {
	t.Helper()
	Need(t)
	shared.once.Do(func() { shared.err = startShared(context.Background()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.pool
}

func startShared(ctx context.Context) (err error) {
	if shared.dir, err = os.MkdirTemp("", "storage-test-*"); err != nil {
		return err
	}
	if shared.engine, err = engine.Start(ctx, engine.Options{DataDir: shared.dir, Embedded: true, MaxMemory: 1 << 30}); err != nil {
		return err
	}
	if shared.pool, err = conn.Open(ctx, shared.engine.DSN()); err != nil {
		return err
	}
	return schema.Migrate(ctx, shared.pool)
}

// WithAuditor starts an engine of the test's own with an auditor of the tenant acme, and returns
// the auditor's DSN too.
func WithAuditor(t testing.TB) (e *engine.Engine, dsn string) {
	t.Helper()
	dir := t.TempDir()
	a, password, err := engine.NewTenantReader("acme_auditor", "acme")
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.SetTenantReader(dir, a); err != nil {
		t.Fatal(err)
	}
	e = Start(t, dir, 0)
	u, err := url.Parse(e.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.User, u.Path = url.UserPassword(a.User, password), "/"+a.Database()
	return e, u.String()
}

// Port is the port that a DSN names.
func Port(t testing.TB, dsn string) int {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
