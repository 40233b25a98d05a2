// Package embedded runs a nats-server in this process: for `countersign up`, and
// for tests. Nothing else links the server.
package embedded

import (
	"errors"
	"fmt"
	"strings"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

const readyTimeout = 30 * time.Second

// Server is an embedded nats-server. It handles no signals; its owner must
// call Shutdown.
type Server struct {
	ns     *natsd.Server
	broken chan error
}

// ErrStore: the server could not write to its store and must be started anew.
var ErrStore = errors.New("embedded: the store could not be written")

// Start runs a server from a configuration, the text that a deployment would give
// to nats-server, and returns once the server accepts connections and JetStream
// has recovered. log receives the server's messages.
func Start(config []byte, log zerolog.Logger) (*Server, error) {
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
	ns.SetLoggerV2(serverLog{log, fatal, s.broken}, false, false, false)
	go ns.Start()
	if err := s.awaitReady(fatal); err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("starting the NATS server on %s:%d (store directory %s): %w", opts.Host, opts.Port, opts.StoreDir, err)
	}
	if opts.JetStream && !ns.JetStreamEnabled() {
		s.Shutdown()
		return nil, fmt.Errorf("JetStream did not start: is the store directory %s writable?", opts.StoreDir)
	}
	return s, nil
}

func (s *Server) awaitReady(fatal <-chan string) error {
	const step = 100 * time.Millisecond
	for waited := time.Duration(0); waited < readyTimeout; waited += step {
		if s.ns.ReadyForConnections(step) {
			return nil
		}
		select {
		case msg := <-fatal:
			return errors.New(msg)
		default:
		}
	}
	return fmt.Errorf("not ready within %v", readyTimeout)
}

// ClientURL is where clients connect.
func (s *Server) ClientURL() string { return s.ns.ClientURL() }

// MonitorURL is the monitoring address, empty if there is none.
func (s *Server) MonitorURL() string {
	if a := s.ns.MonitorAddr(); a != nil {
		return "http://" + a.String()
	}
	return ""
}

// Broken delivers the first failure to write to the store: the disk was full, say.
// From then on the server refuses everything that is for that stream, room or not,
// and what it does with an atomic batch that it had begun to store is right only
// if it ends soon, without Shutdown, and starts again where it can write: then it
// completes the batch, and otherwise half of it stays.
func (s *Server) Broken() <-chan error { return s.broken }

// Shutdown stops the server and waits until everything is written.
func (s *Server) Shutdown() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// WaitForShutdown returns once the server has stopped.
func (s *Server) WaitForShutdown() { s.ns.WaitForShutdown() }

// serverLog passes the server's messages on; the first fatal one becomes
// Start's error, the first about a failure to write Broken's.
type serverLog struct {
	log    zerolog.Logger
	fatal  chan<- string
	broken chan<- error
}

// What the server logs when it could not write: nothing else tells.
var writeFailures = []string{"JetStream failed to store a msg on stream", "Critical write error"}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug().Msgf(f, v...) }
func (l serverLog) Debugf(f string, v ...any)  { l.log.Trace().Msgf(f, v...) }
func (l serverLog) Tracef(f string, v ...any)  { l.log.Trace().Msgf(f, v...) }
func (l serverLog) Errorf(f string, v ...any) {
	msg := fmt.Sprintf(f, v...)
	l.log.Error().Msg(msg)
	for _, failure := range writeFailures {
		if strings.Contains(msg, failure) {
			select {
			case l.broken <- fmt.Errorf("%w: %s", ErrStore, msg):
			default: // not the first
			}
		}
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
		return // by design: the configuration is 0600 or never leaves the process
	}
	l.log.Warn().Msgf(f, v...)
}
