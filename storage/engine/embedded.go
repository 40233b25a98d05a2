package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage/conn"
)

// blockingQuery keeps `clickhouse local` running until the query is killed. The engine notices
// that at the end of a block, so a stop waits up to 0.2 s for it. Its own session asks
// for progress ten times a second by default.
const blockingQuery = "SELECT sleepEachRow(0.2) FROM system.numbers SETTINGS max_block_size = 1, max_threads = 1, max_execution_time = 0, interactive_delay = 10000000 FORMAT Null"

// stopQuery kills blockingQuery. The engine shows the user of its own session as an empty name
// or as default.
const stopQuery = "KILL QUERY WHERE user IN ('', 'default') ASYNC"

// startEmbedded runs the library in a child of this program. The child inherits the engine's
// lock of the data directory, so the lock is held as long as the child lives. Relative paths of the
// engine's users begin in its working directory, an empty folder.
func startEmbedded(ctx context.Context, l engineLaunch, lib string) (*Engine, error) {
	conf := l.makeConfig(true)
	if err := conf.write(); err != nil {
		return nil, err
	}
	if err := os.Remove(conf.Path(portFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("preparing the engine's data directory: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's file: %w", err)
	}
	if lib, err = filepath.Abs(lib); err != nil {
		return nil, fmt.Errorf("finding the engine's library: %w", err)
	}
	argv := append([]string{self, engineArg, childEmbedded, lib}, conf.commandArgs()...)
	p, err := startProcess(conf.Path(userFolder), argv, os.Environ(), []*os.File{l.locks.engine}, l.opts.Log)
	if err != nil {
		return nil, err
	}
	if err := l.locks.markHolder(p.pid()); err != nil {
		p.kill()
		return nil, err
	}
	port, err := p.awaitPort(ctx, conf.Path(portFile))
	if err != nil {
		p.kill()
		return nil, startFailure(p, l.opts, err)
	}
	e := l.newEngine(KindEmbedded, p, port)
	if err := e.prepareDatabase(ctx); err != nil {
		p.kill()
		return nil, startFailure(p, l.opts, err)
	}
	return e.watchProcess(e.stopEmbedded), nil
}

// commandArgs are the arguments of `clickhouse local`. The first one must be an option.
func (c engineConfig) commandArgs() []string {
	args := []string{
		"clickhouse-local", "--config-file=" + c.Path(configFile), "--path=" + c.Path(dataFolder),
		"--listen_host", c.Host, "--tcp_port", strconv.Itoa(c.TCPPort),
	}
	listen := "SYSTEM START LISTEN TCP; "
	if c.HTTPPort != 0 {
		args = append(args, "--http_port", strconv.Itoa(c.HTTPPort))
		listen = "SYSTEM START LISTEN HTTP; " + listen
	}
	ports := "SELECT getServerPort('tcp_port') INTO OUTFILE " + conn.QuoteString(c.Path(portFile)) + " FORMAT TSV; "
	return append(args, "--query", listen+ports+blockingQuery)
}

// portPoll is the interval at which awaitPort looks for a starting engine's port file.
const portPoll = 3 * time.Millisecond

// awaitPort waits for the file into which the engine writes its port when it listens.
func (p *process) awaitPort(ctx context.Context, path string) (int, error) {
	tick := time.NewTicker(portPoll)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(b), "\n") {
			return strconv.Atoi(strings.TrimSpace(string(b)))
		}
		select {
		case <-p.done:
			return 0, errors.New(p.state)
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}

// stopEmbedded kills the blocking query; the engine then closes its tables and its process
// exits.
func (e *Engine) stopEmbedded(ctx context.Context) error {
	return e.proc.stopWith(ctx, func() error {
		return withConn(e.controlDSN, func(c clickhouse.Conn) error { return c.Exec(ctx, stopQuery) })
	})
}
