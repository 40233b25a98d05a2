package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// oldestProgram is the first release with skip indexes on the elements of tuples.
var oldestProgram = release{24, 12}

// findProgram returns the clickhouse program on PATH, or "" if there is none, or it is too old for
// the schema or for data that a newer engine has written.
func findProgram(ctx context.Context, log zerolog.Logger, written release) string {
	path, err := exec.LookPath("clickhouse")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	_, text, _ := strings.Cut(string(out), "version ")
	version, found := parseRelease(text)
	if err != nil || !found {
		log.Warn().Str("path", path).Err(err).Msg("passing over a clickhouse program that does not tell its version")
		return ""
	}
	if version.olderThan(oldestProgram) {
		log.Warn().Str("path", path).Stringer("version", version).Msg("passing over a clickhouse program that is too old (24.12 is the oldest that will do)")
		return ""
	}
	if version.olderThan(written) {
		log.Warn().Str("path", path).Stringer("version", version).Stringer("written_by", written).Msg("passing over a clickhouse program that is older than the engine that wrote the data")
		return ""
	}
	return path
}

// startBinary runs the clickhouse program as a server with the configuration of l.
func startBinary(ctx context.Context, l engineLaunch, program string) (*Engine, error) {
	if l.opts.TCPPort == 0 { // a server cannot choose one itself
		port, err := freePort(l.opts.Host)
		if err != nil {
			return nil, err
		}
		l.opts.TCPPort = port
	}
	conf := l.makeConfig(false)
	if err := conf.write(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's file: %w", err)
	}
	argv := []string{self, engineArg, childExec, program, "server", "--config-file=" + conf.Path(configFile)}
	env := append(os.Environ(), "CLICKHOUSE_WATCHDOG_ENABLE=0") // its watchdog would be the child, the server a grandchild
	p, err := startProcess("", argv, env, []*os.File{l.locks.engine}, l.opts.Log)
	if err != nil {
		return nil, err
	}
	if err := l.locks.markHolder(p.pid()); err != nil {
		p.kill()
		return nil, err
	}
	e := l.newEngine(KindBinary, p, l.opts.TCPPort)
	if err := p.awaitAnswer(ctx, e.prepareDatabase); err != nil {
		p.kill()
		return nil, startFailure(p, l.opts, err)
	}
	return e.watchProcess(e.stopBinary), nil
}

// answerPoll is the interval at which awaitAnswer asks a starting server.
const answerPoll = 50 * time.Millisecond

// awaitAnswer calls ask until it succeeds, the child ends or ctx ends.
func (p *process) awaitAnswer(ctx context.Context, ask func(context.Context) error) error {
	tick := time.NewTicker(answerPoll)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.New(p.state)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// stopBinary sends SIGTERM; the server then finishes its queries and exits.
func (e *Engine) stopBinary(ctx context.Context) error {
	return e.proc.stopWith(ctx, func() error { return e.proc.cmd.Process.Signal(syscall.SIGTERM) })
}

// freePort returns a port that is free now. If another process takes it before the server
// does, the start fails with an error that says so.
func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("finding a free port on %s: %w", host, err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
