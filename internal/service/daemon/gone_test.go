package daemon_test

import (
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A service whose log does not exist any more is not well.
func TestALogThatIsGoneIsReported(t *testing.T) {
	t.Parallel()
	n := servicetest.Start(t, streams.Shard{})
	env := daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()}
	defer daemon.Flags{Stream: "GONE"}.WatchJetStream(t.Context(), n.Conn("provisioner"), env, nil)()
	servicetest.Eventually(t, "the missing log is reported", func() bool { return strings.Contains(env.Health.Report().Problems["jetstream"], "stream not found") })
}

// The watch of a further connection leaves no subscription: an admitter that stops waits until there is none.
func TestAWatchLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	n := servicetest.Start(t, streams.Shard{})
	f := n.Flags("admitter")
	at, err := url.Parse(f.Server)
	servicetest.OK(t, err)
	f.Server += ",nats://localhost:" + at.Port()
	nc, release, err := f.ConnectAgain(t.Context(), "test", daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()})
	servicetest.OK(t, err)
	defer release()
	servicetest.Eventually(t, "the leader has answered", func() bool { return nc.Stats().InMsgs > 0 })
	servicetest.Eventually(t, "no subscription is left", func() bool { return nc.NumSubscriptions() == 0 })
}

// While the work after a reconnect takes long, the library drops changes of the connection, with the last one: the
// service is well again all the same, and the work is done for the last reconnect, too.
func TestChangesThatAreDropped(t *testing.T) {
	t.Parallel()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	servicetest.OK(t, err)
	at := front.Addr().(*net.TCPAddr)
	servicetest.OK(t, front.Close())
	run := func() *natsd.Server {
		srv, err := natsd.NewServer(&natsd.Options{Host: "127.0.0.1", Port: at.Port, NoLog: true, NoSigs: true})
		servicetest.OK(t, err)
		go srv.Start()
		if !srv.ReadyForConnections(10 * time.Second) {
			t.Fatal("the server is not ready")
		}
		t.Cleanup(srv.Shutdown)
		return srv
	}
	srv, health, hold := run(), daemon.NewHealth(), make(chan struct{})
	var reconnects atomic.Int32
	nc, release, err := daemon.Flags{Server: "nats://" + at.String()}.Connect(t.Context(), "test", daemon.Env{Log: zerolog.Nop(), Health: health}, func(*nats.Conn) {
		reconnects.Add(1)
		<-hold
	})
	servicetest.OK(t, err)
	defer release()
	srv.Shutdown()
	srv = run()
	servicetest.Eventually(t, "it works after the reconnect", func() bool { return reconnects.Load() == 1 })
	srv.Shutdown()
	front, err = net.Listen("tcp", at.String()) // a proxy whose server is away
	servicetest.OK(t, err)
	for range 12 { // the channel holds 10
		c, err := front.Accept()
		servicetest.OK(t, err)
		servicetest.OK(t, c.Close())
	}
	servicetest.OK(t, front.Close())
	run()
	servicetest.Eventually(t, "it is connected again", nc.IsConnected)
	close(hold)
	servicetest.Eventually(t, "it is well, and has worked for the last reconnect", func() bool {
		return len(health.Report().Problems) == 0 && reconnects.Load() == 2
	})
}
