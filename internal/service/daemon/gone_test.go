package daemon_test

import (
	"net/url"
	"strings"
	"testing"

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
