package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/storage/conn"
)

// Defaults of Options.
const (
	// DefaultHost is the loopback address that the engine listens on.
	DefaultHost = "127.0.0.1"
	// DefaultMaxMemory bounds the memory of a managed engine, in bytes.
	DefaultMaxMemory int64 = 2 << 30
	// DefaultStartTimeout bounds a start (without fetching the engine) if its context has no
	// deadline.
	DefaultStartTimeout = time.Minute
	// DefaultStopTimeout bounds a Stop if its context has no deadline; the engine is then
	// killed.
	DefaultStopTimeout = 15 * time.Second
)

// Options selects an engine and says how to run it.
type Options struct {
	// DSN names a running server, in clickhouse-go's form; Start then starts nothing.
	// ReadonlyDSN is for the same server and may be empty.
	DSN, ReadonlyDSN string
	// DataDir holds all files of a managed engine. Only one engine at a time may use it.
	DataDir string
	// CacheDir holds the embedded engine's library; empty means DefaultCacheDir.
	CacheDir string
	// Host is a loopback address, because a managed engine has no TLS; empty means
	// DefaultHost.
	Host string
	// TCPPort is the port of the native protocol; 0 means a free one. HTTPPort is the port of
	// ClickHouse's HTTP interface; 0 leaves it closed, which is safer because web pages can
	// reach it.
	TCPPort, HTTPPort int
	// MaxMemory bounds the engine's memory in bytes; 0 means DefaultMaxMemory.
	MaxMemory int64
	// NoFetch uses the embedded engine only if its library is there (ErrNotFetched).
	NoFetch bool
	// Embedded ignores a clickhouse program on PATH.
	Embedded bool
	// Log receives the engine's output, on level debug.
	Log zerolog.Logger
	// Progress receives the progress of slow stages: stage is a phrase for users, done and
	// total are bytes (total 0: unknown). It may be nil.
	Progress func(stage string, done, total int64)
}

// Start returns an engine that answers: the server that opts.DSN names, or else the
// clickhouse program on PATH as a child, or else the embedded engine as a child made from this
// program's own executable (see RunChildIfAsked). The database of a managed engine
// exists when Start returns; schema.Migrate makes its tables. ctx governs only the start.
//
// A managed engine listens on loopback and is locked down. Its users are the owner and the
// read-only user, with random passwords kept in DataDir; neither can reach files, URLs or
// other databases through it (TestFilesAreClosed). The embedded engine's own session logs in as `default` without
// a password, so that user may only open the listener, and may have no second session
// (TestLockDown).
//
// With less than twice MinFreeBytes left on its disk an engine stores nothing more but can be
// read; with less than MinFreeBytes it does not start (ErrDiskFull). The embedded engine
// exits if a write fails all the same.
func Start(ctx context.Context, opts Options) (*Engine, error) {
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

// engineLaunch is the input for starting either kind of managed engine.
type engineLaunch struct {
	opts  Options
	creds credentials
	locks dataLocks

	auditors []TenantReader
}

// starter starts one kind of managed engine.
type starter func(context.Context, engineLaunch) (*Engine, error)

func launchEngine(ctx context.Context, opts Options, locks dataLocks, start starter) (*Engine, error) {
	creds, err := loadCredentials(opts.DataDir)
	if err != nil {
		return nil, err
	}
	if _, hasDeadline := ctx.Deadline(); !hasDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultStartTimeout)
		defer cancel()
	}
	auditors, err := TenantReaders(opts.DataDir)
	if err != nil {
		return nil, err
	}
	return start(ctx, engineLaunch{opts, creds, locks, auditors})
}

// chooseEngine chooses between the program on PATH and the embedded engine, and fetches the
// latter if needed.
func chooseEngine(ctx context.Context, opts Options) (starter, error) {
	written, err := writtenBy(opts.DataDir)
	if err != nil {
		return nil, err
	}
	if !opts.Embedded {
		if program := findProgram(ctx, opts.Log, written); program != "" {
			return func(ctx context.Context, l engineLaunch) (*Engine, error) { return startBinary(ctx, l, program) }, nil
		}
	}
	if pinned, _ := parseRelease(LibraryVersion); pinned.olderThan(written) {
		return nil, fmt.Errorf("%w: %s was written by ClickHouse %s, and this program has %s: start it with the newer one, or restore the backup from before that ran", ErrOlderEngine, opts.DataDir, written, pinned)
	}
	lib, err := engineLibrary(ctx, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, l engineLaunch) (*Engine, error) { return startEmbedded(ctx, l, lib) }, nil
}

func engineLibrary(ctx context.Context, opts Options) (string, error) {
	if opts.NoFetch {
		return cachedEngine(opts.CacheDir, opts.Progress)
	}
	return Fetch(ctx, opts.CacheDir, opts.Progress)
}

func (o *Options) setDefaults() error {
	if o.DataDir == "" {
		return errors.New("the ClickHouse engine needs a data directory")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("the engine's data directory: %w", err)
	}
	o.DataDir = dir
	if o.Host == "" {
		o.Host = DefaultHost
	}
	if ip := net.ParseIP(o.Host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("the ClickHouse engine listens on loopback addresses only, not on %q: for other hosts run a server with TLS and name it with --clickhouse", o.Host)
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMaxMemory
	}
	return nil
}

// makeConfig makes the content of the engine's configuration files.
func (l engineLaunch) makeConfig(embedded bool) engineConfig {
	c := engineConfig{
		Dir: l.opts.DataDir, Host: l.opts.Host, TCPPort: l.opts.TCPPort, HTTPPort: l.opts.HTTPPort,
		MaxMemory: l.opts.MaxMemory, KeepFree: 2 * MinFreeBytes, Database: conn.DatabaseName, Embedded: embedded,
		Owner: OwnerUser, OwnerHash: passwordHash(l.creds.Owner),
		Readonly: ReadonlyUser, ReadonlyHash: passwordHash(l.creds.Readonly),
		Auditors: l.auditors, NobodyHash: passwordHash(newPassword()),
	}
	c.Limits.Seconds, c.Limits.Memory, c.Limits.Queries = auditorSeconds, auditorMemory, auditorQueries
	return c
}

// useServer connects to the server that the options name.
func useServer(ctx context.Context, opts Options) (*Engine, error) {
	pool, err := conn.Open(ctx, opts.DSN)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	e := &Engine{kind: KindDSN, dsn: opts.DSN, readonlyDSN: opts.ReadonlyDSN, done: make(chan struct{})}
	if err := pool.QueryRow(ctx, "SELECT version()").Scan(&e.version); err != nil {
		return nil, fmt.Errorf("asking the ClickHouse server for its version: %w", err)
	}
	e.stopProc = func(context.Context) error { close(e.done); return nil }
	return e, nil
}

// startFailure explains why a child ended, or did not answer, during its start.
func startFailure(p *process, opts Options, cause error) error {
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

// failureExcerpt picks the explanation of a failure from a child's output: the first exception,
// or else the last lines.
func failureExcerpt(output string) string {
	for line := range strings.Lines(output) {
		if strings.Contains(line, "Exception") {
			return strings.TrimSpace(line)
		}
	}
	return lastLines(output, 3)
}

func portsText(o Options) string {
	text := fmt.Sprintf("%s:%d", o.Host, o.TCPPort)
	if o.HTTPPort != 0 {
		text += fmt.Sprintf(" or %s:%d", o.Host, o.HTTPPort)
	}
	return text
}
