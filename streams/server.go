package streams

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

// StartServer runs a server from cfg's rendered configuration, the same text
// that a deployment would use, and returns once it accepts connections and
// JetStream has recovered.
func StartServer(cfg ServerConfig) (*Server, error) {
	text, err := cfg.Render()
	if err != nil {
		return nil, err
	}
	return startServer(string(text), cfg.Log)
}

func startServer(text string, log zerolog.Logger) (*Server, error) {
	opts := &natsd.Options{}
	if err := opts.ProcessConfigString(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
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
// StartServer's error, the first about a failure to write Broken's.
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
