package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// read reads the entry of the lease. A busy server may need several attempts.
func read(t *testing.T, kv jetstream.KeyValue) (e lease.Entry, revision uint64) {
	t.Helper()
	servicetest.Eventually(t, "the lease is read", func() (done bool) {
		var err error
		e, revision, err = lease.Read(t.Context(), kv, "auditor.GOV")
		return err == nil
	})
	return e, revision
}

// Of many that want it at the same time one has it; the next one gets it when it
// is given back. A machine that stands still for longer than the lease lasts proves
// nothing: then all want it once more.
func TestOneHolder(t *testing.T) {
	kv := bucket(t, servicetest.Start(t, streams.Shard{}))
	for {
		most, outlived := heldAtOnce(t, kv, 8)
		if !outlived && most != 1 {
			t.Errorf("%d held it at the same time", most)
		}
		if !outlived {
			return
		}
	}
}

// heldAtOnce lets n holders take the lease and give it back, and returns how many had it at the same
// time. outlived says that a holder's lease ran out before it gave it back.
func heldAtOnce(t *testing.T, kv jetstream.KeyValue, n int) (most int64, outlived bool) {
	t.Helper()
	var holders, seen atomic.Int64
	var late atomic.Bool
	done := make(chan error, n)
	for i := range n {
		go func() {
			l, err := lease.Hold(t.Context(), kv, options(fmt.Sprint("h", i)), nil)
			if err != nil {
				done <- err
				return
			}
			seen.Store(max(seen.Load(), holders.Add(1)))
			holders.Add(-1)
			if !l.Valid() {
				late.Store(true)
			}
			l.Release()
			done <- nil
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return seen.Load(), late.Load()
}

// A holder that dies is succeeded when its lease has run out, not before; one of
// the same place at once.
func TestTakeover(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := bucket(t, n)
	first := options("first")
	first.Place = "up"
	lease.Kill(hold(t, kv, first))
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
	servicetest.Eventually(t, "it is given back", func() bool { // a release that the server does not answer in time is none
		hold(t, kv, fourth).Release()
		e, _ := read(t, kv)
		return e.Released && e.Holder == "fourth"
	})
}

// Whoever is overtaken, as after a long pause, learns it.
func TestLost(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := bucket(t, n)
	l := hold(t, kv, options("slow"))
	for { // between two renewals
		_, revision := read(t, kv)
		if _, err := kv.Update(t.Context(), "auditor.GOV", []byte(`{"holder":"fast"}`), revision); err == nil {
			break
		}
	}
	<-l.Context().Done()
	if err := context.Cause(l.Context()); !errors.Is(err, lease.ErrLost) {
		t.Error(err)
	}
	l.Release() // is not its to give
	if e, _ := read(t, kv); e.Holder != "fast" || e.Released {
		t.Errorf("%+v", e)
	}
}

// A key that an operator deletes leaves a marker in the bucket: the holder writes the lease again, and
// without a holder the next instance takes it.
func TestDeletedKey(t *testing.T) {
	kv := bucket(t, servicetest.Start(t, streams.Shard{}))
	first := hold(t, kv, options("first"))
	servicetest.OK(t, kv.Delete(t.Context(), "auditor.GOV"))
	servicetest.Eventually(t, "the holder has written the lease again", func() bool {
		e, _ := read(t, kv)
		return e.Holder == "first" && first.Valid()
	})
	first.Release()
	servicetest.OK(t, kv.Delete(t.Context(), "auditor.GOV"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*ttl)
	defer cancel()
	next, err := lease.Hold(ctx, kv, options("next"), nil)
	servicetest.OK(t, err)
	next.Release()
}

// Without a server the holder of the lease is unknown: the holder stops in time, and says why.
func TestLostWithTheServer(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	kv := bucket(t, n)
	l := hold(t, kv, options("alone"))
	n.Stop()
	<-l.Context().Done()
	if err := context.Cause(l.Context()); !errors.Is(err, lease.ErrLost) || !strings.Contains(err.Error(), "could not be renewed for 450ms") {
		t.Error(err)
	}
}

// Why nobody has the lease is reported as long as it is so: the writes are refused, or no server answers.
func TestLeaseThatCannotBeHad(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	reports := make(chan string, 1000)
	o := options("one")
	o.Report = func(problem string) { reports <- problem }
	mayNot, err := n.JS("operator").KeyValue(t.Context(), streams.BucketLeases)
	servicetest.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	go func() { _, err := lease.Hold(ctx, mayNot, o, nil); refused <- err }()
	if problem := <-reports; !strings.Contains(problem, "NATS does not take the write: ") {
		t.Errorf("reported %q", problem)
	}
	kv, held := bucket(t, n), make(chan *lease.Lease, 1)
	other := hold(t, kv, options("other"))
	for problem := "not asked yet"; problem != ""; problem = <-reports { // it stands by: somebody has the lease
	}
	cancel()
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	other.Release()

	n.Stop()
	for len(reports) > 0 {
		<-reports
	}
	go func() {
		l, err := lease.Hold(t.Context(), kv, o, nil)
		if err != nil {
			t.Error(err)
		}
		held <- l
	}()
	if problem := <-reports; !strings.Contains(problem, "the lease of the shard cannot be had: ") {
		t.Errorf("reported %q", problem)
	}
	n.Restart()
	(<-held).Release()
	last := "nothing"
	for len(reports) > 0 {
		last = <-reports
	}
	if last != "" {
		t.Errorf("reported at the end: %q", last)
	}
}

// While the server is up the lease is kept, and it ends with the context. A machine
// that stands still for longer than the lease lasts loses it, as it must: then it is
// taken once more.
func TestKept(t *testing.T) {
	kv := bucket(t, servicetest.Start(t, streams.Shard{}))
	var l *lease.Lease
	var first uint64
	end := func() {}
	take := func() {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		var err error
		l, err = lease.Hold(ctx, kv, options("kept"), nil)
		servicetest.OK(t, err)
		_, first = read(t, kv)
		end = cancel
	}
	take()
	servicetest.Eventually(t, "it is renewed for twice its time", func() bool {
		if l.Context().Err() != nil {
			take()
		}
		_, revision := read(t, kv)
		return revision >= first+2*lease.Renewals && l.Context().Err() == nil
	})
	servicetest.Eventually(t, "it is given back", func() bool { // a release that the server does not answer in time is none
		end()
		l.Release()
		if e, _ := read(t, kv); e.Released {
			return true
		}
		take()
		return false
	})
}

// late answers reads with what was there before the lease was taken, and fails
// writes, for as long as it is on.
type late struct {
	jetstream.KeyValue
	on       atomic.Bool
	old      jetstream.KeyValueEntry
	outlived atomic.Bool // a write came after such a read
	misled   atomic.Bool // there was such a read
}

func (l *late) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if l.on.Load() {
		l.misled.Store(true)
		return l.old, nil
	}
	return l.KeyValue.Get(ctx, key)
}

func (l *late) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if l.on.Load() {
		l.outlived.Store(l.misled.Load())
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
	servicetest.Eventually(t, "it is renewed after the read, or is lost", func() bool { return kv.outlived.Load() || l.Context().Err() != nil })
	if err := context.Cause(l.Context()); err != nil && strings.Contains(err.Error(), "before has it") { // for the time that passed it may be lost
		t.Fatalf("lost by a stale read: %v", err)
	}
	kv.on.Store(false)
	_, revision := read(t, kv)
	servicetest.Eventually(t, "it is renewed again, or was lost for the time that passed", func() bool {
		_, now := read(t, kv)
		return now > revision || l.Context().Err() != nil
	})
	l.Release()
}

// unanswered stores the first write and does not answer it in time.
type unanswered struct {
	jetstream.KeyValue
	once sync.Once
}

func (u *unanswered) Update(ctx context.Context, key string, value []byte, revision uint64) (stored uint64, err error) {
	stored, err = u.KeyValue.Update(ctx, key, value, revision)
	u.once.Do(func() { err = context.DeadlineExceeded })
	return stored, err
}

// Who takes the lease and gets no answer does not stand by for itself.
func TestTakenWithoutAnAnswer(t *testing.T) {
	kv := &unanswered{KeyValue: bucket(t, servicetest.Start(t, streams.Shard{}))}
	l, err := lease.Hold(t.Context(), kv, options("one"), func(holder string) { t.Errorf("it stands by for %q", holder) })
	servicetest.OK(t, err)
	l.Release()
}
