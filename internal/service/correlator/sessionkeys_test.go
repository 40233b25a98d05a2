package correlator

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// A correlator that waits for session keys stands still, and its health says why
// for as long as it does.
func TestWaitingForSessionKeys(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	_, nc, store := openSecrets(t, n)
	s := newSessionSecrets(store, zerolog.Nop(), daemon.NewHealth())
	s.health.SetReady()
	n.Stop()
	fetched := make(chan error, 1)
	go func() {
		fetched <- s.fetchSecrets(t.Context(), []events.SessionID{sessionsecrets.SessionOfName("acme", "s1")})
	}()
	servicetest.Eventually(t, "it is unhealthy", func() bool {
		return strings.HasPrefix(s.health.Report().Problems["session_keys"], "nothing is correlated until the session keys can be read: ")
	})
	n.Restart()
	servicetest.Eventually(t, "the connection is back", func() bool { return nc.Status() == nats.CONNECTED })
	servicetest.OK(t, <-fetched)
	if r := s.health.Report(); r.Status != daemon.StatusOK {
		t.Errorf("%+v", r)
	}
	if _, held := s.cachedSecret("acme", "s1"); !held {
		t.Error("the key is not in memory")
	}
}
