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
type Server struct{ ns *natsd.Server }

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
	ns.SetLoggerV2(serverLog{log, fatal}, false, false, false)
	s := &Server{ns}
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

// Shutdown stops the server and waits until everything is written.
func (s *Server) Shutdown() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// WaitForShutdown returns once the server has stopped.
func (s *Server) WaitForShutdown() { s.ns.WaitForShutdown() }

// serverLog passes the server's messages on; the first fatal one becomes
// StartServer's error.
type serverLog struct {
	log   zerolog.Logger
	fatal chan<- string
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug().Msgf(f, v...) }
func (l serverLog) Debugf(f string, v ...any)  { l.log.Trace().Msgf(f, v...) }
func (l serverLog) Tracef(f string, v ...any)  { l.log.Trace().Msgf(f, v...) }
func (l serverLog) Errorf(f string, v ...any)  { l.log.Error().Msgf(f, v...) }
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
