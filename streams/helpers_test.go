package streams

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// inChild marks a process in which a server breaks: a stream that the server gave
// up leaves goroutines behind, and in every other one that counts as a leak.
const inChild = "COUNTERSIGN_TEST_BROKEN_STORE"

func TestMain(m *testing.M) {
	if os.Getenv(inChild) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m, batchLeaks...)
}

// batchLeaks are goroutines of nats-server. A server that shuts down while it takes an atomic batch
// leaves the store of the batch running.
var batchLeaks = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
	goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
	goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
}

// testConfig has one user per role in tenant acme and a second tenant.
func testConfig(tb testing.TB) ServerConfig {
	svc := func(r Role) User { return User{Name: string(r), Password: "pw-" + string(r), Role: r} }
	return ServerConfig{
		Name: "test", StoreDir: tb.TempDir(),
		Services: []User{svc(RoleProvisioner), svc(RoleAdmitter), svc(RoleCorrelator), svc(RoleAuditor), svc(RoleCustodian), svc(RoleOperator)},
		System:   &User{Name: "sys", Password: "pw-sys"},
		Tenants: []Tenant{
			{Name: "acme", Users: []User{svc(RoleRuntime), svc(RoleSubscriber), svc(RoleReviewer), svc(RoleGateway), {Name: "runtime2", Password: "pw-runtime2", Role: RoleRuntime}}},
			{Name: "globex", Users: []User{{Name: "mallory", Password: "pw-mallory", Role: RoleRuntime}, {Name: "mallory-sub", Password: "pw-mallory-sub", Role: RoleSubscriber}}},
		},
	}
}

type fixture struct {
	tb  testing.TB
	cfg ServerConfig
	srv *embedded.Server
}

// skipShort skips a test under -short, which starts no server.
func skipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a server: left out of -short")
	}
}

func startServer(tb testing.TB, cfg ServerConfig) (*embedded.Server, error) {
	tb.Helper()
	skipShort(tb)
	config, err := cfg.Render()
	if err != nil {
		return nil, err
	}
	return embedded.Start(context.Background(), config, zerolog.Nop())
}

// start runs a provisioned server.
func start(tb testing.TB, change ...func(*ServerConfig)) *fixture {
	tb.Helper()
	cfg := testConfig(tb)
	for _, f := range change {
		f(&cfg)
	}
	srv, err := startServer(tb, cfg)
	ok(tb, err)
	f := &fixture{tb, cfg, srv}
	tb.Cleanup(func() { f.srv.Shutdown() })
	_, err = Provision(ctx(tb), f.js(f.conn("provisioner")), Shard{})
	ok(tb, err)
	return f
}

func (f *fixture) conn(user string) *nats.Conn {
	f.tb.Helper()
	nc, err := Connect(ctx(f.tb), ConnectOptions{URL: f.srv.ClientURL(), User: user, Password: "pw-" + user, Name: user, Log: zerolog.Nop()})
	ok(f.tb, err)
	f.tb.Cleanup(nc.Close)
	return nc
}

func (f *fixture) js(nc *nats.Conn) jetstream.JetStream {
	f.tb.Helper()
	js, err := jetstream.New(nc)
	ok(f.tb, err)
	return js
}

// stop and restart keep the store directory and the port.
func (f *fixture) stop() {
	f.tb.Helper()
	f.cfg.Port = portOf(f.tb, f.srv.ClientURL())
	f.srv.Shutdown()
}

func (f *fixture) restart() {
	f.tb.Helper()
	srv, err := startServer(f.tb, f.cfg)
	ok(f.tb, err)
	f.srv = srv
}

func (f *fixture) state() State {
	f.tb.Helper()
	st, err := StreamState(ctx(f.tb), f.js(f.conn("auditor")), DefaultShard)
	ok(f.tb, err)
	return st
}

// ok fails the test on an error.
var ok = testkit.OK

func ctx(tb testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	tb.Cleanup(cancel)
	return c
}

// flatServer is what field practice often is: one account, permissions only.
// Attacks are shown to work here before they are shown to fail.
func flatServer(t *testing.T, users string) *fixture {
	t.Helper()
	srv, err := embedded.Start(context.Background(), fmt.Appendf(nil, `
		server_name: flat
		host: 127.0.0.1
		port: -1
		jetstream { store_dir: %q }
		authorization { users: [ { user: provisioner, password: pw-provisioner }, %s ] }`, t.TempDir(), users), zerolog.Nop())
	ok(t, err)
	f := &fixture{tb: t, srv: srv}
	t.Cleanup(srv.Shutdown)
	_, err = Provision(ctx(t), f.js(f.conn("provisioner")), Shard{})
	ok(t, err)
	return f
}

func event(user string, i int) Msg {
	return Msg{
		Subject: "gov.events.acme." + user + ".aaep.s1.agent.tool.invoked",
		Header:  map[string][]string{"ce-id": {strconv.Itoa(i)}},
		Body:    []byte(fmt.Sprintf(`{"n":%d}`, i)),
	}
}

func decision(i int) Msg {
	return Msg{Subject: "gov.decisions.acme.allow.s1", Body: []byte(strconv.Itoa(i))}
}

func events64(user string, n int) []Msg {
	out := make([]Msg, n)
	for i := range out {
		out[i] = event(user, i)
	}
	return out
}

func benchBytes() int {
	if n, err := strconv.Atoi(os.Getenv("STREAMS_BENCH_BYTES")); err == nil {
		return n
	}
	return 600
}

// dialRaw connects without the client library. It returns a logged-in connection and drains its
// input.
func dialRaw(t *testing.T, addr, user, password string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	ok(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r := bufio.NewReader(conn)
	_, err = r.ReadString('\n') // INFO
	ok(t, err)
	_, err = fmt.Fprintf(conn, "CONNECT {\"user\":%q,\"pass\":%q,\"headers\":true,\"verbose\":false,\"pedantic\":false,\"protocol\":1}\r\nPING\r\n", user, password)
	ok(t, err)
	line, err := r.ReadString('\n')
	ok(t, err)
	if line != "PONG\r\n" {
		t.Fatalf("raw connection: %q", line)
	}
	return conn
}

// eventually polls a condition that no event announces.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(guard); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not come about")
		}
	}
}

func portOf(tb testing.TB, rawURL string) int {
	tb.Helper()
	u, err := url.Parse(rawURL)
	ok(tb, err)
	port, err := strconv.Atoi(u.Port())
	ok(tb, err)
	return port
}
