package mcpgate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/httpserve"
	"github.com/countersign-dev/countersign/internal/service/shares"
)

// ServeOptions are those of Serve.
type ServeOptions struct {
	Listen          string   // loopback, unless there are a certificate and PublicURL
	Cert, Key       string   // files
	PublicURL       string   // under which clients reach the gate; "" for the address itself
	Origins         []string // of web pages that may call the gate
	AuthorizationAt []string // issuers of the callers' tokens, for clients that ask
	Upstreams       []Upstream
	Peer            func() (gateclient.Peer, error) // the gateway: callers bring their own token
	Page            string                          // where a person decides, with {workflow}
	Hold            time.Duration
	Pins            func(server, caller string) (PinFile, error)
	Reads           bool
	Err             io.Writer
	Ready           func(url string) // called once the gate listens; may be nil
}

// Upstream is a server behind Serve: a URL or a command.
type Upstream struct {
	Name      string // the path under which it is served, and a part of its tools' names
	URL       string
	TokenFile string // the gate's own token for the URL
	Command   []string
}

// token is read for each request: the file may change.
func (u Upstream) token() (string, error) {
	if u.TokenFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(u.TokenFile)
	if err != nil {
		return "", errors.New("the token for it cannot be read")
	}
	return strings.TrimSpace(string(b)), nil
}

// Times and sizes of HTTP.
const (
	arrivalTime = 15 * time.Second // for a request to arrive
	writeTime   = 30 * time.Second // for a client to read one message
	stopTime    = 5 * time.Second  // for the last answers
	maxBody     = 4 << 20
	inputTime   = time.Minute // for a server to read one message
)

// server is a running Serve.
type server struct {
	o       ServeOptions
	ctx     context.Context // of all sessions
	log     *logger
	client  *http.Client // for upstreams
	hosts   []string     // that a request may name
	base    string       // URL of the gate
	origins []string     // of web pages that may call it, as browsers write them
	callers *callers
	now     func() time.Time
	arrival time.Duration // arrivalTime
	input   time.Duration // inputTime
	alive   time.Duration // keepAliveTime
	memory  *shares.Shares

	closing sync.WaitGroup // what closes in the background

	mu           sync.Mutex
	stopping     bool
	seats        map[seatKey]*seat
	sessions     map[string]*session
	conns        map[*conn]bool // all that are open
	sessionCount int
}

// Serve serves MCP servers over HTTP until ctx ends. Every caller shows a token of the gateway, under
// which its calls are admitted; no server gets to see it.
func Serve(ctx context.Context, o ServeOptions) error {
	if o.Hold == 0 {
		o.Hold = DefaultHold
	}
	listener, err := o.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	s, stop := newServer(o, listener.Addr())
	defer stop()
	if o.Ready != nil {
		o.Ready(s.base)
	}
	endSweeps := s.startSweeps()
	stopping := func() {
		endSweeps()
		s.stop() // what waits for a verdict is refused, and its answers still leave
	}
	return httpserve.Serve(ctx, stopTime, stopping, httpserve.Bound{Listener: listener, Server: newHTTPServer(s)})
}

// startSweeps sweeps until end is called; no sweep runs after its return.
func (s *server) startSweeps() (end func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		ticker := time.NewTicker(sweepInterval)
		defer ticker.Stop()
		for {
			select {
			case now := <-ticker.C:
				s.sweep(now)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		sweeping.Wait()
	}
}

func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: arrivalTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // it may quote what a client sent
	}
}

func newServer(o ServeOptions, address net.Addr) (*server, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	scheme := "http"
	if o.Cert != "" {
		scheme = "https"
	}
	s := &server{
		o: o, ctx: ctx, log: &logger{w: o.Err}, base: scheme + "://" + address.String(), callers: newCallers(), now: time.Now, arrival: arrivalTime, input: inputTime, alive: keepAliveTime, memory: shares.New(heldMemory),
		client: &http.Client{
			// A redirect would carry the token, and the call, to another address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		seats: map[seatKey]*seat{}, sessions: map[string]*session{}, conns: map[*conn]bool{},
	}
	if _, port, err := net.SplitHostPort(address.String()); err == nil && isLoopback(address.String()) {
		for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
			s.hosts = append(s.hosts, spellings(scheme, name+":"+port)...)
		}
	}
	for _, origin := range o.Origins {
		s.origins = append(s.origins, originOf(origin))
	}
	if u, err := url.Parse(o.PublicURL); err == nil && u.Host != "" {
		s.hosts = append(s.hosts, spellings(u.Scheme, u.Host)...)
		u.Host = spellings(u.Scheme, u.Host)[0]
		s.base = strings.TrimSuffix(u.String(), "/")
	}
	return s, cancel
}

var defaultPorts = map[string]string{"http": ":80", "https": ":443"}

// spellings are the ways in which clients write the host of a URL, in lower case: browsers leave out the default port.
func spellings(scheme, host string) []string {
	host = strings.ToLower(host)
	port := defaultPorts[scheme]
	short := strings.TrimSuffix(host, port)
	if u := (url.URL{Host: host}); short == host && u.Port() != "" {
		return []string{host}
	}
	return []string{short, short + port}
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && httpserve.IsLoopback(host)
}

// Check reports what is wrong with the options.
func (o ServeOptions) Check() error {
	switch {
	case len(o.Upstreams) == 0:
		return errors.New("say which servers to serve: --upstream NAME=URL or --upstream 'NAME=COMMAND'")
	case (o.Cert == "") != (o.Key == ""):
		return errors.New("--tls-cert and --tls-key go together")
	case !isLoopback(o.Listen) && (o.Cert == "" || o.PublicURL == ""):
		return fmt.Errorf("--listen %s is not on loopback: give --tls-cert, --tls-key and --public-url; tokens must not travel in clear", o.Listen)
	}
	var names []string
	for _, u := range o.Upstreams {
		if slices.Contains(names, u.Name) {
			return fmt.Errorf("two servers have the name %s", u.Name)
		}
		names = append(names, u.Name)
		if u.URL != "" && gateclient.CheckURL(u.URL) != nil {
			return fmt.Errorf("the address of the server %s must begin with https://, or with http:// and name this machine", u.Name)
		}
	}
	for _, origin := range o.Origins {
		if u := bareURL(origin); u == nil || strings.Trim(u.Path, "/") != "" {
			return fmt.Errorf("--origin %s must be an origin like https://app.example", gateclient.Clean(origin))
		}
	}
	if o.PublicURL != "" && (bareURL(o.PublicURL) == nil || gateclient.CheckURL(o.PublicURL) != nil) {
		return errors.New("--public-url must be an address like https://mcp.example")
	}
	return nil
}

// bareURL reads a URL of a scheme, a host and a path, nil if it is none or has more.
func bareURL(address string) *url.URL {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil
	}
	return u
}

func (o ServeOptions) listen() (net.Listener, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return listen(o.Listen, o.Cert, o.Key, "", "http/1.1", &logger{w: o.Err})
}

// Bounds of connections.
const (
	maxConns         = 1024
	maxConnsOfRemote = 256 // from one address that is not this machine's
)

// listen listens on an address, with TLS and a protocol of HTTP if there is a certificate. With clientCA, a
// file, a client needs a certificate, too.
func listen(address, cert, key, clientCA, protocol string, log *logger) (net.Listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	l := httpserve.Limit(inner, maxConns, maxConnsOfRemote)
	if cert == "" {
		return l, nil
	}
	c, err := tlsConfig(cert, key, clientCA, protocol, log)
	if err != nil {
		l.Close()
		return nil, err
	}
	return tls.NewListener(l, c), nil
}

func tlsConfig(cert, key, clientCA, protocol string, log *logger) (*tls.Config, error) {
	certificates, err := httpserve.NewCertificates(cert, key, func(err error) {
		log.print("the certificate cannot be read again, the earlier one stays in use: " + err.Error())
	})
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	c := &tls.Config{GetCertificate: certificates.Current, MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}
	if clientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("--client-ca has no certificate")
	}
	return c, nil
}
