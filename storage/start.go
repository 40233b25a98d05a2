package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// Defaults of EngineOptions.
const (
	// DefaultEngineHost is the loopback address that the engine listens on.
	DefaultEngineHost = "127.0.0.1"
	// DefaultMaxMemory bounds the memory of a managed engine, in bytes.
	DefaultMaxMemory int64 = 2 << 30
	// DefaultStartTimeout bounds a start (without fetching the engine) whose
	// context has no deadline.
	DefaultStartTimeout = time.Minute
	// DefaultStopTimeout bounds a Stop whose context has no deadline; after it
	// the engine is killed.
	DefaultStopTimeout = 15 * time.Second
)

// EngineOptions says which engine to use and how to run it.
type EngineOptions struct {
	// DSN names a server that runs already, in clickhouse-go's form; nothing is
	// started then. ReadonlyDSN goes with it and may be empty.
	DSN, ReadonlyDSN string
	// DataDir holds everything that a managed engine keeps. One engine at a time
	// may use it.
	DataDir string
	// CacheDir holds the embedded engine's library; empty means DefaultCacheDir.
	CacheDir string
	// Host is a loopback address (there is no TLS on a managed engine); empty
	// means DefaultEngineHost.
	Host string
	// TCPPort is the native protocol's port, 0 for a free one. HTTPPort opens
	// ClickHouse's HTTP interface too; 0 leaves it off, which is the safe thing:
	// web pages can reach it.
	TCPPort, HTTPPort int
	// MaxMemory bounds the engine's memory in bytes; 0 means DefaultMaxMemory.
	MaxMemory int64
	// NoFetch uses the embedded engine only if its library is there (ErrNotFetched).
	NoFetch bool
	// Embedded passes over a clickhouse program on PATH.
	Embedded bool
	// Log receives what the engine prints, on level debug.
	Log zerolog.Logger
	// Progress hears about the slow parts: stage is a phrase for people, done
	// and total are bytes (total 0: unknown). It may be nil.
	Progress func(stage string, done, total int64)
}

// StartEngine gives an engine that answers: the server that opts.DSN names, or
// else the clickhouse program on PATH as a child, or else the embedded engine as
// a child made from this program's own executable (see RunEngineChildIfAsked).
// A managed engine's database exists when StartEngine returns; its tables do not
// (see DB.Migrate). ctx governs the start only.
//
// A managed engine listens on loopback and is locked down. Its users are the
// owner and the read-only user, with random passwords kept in DataDir; neither
// can reach files, URLs or other databases through it. The embedded engine's own
// session logs in as `default` without a password, so that user may do nothing
// but open the listener, and may have no second session (TestLockDown).
//
// On a disk with less than twice LeastRoom left it stores nothing more and can be
// read; with less than LeastRoom it does not start (ErrNoRoom). The embedded engine
// ends when a write fails all the same.
func StartEngine(ctx context.Context, opts EngineOptions) (*Engine, error) {
	if opts.DSN != "" {
		return useServer(ctx, opts)
	}
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	start, err := chooseEngine(ctx, opts)
	if err != nil {
		return nil, err
	}
	locks, err := lockDataDir(ctx, opts.DataDir)
	if err != nil {
		return nil, err
	}
	var e *Engine
	if err = RequireFreeSpace(opts.DataDir); err == nil {
		e, err = launchEngine(ctx, opts, locks, start)
	}
	if err != nil {
		locks.close()
		return nil, err
	}
	locks.engine.Close() // the child has inherited it
	return e, nil
}

// engineLaunch is what both kinds of managed engine start from.
type engineLaunch struct {
	opts  EngineOptions
	creds credentials
	locks dataLocks

	auditors []Auditor
}

// starter starts one kind of managed engine.
type starter func(context.Context, engineLaunch) (*Engine, error)

func launchEngine(ctx context.Context, opts EngineOptions, locks dataLocks, start starter) (*Engine, error) {
	creds, err := loadCredentials(opts.DataDir)
	if err != nil {
		return nil, err
	}
	if _, hasDeadline := ctx.Deadline(); !hasDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultStartTimeout)
		defer cancel()
	}
	auditors, err := Auditors(opts.DataDir)
	if err != nil {
		return nil, err
	}
	return start(ctx, engineLaunch{opts, creds, locks, auditors})
}

// chooseEngine decides between the program on PATH and the embedded engine, and
// fetches the latter where needed.
func chooseEngine(ctx context.Context, opts EngineOptions) (starter, error) {
	if !opts.Embedded {
		if program := findProgram(ctx, opts.Log); program != "" {
			return func(ctx context.Context, l engineLaunch) (*Engine, error) { return startBinary(ctx, l, program) }, nil
		}
	}
	lib, err := engineLibrary(ctx, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, l engineLaunch) (*Engine, error) { return startEmbedded(ctx, l, lib) }, nil
}

func engineLibrary(ctx context.Context, opts EngineOptions) (string, error) {
	if opts.NoFetch {
		return cachedEngine(opts.CacheDir, opts.Progress)
	}
	return FetchEngine(ctx, opts.CacheDir, opts.Progress)
}

func (o *EngineOptions) setDefaults() error {
	if o.DataDir == "" {
		return errors.New("the ClickHouse engine needs a data directory")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("the engine's data directory: %w", err)
	}
	o.DataDir = dir
	if o.Host == "" {
		o.Host = DefaultEngineHost
	}
	if ip := net.ParseIP(o.Host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("the ClickHouse engine listens on loopback addresses only, not on %q: for other hosts run a server with TLS and name it with --clickhouse", o.Host)
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMaxMemory
	}
	return nil
}

// makeConfig is what the engine's files say for this launch.
func (l engineLaunch) makeConfig(embedded bool) engineConfig {
	c := engineConfig{
		Dir: l.opts.DataDir, Host: l.opts.Host, TCPPort: l.opts.TCPPort, HTTPPort: l.opts.HTTPPort,
		MaxMemory: l.opts.MaxMemory, KeepFree: 2 * MinFreeBytes, Database: DatabaseName, Embedded: embedded,
		Owner: OwnerUser, OwnerHash: passwordHash(l.creds.Owner),
		Readonly: ReadonlyUser, ReadonlyHash: passwordHash(l.creds.Readonly),
		Auditors: l.auditors, NobodyHash: passwordHash(newPassword()),
	}
	c.Limits.Seconds, c.Limits.Memory, c.Limits.Queries = auditorSeconds, auditorMemory, auditorQueries
	return c
}

// useServer takes the server that the options name.
func useServer(ctx context.Context, opts EngineOptions) (*Engine, error) {
	db, err := Open(ctx, opts.DSN)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	e := &Engine{kind: KindDSN, dsn: opts.DSN, readonlyDSN: opts.ReadonlyDSN, done: make(chan struct{})}
	if err := db.conn.QueryRow(ctx, "SELECT version()").Scan(&e.version); err != nil {
		return nil, fmt.Errorf("asking the ClickHouse server for its version: %w", err)
	}
	e.stopProc = func(context.Context) error { close(e.done); return nil }
	return e, nil
}

// startFailure explains why a child ended, or did not answer, during its start.
func startFailure(p *process, opts EngineOptions, cause error) error {
	out := p.output.String()
	for _, known := range []struct {
		code string
		err  error
	}{
		{"Code: 210.", fmt.Errorf("%w: %s is taken: choose another port, or 0 for a free one", ErrPortBusy, portsText(opts))},
		{"Code: 76.", fmt.Errorf("%w: %s", ErrDataDirInUse, opts.DataDir)},
	} {
		if strings.Contains(out, known.code) {
			return known.err
		}
	}
	if cause == nil {
		cause = errors.New(p.state)
	}
	return fmt.Errorf("the ClickHouse engine did not start (%w): %s", cause, failureExcerpt(out))
}

// failureExcerpt picks what explains a failure out of a child's output: the first
// exception, or else the last lines.
func failureExcerpt(output string) string {
	for line := range strings.Lines(output) {
		if strings.Contains(line, "Exception") {
			return strings.TrimSpace(line)
		}
	}
	return lastLines(output, 3)
}

func portsText(o EngineOptions) string {
	text := fmt.Sprintf("%s:%d", o.Host, o.TCPPort)
	if o.HTTPPort != 0 {
		text += fmt.Sprintf(" or %s:%d", o.Host, o.HTTPPort)
	}
	return text
}
