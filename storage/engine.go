// Package storage keeps the evidence in ClickHouse: the engine, embedded or not,
// the schema, the writer and the queries. It knows no policy: what the rows mean
// is decided elsewhere.
package storage

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// Kinds of engine.
const (
	KindDSN      = "dsn"      // somebody else's server
	KindBinary   = "binary"   // a clickhouse program on PATH, as a managed child
	KindEmbedded = "embedded" // libchdb in a process of this program
)

// Engine is a ClickHouse that answers. Its methods may be called from any
// goroutine.
type Engine struct {
	kind                         string
	dsn, readonlyDSN, controlDSN string
	version                      string
	proc                         *process
	owner                        *os.File // the lock of the data directory's owner
	stopProc                     func(context.Context) error
	auditors                     []Auditor

	stop    sync.Once
	stopErr error
	done    chan struct{}
	mu      sync.Mutex
	stopped bool
	err     error
}

// newEngine wraps a started child that listens on port.
func (l engineLaunch) newEngine(kind string, p *process, port int) *Engine {
	e := &Engine{kind: kind, proc: p, owner: l.locks.owner, done: make(chan struct{}), auditors: l.auditors}
	e.dsn = nativeDSN(OwnerUser, l.creds.Owner, l.opts.Host, port, DatabaseName)
	e.readonlyDSN = nativeDSN(ReadonlyUser, l.creds.Readonly, l.opts.Host, port, DatabaseName)
	e.controlDSN = nativeDSN(OwnerUser, l.creds.Owner, l.opts.Host, port, "system")
	return e
}

// watchProcess watches the child from now on.
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

// prepareDatabase waits until a child that listens answers its owner, and makes the
// database and the auditors' views.
func (e *Engine) prepareDatabase(ctx context.Context) error {
	err := withConn(e.controlDSN, func(c clickhouse.Conn) error {
		if err := c.QueryRow(ctx, "SELECT version()").Scan(&e.version); err != nil {
			return fmt.Errorf("asking the ClickHouse engine for its version: %w", err)
		}
		if err := c.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+DatabaseName); err != nil {
			return fmt.Errorf("creating the database %s: %w", DatabaseName, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.createAuditorViews(ctx, e.auditors)
}

// DSN is the database owner's, in clickhouse-go's form, native protocol. It holds
// a password.
func (e *Engine) DSN() string { return e.dsn }

// ReadonlyDSN is that of the user who can only read. It is empty for a server
// that was named by DSN without one.
func (e *Engine) ReadonlyDSN() string { return e.readonlyDSN }

// Kind is one of KindDSN, KindBinary and KindEmbedded.
func (e *Engine) Kind() string { return e.kind }

// Version is what the engine says of itself, e.g. "26.7.2.1".
func (e *Engine) Version() string { return e.version }

// PID is the engine's process, 0 for a server that is not ours.
func (e *Engine) PID() int {
	if e.proc == nil {
		return 0
	}
	return e.proc.pid()
}

// Done is closed when the engine is gone, asked to or not. For a server that is
// not ours it is closed by Stop alone.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err is nil while the engine runs and after it was stopped, and wraps
// ErrEngineDied when it went by itself.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Stop ends a managed engine and waits until it is gone: politely while ctx
// lasts, then by SIGKILL, which loses nothing that was acknowledged but is
// reported as an error. A server that is not ours is left alone.
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

// stopWith lets ask make the child end, and kills it when that fails or takes
// longer than ctx.
func (p *process) stopWith(ctx context.Context, ask func() error) error {
	if err := ask(); err != nil {
		select {
		case <-p.done: // it was gone already
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

// withConn runs f on a connection of its own.
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
