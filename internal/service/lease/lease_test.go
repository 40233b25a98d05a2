package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const ttl = 600 * time.Millisecond

func bucket(t *testing.T, n *servicetest.NATS) jetstream.KeyValue {
	t.Helper()
	kv, err := n.JS("auditor").KeyValue(t.Context(), streams.BucketLeases)
	servicetest.OK(t, err)
	return kv
}

func options(holder string) lease.Options {
	return lease.Options{Key: "auditor.GOV", Holder: holder, TTL: ttl, Log: zerolog.Nop()}
}

func hold(t *testing.T, kv jetstream.KeyValue, o lease.Options) *lease.Lease {
	t.Helper()
	l, err := lease.Hold(t.Context(), kv, o, nil)
	servicetest.OK(t, err)
	return l
}

// Of many that want it at the same time one has it; the next one gets it when it
// is given back.
func TestOneHolder(t *testing.T) {
	kv := bucket(t, servicetest.Start(t, streams.Shard{}))
	const n = 8
	var holders, most atomic.Int64
	done := make(chan error, n)
	for i := range n {
		go func() {
			l, err := lease.Hold(t.Context(), kv, options(fmt.Sprint("h", i)), nil)
			if err != nil {
				done <- err
				return
			}
			most.Store(max(most.Load(), holders.Add(1)))
			if err := context.Cause(l.Context()); err != nil {
				done <- err
				return
			}
			holders.Add(-1)
			l.Release()
			done <- nil
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d held it at the same time", most.Load())
	}
}

// A holder that dies is succeeded when its lease has run out, not before; one of
// the same place at once.
func TestTakeover(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := bucket(t, n)
	first := options("first")
	first.Place = "up"
	dead, err := lease.Take(t.Context(), kv, first, 0)
	servicetest.OK(t, err)
	lease.Kill(dead)
	begun := time.Now()
	var told string
	second, err := lease.Hold(t.Context(), kv, options("second"), func(holder string) { told = holder })
	servicetest.OK(t, err)
	if took := time.Since(begun); took < ttl || told != "first" {
		t.Errorf("taken over after %v from %q", took, told)
	}
	lease.Kill(second)
	third := options("third")
	third.Place = "up"
	l := hold(t, kv, third) // second had no place: it must run out
	lease.Kill(l)
	fourth := third
	fourth.Holder = "fourth"
	hold(t, kv, fourth).Release()
	if e, _, err := lease.Read(t.Context(), kv, "auditor.GOV"); err != nil || !e.Released || e.Holder != "fourth" {
		t.Errorf("%+v %v", e, err)
	}
}

// Whoever is overtaken, as after a long pause, learns it.
func TestLost(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := bucket(t, n)
	l := hold(t, kv, options("slow"))
	_, revision, err := lease.Read(t.Context(), kv, "auditor.GOV")
	servicetest.OK(t, err)
	for { // between two renewals
		if _, err := kv.Update(t.Context(), "auditor.GOV", []byte(`{"holder":"fast"}`), revision); err == nil {
			break
		}
		_, revision, err = lease.Read(t.Context(), kv, "auditor.GOV")
		servicetest.OK(t, err)
	}
	<-l.Context().Done()
	if err := context.Cause(l.Context()); !errors.Is(err, lease.ErrLost) {
		t.Error(err)
	}
	l.Release() // is not its to give
	if e, _, _ := lease.Read(t.Context(), kv, "auditor.GOV"); e.Holder != "fast" || e.Released {
		t.Errorf("%+v", e)
	}
}

// Without a server the holder of the lease is unknown: the holder stops in time.
func TestLostWithTheServer(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := bucket(t, n)
	l := hold(t, kv, options("alone"))
	n.Stop()
	<-l.Context().Done()
	if err := context.Cause(l.Context()); !errors.Is(err, lease.ErrLost) {
		t.Error(err)
	}
}

// While the server is up the lease is kept, and it ends with the context. A machine
// that stands still for longer than the lease lasts loses it, as it must: then it is
// taken once more.
func TestKept(t *testing.T) {
	kv := bucket(t, servicetest.Start(t, streams.Shard{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var l *lease.Lease
	var first uint64
	take := func() {
		var err error
		l, err = lease.Hold(ctx, kv, options("kept"), nil)
		servicetest.OK(t, err)
		_, first, err = lease.Read(t.Context(), kv, "auditor.GOV")
		servicetest.OK(t, err)
	}
	take()
	servicetest.Eventually(t, "it is renewed for twice its time", func() bool {
		if l.Context().Err() != nil {
			take()
		}
		_, revision, err := lease.Read(t.Context(), kv, "auditor.GOV")
		return err == nil && revision >= first+2*lease.Renewals && l.Context().Err() == nil
	})
	cancel()
	l.Release()
	if e, _, _ := lease.Read(t.Context(), kv, "auditor.GOV"); !e.Released {
		t.Error("not given back")
	}
}

// late answers reads with what was there before the lease was taken, and fails
// writes, for as long as it is on.
type late struct {
	jetstream.KeyValue
	on  atomic.Bool
	old jetstream.KeyValueEntry
}

func (l *late) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if l.on.Load() {
		return l.old, nil
	}
	return l.KeyValue.Get(ctx, key)
}

func (l *late) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if l.on.Load() {
		return 0, errors.New("no answer")
	}
	return l.KeyValue.Update(ctx, key, value, revision)
}

// TestLeaseOutlivesAStaleRead: a read that names the holder of before is older
// than what this holder wrote and does not take the lease away.
func TestLeaseOutlivesAStaleRead(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := &late{KeyValue: bucket(t, n)}
	before := hold(t, kv, options("before"))
	before.Release()
	var err error
	kv.old, err = kv.KeyValue.Get(t.Context(), "auditor.GOV")
	servicetest.OK(t, err)
	l := hold(t, kv, options("now"))
	kv.on.Store(true)
	select {
	case <-l.Context().Done():
		t.Fatalf("lost by a stale read: %v", context.Cause(l.Context()))
	case <-time.After(ttl / 2):
	}
	kv.on.Store(false)
	_, revision, err := lease.Read(t.Context(), kv, "auditor.GOV")
	servicetest.OK(t, err)
	servicetest.Eventually(t, "it is renewed again, or was lost for the time that passed", func() bool {
		_, now, err := lease.Read(t.Context(), kv, "auditor.GOV")
		return err == nil && now > revision || l.Context().Err() != nil
	})
	l.Release()
}
