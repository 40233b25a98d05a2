// Package embedded runs a nats-server in this process. `countersign up` and tests use it; it is
// the only package that links the server, so other programs stay small. Begin with Start, which
// takes the configuration that streams.ServerConfig.Render writes.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// noteEvery is how often a start that takes long is noted in the log.
const noteEvery = 10 * time.Second

// errorLines is how many of the server's errors are logged in a second, except that a failed write always is.
const errorLines = 20

// Server is an embedded nats-server. It handles no signals; its owner must call Shutdown.
type Server struct {
	ns     *natsd.Server
	broken chan error
}

// ErrStore: the server could not write to its store and must be restarted.
var ErrStore = errors.New("embedded: the store could not be written")

// Start runs a server with the given nats-server configuration. It returns when the server
// accepts connections and JetStream has recovered, or when ctx ends, which bounds only the start.
// After an unclean end the server reads its whole store again first, however long that takes. log
// receives the server's messages.
func Start(ctx context.Context, config []byte, log zerolog.Logger) (*Server, error) {
	opts := &natsd.Options{}
	if err := opts.ProcessConfigString(string(config)); err != nil {
		return nil, fmt.Errorf("reading the NATS server's configuration: %w", err)
	}
	opts.NoSigs = true
	ns, err := natsd.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("creating the NATS server: %w", err)
	}
	fatal := make(chan string, 1)
	s := &Server{ns, make(chan error, 1)}
	bounded := log.Sample(&zerolog.BurstSampler{Burst: errorLines, Period: time.Second})
	ns.SetLoggerV2(serverLog{log, bounded, fatal, s.broken}, false, false, false)
	go ns.Start()
	if err := s.awaitReady(ctx, fatal, log); err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("starting the NATS server on %s:%d (store directory %s): %w", opts.Host, opts.Port, opts.StoreDir, err)
	}
	if opts.JetStream && !ns.JetStreamEnabled() {
		s.Shutdown()
		return nil, fmt.Errorf("JetStream did not start: is the store directory %s writable?", opts.StoreDir)
	}
	return s, nil
}

func (s *Server) awaitReady(ctx context.Context, fatal <-chan string, log zerolog.Logger) error {
	begun := time.Now()
	noted := begun
	for {
		select {
		case msg := <-fatal:
			return errors.New(msg)
		case <-ctx.Done():
			return fmt.Errorf("not ready after %v: %w", time.Since(begun).Round(time.Second), context.Cause(ctx))
		default:
		}
		if s.ns.ReadyForConnections(100 * time.Millisecond) {
			return nil
		}
		if time.Since(noted) >= noteEvery {
			noted = time.Now()
			log.Warn().Dur("after", noted.Sub(begun)).Msg("the NATS server is not ready yet: after an unclean end it reads its whole store again")
		}
	}
}

// Reload puts another configuration in force: accounts and users that are added count at once, and no
// other connection ends. Only accounts and users may differ.
//
// The server makes a new account in one reload, and subscribes to the subjects that an account imports
// only if the account was there before the reload. So a new account's requests arrive after the second
// reload of the same configuration.
func (s *Server) Reload(config []byte) error {
	for range 2 {
		opts := &natsd.Options{}
		if err := opts.ProcessConfigString(string(config)); err != nil {
			return fmt.Errorf("reading the NATS server's configuration: %w", err)
		}
		opts.NoSigs = true
		if err := s.ns.ReloadOptions(opts); err != nil {
			return fmt.Errorf("reloading the NATS server's configuration: %w", err)
		}
	}
	return nil
}

// ClientURL is the URL for clients.
func (s *Server) ClientURL() string { return s.ns.ClientURL() }

// Broken delivers the first failure to write to the store, for example because the disk is full.
// After it the server refuses every message for that stream, even when there is space again. An
// atomic batch that it was storing is completed only if the server process ends soon, without
// Shutdown, and starts again where it can write; otherwise half of the batch stays.
func (s *Server) Broken() <-chan error { return s.broken }

// Shutdown stops the server and waits until everything is written.
func (s *Server) Shutdown() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// serverLog forwards the server's messages. The first fatal message becomes Start's error, and
// the first one about a failure to write is sent to Broken.
type serverLog struct {
	log    zerolog.Logger
	errors zerolog.Logger // a client can cause an error with each message, so their lines are bounded
	fatal  chan<- string
	broken chan<- error
}

// isWriteFailure reports whether a log call is that of a failed write; the server reports it in no other
// way. What a client chooses (the name of a user, a header) is quoted in lines of the server, too. So
// the text alone proves nothing: a line about a client has another format, which begins with the
// client's address, and of a store's line the argument is an error.
func isWriteFailure(f string, v []any) bool {
	if len(v) != 1 {
		return false
	}
	switch arg := v[0].(type) {
	case string: // Server.RateLimitErrorf, which the server calls only here
		return f == "%s" && strings.HasPrefix(arg, "JetStream failed to store a msg on stream '")
	case error:
		return strings.HasSuffix(f, "] Critical write error: %v") && (strings.HasPrefix(f, "Filestore [") || strings.HasPrefix(f, "RAFT ["))
	}
	return false
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug().Msgf(f, v...) }
func (l serverLog) Debugf(f string, v ...any)  { l.log.Trace().Msgf(f, v...) }
func (l serverLog) Tracef(f string, v ...any)  { l.log.Trace().Msgf(f, v...) }
func (l serverLog) Errorf(f string, v ...any) {
	msg := fmt.Sprintf(f, v...)
	if !isWriteFailure(f, v) {
		l.errors.Error().Msg(msg)
		return
	}
	l.log.Error().Msg(msg)
	select {
	case l.broken <- fmt.Errorf("%w: %s", ErrStore, msg):
	default: // a failure was reported before
	}
}
func (l serverLog) Fatalf(f string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(f, v...):
	default:
		l.log.Error().Msgf(f, v...)
	}
}
func (l serverLog) Warnf(f string, v ...any) {
	if strings.HasPrefix(f, "Plaintext passwords detected") {
		return // intended: the configuration has mode 0600 or never leaves the process
	}
	l.log.Warn().Msgf(f, v...)
}
