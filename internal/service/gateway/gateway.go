// Package gateway is the shell around package gateway (the mapping of HTTP to the pipeline's
// subjects): an HTTP server in front of NATS, for programs that have no NATS client. It serves one
// tenant, with the NATS user of the role gateway. It decides nothing: a caller's identity comes from a
// bearer token, a client certificate or a JWT, a verdict comes from the admitter, and every failure
// is an HTTP error or a refusal in the protocol's words. Begin with Run, then server.answer
// (serve.go), forward.go and stream.go.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/internal/httpserve"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/quota"
	"github.com/countersign-dev/countersign/internal/service/shares"
)

// ServiceName is the service's name in logs and metrics.
const ServiceName = "gateway"

// About says what the service is for.
const About = "Takes requests and events by HTTP, and hands them to the admitter and to ingest."

// Flags configure the service.
type Flags struct {
	daemon.Flags
	Tenant        string        `help:"The tenant that this gateway serves; its NATS user is the tenant's." env:"COUNTERSIGN_TENANT" default:"acme"`
	Listen        string        `help:"Address of the gateway. Without a certificate it must be on loopback." env:"COUNTERSIGN_GATEWAY_LISTEN" default:"127.0.0.1:8466" placeholder:"ADDR"`
	TLSCert       string        `name:"tls-cert" help:"Certificate chain, PEM; read again when it changes." env:"COUNTERSIGN_GATEWAY_TLS_CERT" placeholder:"FILE"`
	TLSKey        string        `name:"tls-key" help:"Private key of the certificate, PEM." env:"COUNTERSIGN_GATEWAY_TLS_KEY" placeholder:"FILE"`
	ClientCA      string        `name:"client-ca" help:"Certificates of the authorities whose client certificates are accepted, PEM; needs --tls-cert. A certificate lets in only what token create --certificate-subject has mapped." env:"COUNTERSIGN_GATEWAY_CLIENT_CA" placeholder:"FILE"`
	Issuer        string        `name:"oidc-issuer" help:"URL of the OIDC issuer whose JWTs are accepted; needs --oidc-audience. A JWT lets in only what token create --oidc-subject has mapped." env:"COUNTERSIGN_GATEWAY_OIDC_ISSUER" placeholder:"URL"`
	Audiences     []string      `name:"oidc-audience" help:"Audience that a JWT must name; of several one (repeat the flag, or separate them by commas)." env:"COUNTERSIGN_GATEWAY_OIDC_AUDIENCE" placeholder:"NAME"`
	CheckpointKey string        `help:"Public checkpoint key, or a file that holds it, with which the gateway checks receipts for callers that cannot (default: it checks none)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	Timeout       time.Duration `help:"How long a request waits for the admitter." env:"COUNTERSIGN_GATEWAY_TIMEOUT" default:"10s"`
	ReadTimeout   time.Duration `help:"How long a caller may take to send a request." env:"COUNTERSIGN_GATEWAY_READ_TIMEOUT" default:"15s"`
	MaxBody       int64         `help:"Bytes of the largest body." env:"COUNTERSIGN_GATEWAY_MAX_BODY" default:"1048576"`
	MaxInflight   int           `help:"Requests worked on at the same time; more are answered 503." env:"COUNTERSIGN_GATEWAY_MAX_INFLIGHT" default:"1024"`
	MaxStreams    int           `help:"Streams that are open at the same time; more are answered 429." env:"COUNTERSIGN_GATEWAY_MAX_STREAMS" default:"10000"`
	UserStreams   int           `help:"Streams of one token that are open at the same time." env:"COUNTERSIGN_GATEWAY_TOKEN_STREAMS" default:"64"`
	ManifestKey   string        `help:"Key file (a line of 64 hex digits) that signs the AAEP producer manifest; a key of the gateway's own. Without it the manifest is not signed." env:"COUNTERSIGN_GATEWAY_MANIFEST_KEY" placeholder:"FILE"`
	Languages     []string      `help:"Languages that the tenant's AAEP producers speak." env:"COUNTERSIGN_GATEWAY_LANGUAGES" default:"en"`
	Rate          int           `help:"Requests per second of one user; more are answered 429 (0: no limit)." env:"COUNTERSIGN_GATEWAY_RATE" default:"1000"`
}

// Main is the service's main function; it returns the exit code.
func Main(args []string) int {
	var f Flags
	return daemon.Main(ServiceName, About, args, &f, &f.Flags,
		func(ctx context.Context, env daemon.Env) error { return Run(ctx, f, env) })
}

// stopTimeout is for the requests under way when the gateway stops, which a supervisor kills after 15 s.
const stopTimeout = 10 * time.Second

// maxHeader is the size of the largest header, in bytes.
const maxHeader = 32 << 10

// Variables, for tests.
var (
	writeTimeout = 15 * time.Second // for a response, and for one write of a stream
	idleTimeout  = 2 * time.Minute  // for which a connection without a request stays open
	spareConns   = 6384             // connections beside those of streams; more are closed
)

func (f Flags) check() error {
	host, _, err := net.SplitHostPort(f.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen %q is not host:port", f.Listen)
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key belong together")
	case f.TLSCert == "" && !httpserve.IsLoopback(host):
		return fmt.Errorf("--listen %s is not on loopback: give --tls-cert and --tls-key, tokens must not travel in plain text", f.Listen)
	case f.ClientCA != "" && f.TLSCert == "":
		return errors.New("--client-ca needs --tls-cert and --tls-key")
	case (f.Issuer == "") != (len(f.Audiences) == 0) || slices.Contains(f.Audiences, ""):
		return errors.New("--oidc-issuer and --oidc-audience belong together")
	case f.Issuer != "" && !isSafeURL(f.Issuer):
		return errors.New("--oidc-issuer must be an https URL; http only on loopback")
	case f.MaxBody < 1 || f.MaxBody > 1<<20:
		return errors.New("--max-body must be 1 to 1048576: the pipeline takes no larger document")
	case f.Timeout <= 0 || f.ReadTimeout <= 0 || f.MaxInflight < 1 || f.MaxStreams < 1 || f.UserStreams < 1 || f.Rate < 0:
		return errors.New("the time-outs and the limits must be above zero; --rate may be 0")
	}
	return nil
}

// server serves the endpoints.
type server struct {
	flags    Flags
	env      daemon.Env
	nc       *nats.Conn
	asking   *client.RequestSender // over nc
	tokens   *tokenStore
	certs    *httpserve.Certificates // nil without TLS
	issuer   *issuer                 // nil if no JWTs are accepted
	rates    *quota.Meter
	inflight chan struct{}
	bodies   *shares.Shares // bytes of memory
	guard    *guard.Guard   // nil: no receipt can be checked
	count    *metrics.Gateway

	streams   *outputStreams
	approvals *approvals
	aaep      *aaepBridge

	retirements *view // of receipt keys; nil without guard
	stopping    atomic.Bool
	stopped     chan struct{}  // closed when the gateway stops: streams end
	taken       sync.WaitGroup // streams and WebSockets: http.Server does not wait for their connections
}

// noTokens says what it means that the tokens cannot be had.
const noTokens = "the tokens cannot be read; after some seconds no caller is signed in"

// Run serves until ctx ends, then answers the requests that it has begun and returns.
func Run(ctx context.Context, f Flags, env daemon.Env) error {
	if err := f.check(); err != nil {
		return err
	}
	nc, release, err := f.Connect(ctx, ServiceName, env, nil)
	if err != nil {
		return err
	}
	defer release()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s, err := newServer(f, env, nc)
	if err != nil {
		return err
	}
	s.asking = client.NewRequestSender(nc)
	defer s.asking.Close()
	if err := s.tokens.load(ctx); err != nil { // no admitter yet: callers are answered so until there is one
		env.Log.Warn().Err(err).Msg(noTokens)
		env.Health.Set(s.tokens.name, noTokens)
	}
	if s.guard != nil {
		s.retirements = newRetirements(js, s.guard)
		if err := s.retirements.load(ctx); err != nil {
			return fmt.Errorf("reading the receipt keys: %w", err)
		}
	}
	following, stop := context.WithCancel(ctx)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer stop()
	followers.Go(func() {
		s.tokens.follow(following, env, noTokens)
	})
	if s.retirements != nil {
		followers.Go(func() {
			s.retirements.follow(following, env, "the receipt keys cannot be read; after some seconds no receipt is checked")
		})
	}
	followers.Go(func() { s.streams.outputs.follow(following) })
	followers.Go(func() { s.streams.events.follow(following) })
	defer func() {
		if !s.stopping.Swap(true) { // it never served
			close(s.stopped)
		}
		s.taken.Wait()
	}()
	return s.listen(ctx)
}

func newServer(f Flags, env daemon.Env, nc *nats.Conn) (*server, error) {
	s := &server{
		issuer: newIssuer(f, env),
		flags:  f, env: env, nc: nc, tokens: newTokenStore(f, nc), rates: newRates(f.Rate),
		inflight: make(chan struct{}, f.MaxInflight), bodies: shares.New(bodyMemory), stopped: make(chan struct{}),
	}
	s.streams = newOutputStreams(s)
	s.approvals = &approvals{server: s, streams: s.streams}
	var err error
	if s.guard, err = f.newGuard(); err != nil {
		return nil, err
	}
	if s.aaep, err = newAAEPBridge(s, s.streams.events); err != nil {
		return nil, err
	}
	if f.TLSCert != "" {
		if s.certs, err = httpserve.NewCertificates(f.TLSCert, f.TLSKey, func(err error) {
			env.Log.Error().Err(err).Msg("the gateway's certificate cannot be read again; the earlier one stays in use")
		}); err != nil {
			return nil, err
		}
	}
	s.count = env.Metrics.Gateway(gateway.Answers(), gateway.Refusals(), metrics.GatewayState{
		Load: s.load, TokensEnding: s.tokens.endingSoon, CertificateEnds: s.certificateEnds,
	})
	return s, nil
}

// load is what the gateway works on now.
func (s *server) load() metrics.GatewayLoad {
	return metrics.GatewayLoad{
		Inflight: len(s.inflight), MaxInflight: s.flags.MaxInflight, Streams: s.streams.count.now(), Subscriptions: s.aaep.count.now(), MaxStreams: s.flags.MaxStreams,
	}
}

// certificateEnds is when the gateway's own certificate ends, if it has one.
func (s *server) certificateEnds() (at time.Time, known bool) {
	if s.certs == nil {
		return at, false
	}
	return s.certs.Ends(), true
}

// listen serves HTTP until ctx ends.
func (s *server) listen(ctx context.Context) error {
	inner, err := net.Listen("tcp", s.flags.Listen)
	if err != nil {
		return fmt.Errorf("the gateway's address: %w", err)
	}
	conns := s.flags.MaxStreams + spareConns
	listener, scheme := httpserve.Limit(inner, conns, max(1, conns/2)), "http" // one address shuts no other out
	if s.certs != nil {
		config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.certs.Current, NextProtos: []string{"http/1.1"}}
		if err := s.flags.askForCertificates(config); err != nil {
			return errors.Join(err, inner.Close())
		}
		listener, scheme = tls.NewListener(listener, config), "https"
	}
	srv := &http.Server{
		Handler: s.routes(), ReadTimeout: s.flags.ReadTimeout, WriteTimeout: s.flags.Timeout + s.flags.ReadTimeout + writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: quietLog(),
	}
	if s.env.Listening != nil {
		s.env.Listening(scheme + "://" + inner.Addr().String())
	}
	if err := s.env.Ready(); err != nil {
		return errors.Join(err, listener.Close())
	}
	return httpserve.Serve(ctx, stopTimeout, func() {
		s.stopping.Store(true)
		close(s.stopped)
	}, httpserve.Bound{Listener: listener, Server: srv})
}
