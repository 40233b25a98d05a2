package admitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// goroutines are the stacks of all goroutines.
func goroutines() string {
	stacks := make([]byte, 8<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

// watchGoroutines counts the goroutines that the library has for subscriptions: one that delivers, one
// that waits for the end of the context.
func watchGoroutines() int {
	all := goroutines()
	return strings.Count(all, "nats%2ego.(*Conn).waitForMsgs(") + strings.Count(all, "nats%2ego.(*js).subscribe.func")
}

// TestAWatchThatEndsLeavesNothing: neither a watch that is replaced nor one whose updates are not taken
// leaves a goroutine of the library.
func TestAWatchThatEndsLeavesNothing(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	f := unstartedFollower(t, n, s, newPolicyStore(s))
	kv := bucket(t, n, "operator", streams.BucketPolicies)
	_, err := kv.PutString(t.Context(), "unread.yaml", "")
	servicetest.OK(t, err)
	_, err = f.lag.minRevision(t.Context()) // this connection, and that of the change records, have what a request needs
	servicetest.OK(t, err)
	_, err = streams.StreamState(t.Context(), s.js, streams.DefaultShard)
	servicetest.OK(t, err)
	before := watchGoroutines()
	for range 3 {
		servicetest.OK(t, f.openWatch(t.Context()))
	}
	if watchGoroutines() == before {
		t.Fatal("the library's goroutines have other names")
	}
	for i := range cap(f.updates) + 2 {
		_, err := kv.PutString(t.Context(), "unread.yaml", fmt.Sprint(i))
		servicetest.OK(t, err)
	}
	servicetest.Eventually(t, "the library waits until an update is taken", func() bool { return len(f.updates) == cap(f.updates) })
	closeWatch(f.watch)
	servicetest.Eventually(t, "the goroutines of the watches have ended", func() bool { return watchGoroutines() == before })
}

// TestNothingIsRecordedByAViewThatIsOld: the bucket's leader holds more than the view, over the same
// connection, and the bucket cannot be read again yet.
func TestNothingIsRecordedByAViewThatIsOld(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	nothingIsRecordedBy(t, s, unstartedFollower(t, n, s, newPolicyStore(s)), func(*bucketFollower) { put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml")) })

	s = unstarted(t, n)
	a := newApprovalStore(s).follower
	servicetest.OK(t, a.openBucket(t.Context(), n.Conn("admitter"), n.JS("admitter")))
	nothingIsRecordedBy(t, s, a, func(f *bucketFollower) {
		_, err := f.kv.Put(t.Context(), "acme.slot", []byte("{}"))
		servicetest.OK(t, err)
	})
}

func nothingIsRecordedBy(t *testing.T, s *service, f *bucketFollower, change func(*bucketFollower)) {
	t.Helper()
	s.progress.conn = f.nc
	servicetest.OK(t, f.openWatch(t.Context()))
	closeWatch(f.watch)
	change(f)
	replica := &staleBucket{KeyValue: f.kv}
	f.kv = replica
	replica.left.Store(1)
	if !s.progress.canRecord() || !f.reopenWatch(t.Context()) || s.progress.canRecord() {
		t.Error("decisions are recorded by a view that is known to be old")
	}
	if f.reopenWatch(t.Context()) || !s.progress.canRecord() {
		t.Error("no decision is recorded by a view that was read again")
	}
	closeWatch(f.watch)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if !f.reopenWatch(ended) || !s.progress.canRecord() {
		t.Error("decisions under way cannot be finished at the end")
	}
}

func TestMark(t *testing.T) {
	var m watermark
	servicetest.OK(t, m.await(t.Context(), 0))
	done := make(chan error)
	for range 2 {
		go func() { done <- m.await(t.Context(), 3) }()
	}
	for at := range uint64(3) {
		m.raise(at + 1)
	}
	m.raise(1)
	for range 2 {
		servicetest.OK(t, <-done)
	}
	servicetest.OK(t, m.await(t.Context(), 3))
	m.set(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.await(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a mark that went back: %v", err)
	}
}

// reconnecting loses the connection, and gets it back, before each request.
type reconnecting struct {
	jetstream.JetStream
	tb testing.TB
}

func (j reconnecting) Conn() *nats.Conn {
	nc := j.JetStream.Conn()
	before := nc.Stats().Reconnects
	servicetest.OK(j.tb, nc.ForceReconnect())
	servicetest.Eventually(j.tb, "the connection is back", func() bool { return nc.Stats().Reconnects > before && nc.IsConnected() })
	return nc
}

// TestAReadThatLostItsConnectionIsNotCurrent: what the read must reach at least was asked over an earlier
// connection than what it read.
func TestAReadThatLostItsConnectionIsNotCurrent(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	f := unstartedFollower(t, n, s, newPolicyStore(s))
	js := f.lag.js
	f.nc, s.progress.conn = js.Conn(), js.Conn()
	f.lag.js = reconnecting{js, t}
	servicetest.OK(t, f.openWatch(t.Context()))
	if s.progress.canRecord() {
		t.Error("the view counts as current")
	}
	f.lag.js = js
	if f.reopenWatch(t.Context()) || !s.progress.canRecord() {
		t.Error("the view does not count as current after an undisturbed read")
	}
	closeWatch(f.watch)
}

// slowWatch delivers what it is given.
type slowWatch struct {
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
}

func (w slowWatch) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

// entry is one key's value.
type entry struct {
	jetstream.KeyValueEntry
	revision uint64
}

func (e entry) Key() string                   { return fmt.Sprint("k", e.revision) }
func (e entry) Revision() uint64              { return e.revision }
func (e entry) Value() []byte                 { return []byte{1} }
func (entry) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

// TestALargeBucketIsReadToItsEnd: a bucket whose read takes longer than a silence may last is read; a
// silence ends the read.
func TestALargeBucketIsReadToItsEnd(t *testing.T) {
	for name, whole := range map[string]bool{"slow": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := slowWatch{updates: make(chan jetstream.KeyValueEntry, 4)}
				go func() {
					for i := range 3 {
						time.Sleep(openTimeout - time.Second)
						w.updates <- entry{revision: uint64(i + 1)}
					}
					if whole {
						w.updates <- nil
					}
				}()
				read, err := (&bucketFollower{bucket: "b"}).readAll(t.Context(), w)
				if whole && (err != nil || len(read.entries) != 3 || read.revision != 3) || !whole && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%+v, %v", read, err)
				}
			})
		})
	}
}

// TestReviewersAreAnsweredOfABucketThatShrank: the bucket's newest revisions are gone, by their age or an
// erasure; an admitter that starts then knows all that is left.
func TestReviewersAreAnsweredOfABucketThatShrank(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	a := keeper(t, n)
	out, key := pendingStep(a, time.Now().Add(time.Hour))
	_, err := a.reserve(t.Context(), admission.Request{}, out)
	servicetest.OK(t, err)
	erase(t, n, key, false)
	ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
	defer cancel()
	servicetest.OK(t, keeper(t, n).follower.caughtUp(ctx))
}

// A bucket that cannot be read again is not logged at each try.
func TestAStaleBucketIsLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	f := &bucketFollower{s: &service{env: daemon.Env{Log: zerolog.New(&lines), Health: daemon.NewHealth()}}, bucket: "b"}
	for range 3 {
		f.reportStale(t.Context(), errors.New("it is away"))
	}
	if n := strings.Count(lines.String(), "it is away"); n != 1 || f.s.env.Health.Report().Problems["b_watch"] == "" {
		t.Errorf("%d lines: %s", n, lines.String())
	}
}
