// Package servicetest sets up the real environment for tests of the services: an embedded NATS
// server with every role, provisioned, and a directory of keys. Only tests import it. Begin with
// Start and Run.
package servicetest

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// Guard bounds every wait. A passing test never reaches it, even on a busy machine.
const Guard = testkit.Guard

// Names used by tests. Every user's password is "pw-" and its name.
const (
	Tenant  = "acme"
	Runtime = "rt1"
	Gateway = "gw1"
)

// OK fails the test on an error.
var OK = testkit.OK

// SkipShort skips a test under -short, which starts no server.
func SkipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a server: left out of -short")
	}
}

// Eventually polls a condition until it holds.
var Eventually = testkit.Eventually

// NATS is a provisioned server.
type NATS struct {
	tb    testing.TB
	cfg   streams.ServerConfig
	shard streams.Shard
	srv   *embedded.Server
	url   string // URLs of a cluster; empty: use srv
	Keys  string // directory of key files
}

// Start runs a server until the test ends. shard sets how the log is provisioned; its zero value
// is the default.
func Start(tb testing.TB, shard streams.Shard) *NATS {
	tb.Helper()
	return StartWith(tb, shard, func(*streams.ServerConfig) {})
}

// StartWith is Start with a changed server configuration.
func StartWith(tb testing.TB, shard streams.Shard, change func(*streams.ServerConfig)) *NATS {
	tb.Helper()
	n := newNATS(tb, shard)
	change(&n.cfg)
	n.startServer()
	tb.Cleanup(func() { n.srv.Shutdown() })
	return n
}

// newNATS makes the configuration and the keys.
func newNATS(tb testing.TB, shard streams.Shard) *NATS {
	tb.Helper()
	SkipShort(tb)
	user := func(name string, r streams.Role) streams.User {
		return streams.User{Name: name, Password: "pw-" + name, Role: r}
	}
	role := func(r streams.Role) streams.User { return user(string(r), r) }
	n := &NATS{tb: tb, shard: shard, Keys: tb.TempDir(), cfg: streams.ServerConfig{
		Name: "rig", StoreDir: tb.TempDir(), Shard: shard.Name,
		Services: []streams.User{role(streams.RoleProvisioner), role(streams.RoleAdmitter), role(streams.RoleCorrelator),
			role(streams.RoleAuditor), role(streams.RoleCustodian), role(streams.RoleOperator), role(streams.RoleWitness)},
		Tenants: []streams.Tenant{
			{Name: Tenant, Users: []streams.User{user(Runtime, streams.RoleRuntime), user("rt2", streams.RoleRuntime), role(streams.RoleSubscriber),
				user("dana", streams.RoleReviewer), user("eve", streams.RoleReviewer), user(Gateway, streams.RoleGateway)}},
			{Name: "globex", Users: []streams.User{user("mallory", streams.RoleRuntime), user("gus", streams.RoleReviewer)}},
		},
	}}
	OK(tb, keys.Ensure(n.Keys, keys.ReceiptFile, keys.CheckpointFile, keys.MasterFile))
	_, err := keys.Vouch(n.Keys, time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC))
	OK(tb, err)
	return n
}

// KeysWithAnother is a copy of the key directory in which one key is another one.
func (n *NATS) KeysWithAnother(name string) (dir string) {
	n.tb.Helper()
	dir = n.tb.TempDir()
	OK(n.tb, os.CopyFS(dir, os.DirFS(n.Keys)))
	OK(n.tb, os.Remove(filepath.Join(dir, name)))
	OK(n.tb, keys.Ensure(dir, name))
	for _, private := range []string{keys.ReceiptFile, keys.CheckpointFile, keys.MasterFile} {
		OK(n.tb, os.Chmod(filepath.Join(dir, private), 0o600))
	}
	return dir
}

func (n *NATS) startServer() {
	n.tb.Helper()
	config, err := n.cfg.Render()
	OK(n.tb, err)
	services := bytes.Index(config, []byte(`"`+streams.ServicesAccount+`" {`))
	config = slices.Insert(config, services+bytes.Index(config[services:], []byte("users: ["))+len("users: ["), []byte("\n{ user: administrator, password: pw-administrator }\n")...)
	n.srv, err = embedded.Start(context.Background(), config, zerolog.Nop())
	OK(n.tb, err)
	n.Provision()
}

// Provision creates missing streams and buckets.
func (n *NATS) Provision() {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	_, err := streams.Provision(ctx, n.JS(string(streams.RoleProvisioner)), n.shard)
	OK(n.tb, err)
}

// Stop stops the server; Restart starts it again at the same address with its stored data.
func (n *NATS) Stop() {
	n.tb.Helper()
	u, err := url.Parse(n.srv.ClientURL())
	OK(n.tb, err)
	n.cfg.Port, err = strconv.Atoi(u.Port())
	OK(n.tb, err)
	n.srv.Shutdown()
}

// DeleteStream deletes a stream as an administrator of the server can; no role of Countersign may. The
// server and its connections stay up.
func (n *NATS) DeleteStream(name string) {
	n.tb.Helper()
	OK(n.tb, n.JS("administrator").DeleteStream(context.Background(), name))
}

// Restart starts a server that was stopped by Stop.
func (n *NATS) Restart() { n.tb.Helper(); n.startServer() }

// Recreate starts an empty server in place of a stopped one.
func (n *NATS) Recreate() {
	n.tb.Helper()
	n.cfg.StoreDir = n.tb.TempDir()
	n.startServer()
}

// URL is the URL of the server, or of all servers of a cluster.
func (n *NATS) URL() string {
	if n.url != "" {
		return n.url
	}
	return n.srv.ClientURL()
}

// Conn connects as a user until the test ends. The server gives a client two seconds to sign in: a busy
// machine may need a second attempt.
func (n *NATS) Conn(user string) (nc *nats.Conn) {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	var err error
	for again := time.NewTicker(20 * time.Millisecond); nc == nil && ctx.Err() == nil; <-again.C {
		nc, err = streams.Connect(ctx, streams.ConnectOptions{URL: n.URL(), User: user, Password: "pw-" + user, Name: user, Log: zerolog.Nop()})
		if err == nil || errors.Is(err, nats.ErrAuthorization) { // the second: the user is none
			again.Stop()
			break
		}
	}
	OK(n.tb, err)
	n.tb.Cleanup(nc.Close)
	return nc
}

// JS returns JetStream as a user. A call without a deadline of its own may take as long as any wait.
func (n *NATS) JS(user string) jetstream.JetStream {
	n.tb.Helper()
	js, err := jetstream.New(n.Conn(user), jetstream.WithDefaultTimeout(Guard))
	OK(n.tb, err)
	return js
}

// Flags are the flags for starting a service.
func (n *NATS) Flags(service string) daemon.Flags {
	return daemon.Flags{
		Server: n.URL(), User: service, Password: "pw-" + service, Prefix: "gov", Stream: streams.DefaultShard, Keys: n.Keys, LogLevel: "info",
	}
}

// Log reads the whole log up to its current end.
func (n *NATS) Log() (out []events.LogMessage) {
	n.tb.Helper()
	done := errors.New("caught up")
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	err := streams.ReadLog(ctx, n.JS(string(streams.RoleAuditor)), streams.ReadOptions{Stream: streams.DefaultShard, Idle: func() error { return done }},
		func(b []events.LogMessage) error { out = append(out, b...); return nil })
	if !errors.Is(err, done) {
		n.tb.Fatal(err)
	}
	return out
}

// Publish stores messages as a service; those of a publisher as the ingest service.
func (n *NATS) Publish(user string, msgs ...streams.Msg) {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	OK(n.tb, streams.StoreAll(ctx, n.writerConn(user), msgs))
}

// writerConn is the connection that writes a user's messages to the log.
func (n *NATS) writerConn(user string) *nats.Conn {
	for _, t := range n.cfg.Tenants {
		if slices.ContainsFunc(t.Users, func(u streams.User) bool { return u.Name == user }) {
			return n.Conn(string(streams.RoleAdmitter))
		}
	}
	return n.Conn(user)
}

// Service is a service running in this process.
type Service struct {
	tb     testing.TB
	Health *daemon.Health
	ready  chan struct{}
	stop   context.CancelFunc
	done   chan struct{}
	err    error
}

// Run starts a service, which is stopped at the end of the test at the latest.
func Run(tb testing.TB, run func(context.Context, daemon.Env) error) *Service {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{tb: tb, Health: daemon.NewHealth(), ready: make(chan struct{}), stop: cancel, done: make(chan struct{})}
	ready := sync.OnceFunc(func() { close(s.ready) }) // a service that Supervise starts again is ready again
	env := daemon.Env{Log: zerolog.New(zerolog.NewTestWriter(quiet{tb})).Level(zerolog.WarnLevel), Health: s.Health, Ready: func() error {
		s.Health.SetReady()
		ready()
		return nil
	}}
	go func() {
		defer close(s.done)
		s.err = run(ctx, env)
	}()
	tb.Cleanup(func() { _ = s.Stop() }) // a test that is about the end calls Stop itself
	return s
}

// Supervise makes Run start a service again once it has lost its lease, as its supervisor does: on a
// busy machine the restart of a server takes longer than a lease lasts. An end for another reason
// before that is the end.
func Supervise(run func(context.Context, daemon.Env) error) func(context.Context, daemon.Env) error {
	return func(ctx context.Context, env daemon.Env) error {
		for lost := false; ; {
			err := run(ctx, env)
			lost = lost || errors.Is(err, lease.ErrLost)
			if ctx.Err() != nil || !lost {
				return err
			}
			for component := range env.Health.Report().Problems { // a new process begins without
				env.Health.Set(component, "")
			}
			env.Log.Warn().Err(err).Msg("the service is started again")
			_ = retry.Sleep(ctx, 100*time.Millisecond)
		}
	}
}

// quiet logs only in verbose runs, and never fails.
type quiet struct{ testing.TB }

func (q quiet) Logf(format string, args ...any) {
	if testing.Verbose() {
		q.TB.Logf(format, args...)
	}
}

// AwaitReady waits until the service answers.
func (s *Service) AwaitReady() *Service {
	s.tb.Helper()
	select {
	case <-s.ready:
	case <-s.done:
		s.tb.Fatalf("the service ended before it was ready: %v", s.err)
	case <-time.After(Guard):
		s.tb.Fatal("the service is not ready")
	}
	return s
}

// Wait waits for the end of the service and returns its error.
func (s *Service) Wait() error {
	s.tb.Helper()
	select {
	case <-s.done:
		return s.err
	case <-time.After(Guard):
		s.tb.Fatal("the service does not end")
		return nil
	}
}

// Stop tells the service to stop and returns its error.
func (s *Service) Stop() error {
	s.tb.Helper()
	s.stop()
	return s.Wait()
}

// Running fails the test if the service has ended.
func (s *Service) Running() {
	s.tb.Helper()
	select {
	case <-s.done:
		s.tb.Fatalf("the service ended: %v", s.err)
	default:
	}
}

// LastPublished returns the newest message of a stream, nil if it is empty.
func (n *NATS) LastPublished(stream string) *events.LogMessage {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	m, err := streams.LastBySubject(ctx, n.JS(string(streams.RoleAuditor)), stream, ">")
	OK(n.tb, err)
	return m
}

// At returns the message of a stream at a sequence, nil if there is none.
func (n *NATS) At(stream string, seq uint64) *events.LogMessage {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	m, err := streams.MessageAt(ctx, n.JS(string(streams.RoleAuditor)), stream, seq)
	OK(n.tb, err)
	return m
}

// CheckLinked checks that the log has control records of some kinds, and that each says where the one before is.
func (n *NATS) CheckLinked(kinds ...string) {
	n.tb.Helper()
	js := n.JS(string(streams.RoleAuditor))
	for _, kind := range kinds {
		before := uint64(0)
		for m, err := range streams.EachBySubject(n.tb.Context(), js, streams.DefaultShard, "gov.control."+streams.DefaultShard+"."+kind, 1) {
			OK(n.tb, err)
			if got, want := m.HeaderValue("Nats-Expected-Last-Subject-Sequence"), strconv.FormatUint(before, 10); got != want {
				n.tb.Errorf("the %s record at %d names %q as the one before, want %s", kind, m.Seq, got, want)
			}
			before = m.Seq
		}
		if before == 0 {
			n.tb.Errorf("the log has no %s record", kind)
		}
	}
}

// PublishErasure publishes an erasure record of the tenant, as an auditor signs it: e has what differs.
func (n *NATS) PublishErasure(e events.Erasure) {
	n.tb.Helper()
	signer, _, err := keys.Checkpoint(n.Keys)
	OK(n.tb, err)
	st, err := streams.StreamState(n.tb.Context(), n.JS("auditor"), streams.DefaultShard)
	OK(n.tb, err)
	now := events.At(time.Now())
	e.Shard, e.Tenant, e.Cause, e.Reason, e.OrderedBy, e.OrderedAt, e.At, e.Writer = streams.IncarnationName(streams.DefaultShard, st.Created), Tenant, "order", "r", "dana", now, now, "test"
	e.Part, e.Parts = max(1, e.Part), max(1, e.Parts)
	for _, s := range e.Sequences {
		e.Messages += s[1] - s[0] + 1
	}
	e.Vouch, err = signing.SignErasure(signer, e)
	OK(n.tb, err)
	body, err := events.Encode(e)
	OK(n.tb, err)
	OK(n.tb, streams.StoreLinked(n.tb.Context(), n.JS("auditor"), streams.DefaultShard, streams.Msg{Subject: "gov.control." + streams.DefaultShard + "." + events.ControlErasure, Body: body}))
}
