package admitter

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/testkit"
	"github.com/countersign-dev/countersign/streams"
)

// unstartedFollower is a follower of the policies that reads nothing yet.
func unstartedFollower(t *testing.T, n *servicetest.NATS, s *service, p *policyStore) *bucketFollower {
	t.Helper()
	f := newTrackedFollower(s, streams.BucketPolicies, 0, p.applyChanges)
	servicetest.OK(t, f.openBucket(t.Context(), n.Conn("admitter"), n.JS("admitter")))
	return f
}

// TestWatchThatStandsStillIsNoticed: the watch delivers nothing more, without an
// error and without a lost connection; the admitter notices by the leader's word and
// decides by the new policy.
func TestWatchThatStandsStillIsNoticed(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	f := unstartedFollower(t, n, s, newPolicyStore(s))
	servicetest.OK(t, f.openWatch(ctx))
	f.updates = make(chan jetstream.KeyValueEntry) // nothing ever comes
	done := make(chan struct{})
	go func() { defer close(done); f.followChanges(ctx, make(chan nats.Status)) }()
	revision := put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	servicetest.Eventually(t, "the new policy decides", func() bool { return s.config.Load().Revision == revision })
	cancel()
	<-done
	closeWatch(f.watch)
}

// TestBucketMadeAnewUnderTheConnection: a watch would wait for the revision after its last, and a new
// bucket counts from one again. While there is none, the log does not fill, and no reader stalls.
func TestBucketMadeAnewUnderTheConnection(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	for range 5 {
		put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	}
	counts := metrics.New(ServiceName)
	var lines testkit.Log
	s := servicetest.Run(t, func(ctx context.Context, env daemon.Env) error {
		env.Metrics, env.Log = counts, zerolog.New(&lines)
		return Run(ctx, flags(n), env)
	})
	s.AwaitReady()
	nc, body := n.Conn(servicetest.Runtime), file(t, "requests/pre-tool-use.json")
	verdictIs := func(want events.Verdict) func() bool {
		return func() bool {
			return ask(t, nc, "gov.admit.acme.agenthook", body).Header.Get(events.HeaderVerdict) == string(want)
		}
	}
	servicetest.Eventually(t, "the policies allow", verdictIs(events.Allow))
	n.DeleteStream("KV_" + streams.BucketPolicies)
	servicetest.Eventually(t, "nothing is decided without the bucket", verdictIs(events.Deny))
	if r := s.Health.Report(); r.Problems["policies_watch"] == "" {
		t.Errorf("%+v", r)
	}
	time.Sleep(3*recordRetry + recordRetry/2)
	if got := lines.Count("the bucket is read again"); got != 1 {
		t.Errorf("%d lines of the bucket that is gone", got)
	}
	if !bytes.Contains(counts.Text(), []byte(`countersign_reader_stalls_total{service="admitter"} 0`+"\n")) {
		t.Error("a bucket that is gone counts as a reader that stalls")
	}
	n.Provision()
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	servicetest.Eventually(t, "the new bucket decides", verdictIs(events.Allow))
}

// staleBucket gives the first watches what an empty replica has.
type staleBucket struct {
	jetstream.KeyValue
	left atomic.Int64
}

type staleWatch struct {
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
}

func (w staleWatch) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

func (w staleWatch) Stop() error {
	close(w.updates)
	return w.KeyWatcher.Stop()
}

func (b *staleBucket) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	w, err := b.KeyValue.WatchAll(ctx, opts...)
	if err != nil || b.left.Add(-1) < 0 {
		return w, err
	}
	stale := make(chan jetstream.KeyValueEntry, 1)
	stale <- nil // everything there is was delivered
	return staleWatch{w, stale}, nil
}

// TestAnOlderStateIsNotApplied: a watch on a replica that lags says that the bucket
// is empty. The view of before stands, and the bucket is read again.
func TestAnOlderStateIsNotApplied(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	revision := put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	f := unstartedFollower(t, n, s, newPolicyStore(s))
	servicetest.OK(t, f.openWatch(t.Context()))
	replica := &staleBucket{KeyValue: f.kv}
	f.kv = replica
	for range 3 {
		replica.left.Store(1)
		if stale := f.reopenWatch(t.Context()); !stale || s.env.Health.Report().Problems["policies_watch"] == "" {
			t.Error("an older state counts as complete")
		}
		if got := s.config.Load(); got.Revision != revision || got.PolicyErr != nil {
			t.Errorf("revision %d decides, %v", got.Revision, got.PolicyErr)
		}
	}
	if f.reopenWatch(t.Context()) {
		t.Error("a complete read does not count")
	}
	closeWatch(f.watch)

	a := newApprovalStore(s).follower
	servicetest.OK(t, a.openBucket(t.Context(), n.Conn("admitter"), n.JS("admitter")))
	_, err := a.kv.Put(t.Context(), "k", []byte("{}"))
	servicetest.OK(t, err)
	replica = &staleBucket{KeyValue: a.kv}
	a.kv = replica
	replica.left.Store(1)
	if err := a.openWatch(t.Context()); !errors.Is(err, streams.ErrBehind) {
		t.Errorf("approvals: %v", err)
	}
	servicetest.OK(t, a.openWatch(t.Context()))
	closeWatch(a.watch)
}
