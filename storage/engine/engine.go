// Package engine runs or finds a ClickHouse: a server named by DSN, the clickhouse program, or the
// embedded library in a child process, which it fetches and verifies. It keeps the data
// directory, its locks, the users of the server and the configuration that locks it down. Begin
// with Start; docs/operating.md describes how to run it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage/conn"
)

// Kinds of engine.
const (
	KindDSN      = "dsn"      // a server that is not managed here
	KindBinary   = "binary"   // a clickhouse program on PATH, as a managed child
	KindEmbedded = "embedded" // libchdb in a process of this program
)

// Engine is a running ClickHouse that answers. Its methods are safe for concurrent use.
type Engine struct {
	kind, dataDir                string
	dsn, readonlyDSN, controlDSN string
	version                      string
	proc                         *process
	owner                        *os.File // the lock of the data directory's owner
	stopProc                     func(context.Context) error
	auditors                     []TenantReader

	stop    sync.Once
	stopErr error
	done    chan struct{}
	mu      sync.Mutex
	stopped bool
	err     error
}

// newEngine makes the Engine of a started child that listens on port.
func (l engineLaunch) newEngine(kind string, p *process, port int) *Engine {
	e := &Engine{kind: kind, dataDir: l.opts.DataDir, proc: p, owner: l.locks.owner, done: make(chan struct{}), auditors: l.auditors}
	e.dsn = nativeDSN(OwnerUser, l.creds.Owner, l.opts.Host, port, conn.DatabaseName)
	e.readonlyDSN = nativeDSN(ReadonlyUser, l.creds.Readonly, l.opts.Host, port, conn.DatabaseName)
	e.controlDSN = nativeDSN(OwnerUser, l.creds.Owner, l.opts.Host, port, "system")
	return e
}

// watchProcess starts to watch the child and sets how to stop it.
func (e *Engine) watchProcess(stop func(context.Context) error) *Engine {
	e.stopProc = stop
	go func() {
		<-e.proc.done
		e.mu.Lock()
		if !e.stopped {
			e.err = fmt.Errorf("%w (%s): %s", ErrEngineDied, e.proc.state, failureExcerpt(e.proc.output.String()))
		}
		e.mu.Unlock()
		e.owner.Close()
		close(e.done)
	}()
	return e
}

// prepareDatabase waits until a listening child answers its owner, notes its version in the data
// directory, and makes the database and the auditors' views.
func (e *Engine) prepareDatabase(ctx context.Context) error {
	err := withConn(e.controlDSN, func(c clickhouse.Conn) error {
		if err := c.QueryRow(ctx, "SELECT version()").Scan(&e.version); err != nil {
			return fmt.Errorf("asking the ClickHouse engine for its version: %w", err)
		}
		if err := e.markVersion(); err != nil {
			return err
		}
		if err := c.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+conn.DatabaseName); err != nil {
			return fmt.Errorf("creating the database %s: %w", conn.DatabaseName, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.createReaderViews(ctx, e.auditors)
}

// DSN is the DSN of the database's owner, in clickhouse-go's form, for the native protocol. It
// contains a password.
func (e *Engine) DSN() string { return e.dsn }

// ReadonlyDSN is the DSN of the read-only user. It is empty for a server that was named by DSN
// without one.
func (e *Engine) ReadonlyDSN() string { return e.readonlyDSN }

// Kind is one of KindDSN, KindBinary and KindEmbedded.
func (e *Engine) Kind() string { return e.kind }

// Version is the version that the engine reports, e.g. "26.7.2.1".
func (e *Engine) Version() string { return e.version }

// PID is the process id of a managed engine, or 0.
func (e *Engine) PID() int {
	if e.proc == nil {
		return 0
	}
	return e.proc.pid()
}

// Done is closed when the engine has ended, stopped or not. For a server that is not managed,
// only Stop closes it.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err is nil while the engine runs and after Stop. It wraps ErrEngineDied if the engine ended
// by itself.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Stop stops a managed engine and waits until it has ended. When ctx ends first, Stop kills
// it with SIGKILL; that loses nothing that was acknowledged, but is reported as an error. A
// server that is not managed keeps running.
func (e *Engine) Stop(ctx context.Context) error {
	e.stop.Do(func() {
		e.mu.Lock()
		e.stopped = true
		e.mu.Unlock()
		if _, hasDeadline := ctx.Deadline(); !hasDeadline {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, DefaultStopTimeout)
			defer cancel()
		}
		e.stopErr = e.stopProc(ctx)
	})
	<-e.done
	return e.stopErr
}

// stopWith calls ask to make the child end, and kills it if that fails or takes longer than
// ctx.
func (p *process) stopWith(ctx context.Context, ask func() error) error {
	if err := ask(); err != nil {
		select {
		case <-p.done: // it had ended already
			return nil
		default:
			p.kill()
			return fmt.Errorf("the ClickHouse engine had to be killed: %w", err)
		}
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("the ClickHouse engine had to be killed: %w", ctx.Err())
	}
}

// withConn runs f with a new connection.
func withConn(dsn string, f func(clickhouse.Conn) error) error {
	options, err := clickhouse.ParseDSN(dsn)
	if err != nil {
		return fmt.Errorf("the ClickHouse DSN: %w", err)
	}
	options.MaxOpenConns, options.MaxIdleConns = 1, 1
	c, err := clickhouse.Open(options)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// Errors of the engine.
var (
	// ErrPlatform: there is no embedded engine for this operating system,
	// processor or C library.
	ErrPlatform = errors.New("the embedded ClickHouse engine needs linux/amd64 with glibc")
	// ErrFetch: the engine's library is not cached and could not be fetched.
	ErrFetch = errors.New("the embedded ClickHouse engine could not be fetched")
	// ErrNotFetched says that the embedded engine is not there.
	ErrNotFetched = errors.New("the embedded ClickHouse engine is not there: run `countersign engine fetch`, or install the clickhouse program")
	// ErrDigest: a file or download is not the pinned engine library.
	ErrDigest = errors.New("not the pinned ClickHouse engine")
	// ErrDataDirInUse: another engine works on the data directory.
	ErrDataDirInUse = errors.New("the data directory is in use by another engine")
	// ErrOlderEngine: a newer engine has written the data directory; ClickHouse cannot go back.
	ErrOlderEngine = errors.New("a newer ClickHouse has written the data directory")
	// ErrPortBusy: another process listens on the requested port.
	ErrPortBusy = errors.New("the engine's port is in use")
	// ErrEngineDied: the engine's process ended without Stop.
	ErrEngineDied = errors.New("the ClickHouse engine died")
)

// clickHouseUnavailable ends every message about an engine that is not available.
const clickHouseUnavailable = "or use a ClickHouse of your own with --clickhouse clickhouse://user:password@host:9000/countersign"
