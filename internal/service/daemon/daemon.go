// Package daemon has what the services share: flags, logging, signals, health report, exit codes,
// the connection to NATS and the lease of a shard. A service's main function calls Main with its
// own flags and its run function. Begin reading with Main.
package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/streams"
)

// Exit codes of the services.
const (
	ExitOK           = 0
	ExitFailed       = 1
	ExitUsage        = 2
	ExitFenced       = 3 // another instance is active on the shard, or may be
	ExitUntrustedLog = 4 // the log lost messages, or is not the one of the evidence
	ExitStopped      = ExitOK
)

// Flags are the flags of every service. Each can be set in the environment, as systemd units and
// `up` do.
type Flags struct {
	Server   string           `help:"NATS server URL; of a cluster all of them, separated by commas." env:"COUNTERSIGN_NATS_URL" default:"nats://127.0.0.1:4222"`
	User     string           `help:"NATS user." env:"COUNTERSIGN_NATS_USER"`
	Password string           `help:"NATS password (set it in the environment)." env:"COUNTERSIGN_NATS_PASSWORD"`
	Creds    string           `help:"NATS credentials file, instead of user and password." env:"COUNTERSIGN_NATS_CREDS" placeholder:"FILE"`
	Inbox    string           `name:"inbox-prefix" help:"Reply inbox prefix this user may subscribe to (default: _INBOX_<user>)." env:"COUNTERSIGN_INBOX_PREFIX"`
	Prefix   string           `help:"First token of every subject." env:"COUNTERSIGN_PREFIX" default:"gov"`
	Stream   string           `help:"Name of the shard's stream." env:"COUNTERSIGN_STREAM" default:"GOV"`
	Keys     string           `help:"Directory of the key files." env:"COUNTERSIGN_KEYS" default:"/etc/countersign/keys" placeholder:"DIR"`
	Instance string           `name:"instance" help:"Name of this place, if one process of the service runs in it at a time: its successor takes over at once." env:"COUNTERSIGN_INSTANCE"`
	HTTP     string           `name:"http" help:"Address of the health endpoint and the metrics, e.g. 127.0.0.1:0 (off when empty)." env:"COUNTERSIGN_HTTP" placeholder:"ADDR"`
	Version  kong.VersionFlag `help:"Print the version and exit."`
	LogLevel string           `help:"debug, info, warn or error." env:"COUNTERSIGN_LOG_LEVEL" enum:"debug,info,warn,error" default:"info"`
}

// Space is the subject space of the configured prefix.
func (f Flags) Space() subject.Space { return subject.Space{Prefix: f.Prefix} }

// Connect connects to NATS as the service. While the connection is lost the service is unhealthy;
// back, which may be nil, is called after every reconnect. The caller calls release at the end,
// which also closes the connection.
func (f Flags) Connect(ctx context.Context, name string, env Env, back func(*nats.Conn)) (nc *nats.Conn, release func(), err error) {
	nc, err = streams.Connect(ctx, streams.ConnectOptions{
		URL: f.Server, User: f.User, Password: f.Password, CredsFile: f.Creds, InboxPrefix: f.Inbox, Name: "countersign " + name, Log: env.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	handled := nc.Stats().Reconnects
	status := nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for range status { // drops changes while back works, so each one is a reason to look (TestChangesThatAreDropped)
			connected := nc.IsConnected()
			env.Health.setLost(nc, !connected)
			if now := nc.Stats().Reconnects; connected && now != handled && back != nil {
				handled = now
				back(nc)
			}
		}
	}()
	return nc, func() {
		nc.RemoveStatusListener(status)
		nc.Close()
		<-watched
		env.Health.setLost(nc, false) // the service has released it
	}, nil
}

// Env is what a service gets beside its flags. The service must call Ready once it answers.
type Env struct {
	Log     zerolog.Logger
	Health  *Health
	Metrics *metrics.Registry // nil: nothing exposes them
	Ready   func() error
	// OnBegun is called by Begun. It may be nil.
	OnBegun func()
	// Listening names the address of a service that its callers reach by HTTP. It may be nil; it
	// is called before Ready.
	Listening func(url string)
}

// Begun reports that the service begins to read the log, and will be ready when it has read all of it.
func (e Env) Begun() {
	if e.OnBegun != nil {
		e.OnBegun()
	}
}

// ReportUnopenedKey reports, until the service ends, that a session's key does not open and is substituted.
func (e Env) ReportUnopenedKey(err error) {
	const next = "find out which user wrote it, then erase the session (docs/retention.md)"
	e.Log.Error().Err(err).Msg("a substitute is used for a session's key: no digest or commitment made with the right one can be checked; " + next)
	e.Health.Set("unopened_keys", err.Error()+"; "+next)
}

// ErrFenced reports that another instance of the service is active on the shard, or may be; this one
// must stop (exit code 3).
var ErrFenced = errors.New("this instance is not the active one of the shard any more")

// ErrUntrustedLog reports that the log lost messages, as do a *streams.GapError and streams.ErrRewound, or is not the
// one that the evidence is of. Until an operator has found out why, no service may write to it (exit code 4).
var ErrUntrustedLog = errors.New("the log cannot be trusted")

// Main parses the flags of a service into cli, which embeds Flags, runs the service until it
// fails or is stopped, and returns the exit code. The service survives a JetStream without a
// leader (RunAgain). The first SIGTERM or SIGINT stops cleanly, the second one at once.
func Main(name, about string, args []string, cli any, flags *Flags, run func(context.Context, Env) error) int {
	parser, err := kong.New(cli, kong.Name(name), kong.Description(about), kong.Vars{"version": name + " " + buildinfo.Version()})
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return ExitUsage
	}
	if _, err := parser.Parse(args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v (see %s --help)\n", name, err, name)
		supervise.Failed(err)
		return ExitUsage
	}
	log := Logger(os.Stderr, flags.LogLevel).With().Str("service", name).Logger()

	ctx, stop := signal.NotifyContext(supervise.Attach(context.Background()), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal now ends the process at once

	health := NewHealth()
	counts := metrics.New(name)
	counts.Health(health.Status)
	url, closeHTTP, err := health.Serve(flags.HTTP, map[string]http.Handler{"GET /metrics": counts})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		supervise.Failed(err)
		return ExitFailed
	}
	defer closeHTTP()
	var began, told sync.Once // a service that is run again becomes ready again
	info := ReadyInfo{PID: os.Getpid(), HTTP: url}
	env := Env{Log: log, Listening: func(at string) { info.URL = at }, Health: health, Metrics: counts, Ready: func() (err error) {
		health.SetReady()
		log.Info().Str("http", url).Msg("ready")
		told.Do(func() { err = supervise.Ready(info) })
		return err
	}, OnBegun: func() {
		began.Do(func() { _ = supervise.Begun(info) })
	}}
	err = RunAgain(ctx, env, run)
	switch {
	case ctx.Err() != nil:
		log.Info().Msg("stopped")
		return ExitStopped
	case err != nil:
		supervise.Failed(err)
		return exitCode(log, err)
	}
	return ExitOK
}

// IsUntrusted reports whether an error says that the log cannot be trusted (ErrUntrustedLog).
func IsUntrusted(err error) bool {
	var gap *streams.GapError
	return errors.Is(err, ErrUntrustedLog) || errors.Is(err, streams.ErrRewound) || errors.As(err, &gap)
}

// exitCode logs the error of a service and returns its exit code.
func exitCode(log zerolog.Logger, err error) int {
	switch {
	case errors.Is(err, ErrFenced):
		log.Error().Err(err).Msg("stepping down")
		return ExitFenced
	case IsUntrusted(err):
		log.Error().Err(err).Msg("failed; nothing may write to this log")
		return ExitUntrustedLog
	}
	log.Error().Err(err).Msg("failed")
	return ExitFailed
}

// ReadyInfo is what a service reports to its supervisor.
type ReadyInfo struct {
	PID  int    `json:"pid"`
	HTTP string `json:"http,omitempty"`
	URL  string `json:"url,omitempty"` // of a service that its callers reach by HTTP
}

// Logger writes JSON lines, or readable ones if w is a terminal.
func Logger(w io.Writer, level string) zerolog.Logger {
	l, err := zerolog.ParseLevel(level)
	if err != nil {
		l = zerolog.InfoLevel
	}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		w = zerolog.ConsoleWriter{Out: f, TimeFormat: "15:04:05.000"}
	}
	return zerolog.New(w).Level(l).With().Timestamp().Logger()
}

// HoldLease waits until this instance is the active one of a service on the shard. The caller
// works under the context of the lease and releases it after its last write. standby, which may
// be nil, is called once if another instance is active.
func (f Flags) HoldLease(ctx context.Context, js jetstream.JetStream, service string, env Env, standby func() error) (*lease.Lease, error) {
	kv, err := streams.OpenBucket(ctx, js, streams.BucketLeases)
	if err != nil {
		return nil, err
	}
	opt := f.LeaseOptions(service, env)
	ctx, cancel := context.WithCancelCause(ctx)
	l, err := lease.Hold(ctx, kv, opt, func(holder string) {
		env.Log.Info().Str("active", holder).Msg("another instance is active on this shard; standing by")
		env.Health.SetRole(f.Stream, RoleStandby)
		if standby != nil {
			if err := standby(); err != nil {
				cancel(err)
			}
		}
	})
	if err != nil {
		defer cancel(nil)
		return nil, errors.Join(err, context.Cause(ctx))
	}
	env.Log.Info().Msg("active on this shard")
	env.Health.SetRole(f.Stream, RoleActive)
	return l, nil
}

// LeaseOptions are the options of the lease of a service on the shard.
func (f Flags) LeaseOptions(service string, env Env) lease.Options {
	host, _ := os.Hostname()
	return lease.Options{
		Key: service + "." + f.Stream, Place: f.Instance, Log: env.Log, Report: func(problem string) { env.Health.Set("lease", problem) },
		// Two processes may have the same id, each in its container.
		Holder: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()),
	}
}

// LeaseError turns the error of work under a lease into ErrFenced if the lease is lost.
func LeaseError(l *lease.Lease, err error) error {
	if cause := context.Cause(l.Context()); errors.Is(cause, lease.ErrLost) {
		return fmt.Errorf("%w: %w", ErrFenced, cause)
	}
	return err
}
