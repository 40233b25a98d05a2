package correlator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
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
	waits := func(ctx context.Context) {
		t.Helper()
		go func() { fetched <- s.fetchSecrets(ctx, []events.SessionID{sessionsecrets.SessionOfName("acme", "s1")}) }()
		servicetest.Eventually(t, "it is unhealthy", func() bool {
			return strings.HasPrefix(s.health.Report().Problems["session_keys"], "nothing is correlated until the session keys can be read: ")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits(ctx)
	cancel() // a correlator that starts over waits for nothing yet
	if err := <-fetched; !errors.Is(err, context.Canceled) || s.health.Report().Status != daemon.StatusOK {
		t.Errorf("%v, %+v", err, s.health.Report())
	}
	waits(t.Context())
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

// A correlator with a master key that is not the log's ends and says so.
func TestAnotherMasterKeyIsRefused(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	openSecrets(t, n)
	f := flags(n, time.Minute)
	f.Keys = n.KeysWithAnother(keys.MasterFile)
	if err := run(t, f).Wait(); !errors.Is(err, sessionsecrets.ErrOtherMaster) {
		t.Errorf("%v", err)
	}
}

// TestUnopenedKeyStopsNothing: a session's key that does not open makes the correlator unhealthy, and
// all sessions are correlated all the same.
func TestUnopenedKeyStopsNothing(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	name := sessionsecrets.SessionOfName("acme", "sess-0001")
	bucket, err := n.JS("auditor").KeyValue(t.Context(), streams.BucketSessionSecrets)
	servicetest.OK(t, err)
	_, err = bucket.Put(t.Context(), sessionsecrets.BucketKey(name), []byte("no key of ours"))
	servicetest.OK(t, err)
	s := start(t, n, time.Minute).AwaitReady()
	n.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	n.Publish(servicetest.Runtime, pre(1))
	servicetest.Eventually(t, "calls of both sessions", func() bool {
		calls := map[string]bool{}
		for _, m := range n.Log() {
			if tokens := strings.Split(m.Subject, "."); tokens[1] == "calls" {
				calls[tokens[len(tokens)-1]] = true
			}
		}
		return calls["sess-0001"] && calls["sess-open"]
	})
	s.Running()
	if problem := s.Health.Report().Problems["unopened_keys"]; !strings.Contains(problem, `session "sess-0001" of tenant "acme"`) {
		t.Errorf("%q", problem)
	}
}
