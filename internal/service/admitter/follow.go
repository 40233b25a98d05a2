package admitter

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// bucketFollower passes the content of a KV bucket, and then every change, to one function. It
// reads the bucket again after a lost connection, because the watch would notice only much later
// what it missed, and when the watch stalls while the bucket's leader holds more.
type bucketFollower struct {
	s      *service
	bucket string
	// settleDelay is how long a burst of changes is collected; 0 applies each change at once.
	settleDelay time.Duration
	// apply gets the changed keys (value nil for deleted ones) and the bucket's revision. Calls
	// never overlap.
	apply func(ctx context.Context, changed map[string]bucketEntry, revision uint64)

	nc          *nats.Conn
	js          jetstream.JetStream
	kv          jetstream.KeyValue
	lag         *leaderLag
	watcher     jetstream.KeyWatcher
	updates     <-chan jetstream.KeyValueEntry // of watcher; nil once it has ended
	known       map[string]knownEntry          // what has been applied
	pending     map[string]bucketEntry         // collected during a burst
	newest      uint64                         // the newest revision seen
	watermark   watermark
	reported    uint64 // the revision reported to progress
	hasReported bool
	view        atomic.Uint64 // number of reconnects before the view was read
}

// bucketEntry is one key's value as a bucket holds it.
type bucketEntry struct {
	value    []byte // nil: deleted
	revision uint64 // 0: the bucket holds no trace of the key
}

// knownEntry identifies an entry. The hash is needed because a recreated bucket counts its
// revisions from one again.
type knownEntry struct {
	revision uint64
	value    [sha256.Size]byte
}

func (e bucketEntry) identity() knownEntry { return knownEntry{e.revision, sha256.Sum256(e.value)} }

// start reads the bucket before it returns, and follows it until ctx ends.
func (f *bucketFollower) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	f.js, f.known, f.lag = js, map[string]knownEntry{}, newLeaderLag(js, f.bucket)
	if f.kv, err = streams.OpenBucket(ctx, js, f.bucket); err != nil {
		return nil, err
	}
	f.nc = nc
	f.s.progress.trackView(&f.view)
	ctx, cancel := context.WithCancel(ctx)
	back := nc.StatusChanged(nats.CONNECTED)
	if err := f.openWatch(ctx); err != nil {
		cancel()
		nc.RemoveStatusListener(back)
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.followChanges(ctx, back)
		nc.RemoveStatusListener(back)
		_ = f.watcher.Stop()
	}()
	return func() { cancel(); <-done }, nil
}

// openWatch applies the content of the bucket and keeps the watch. It returns streams.ErrBehind,
// and applies nothing, if the watch delivered an older state than the bucket's leader has.
func (f *bucketFollower) openWatch(ctx context.Context) error {
	floor, err := f.lag.minRevision(ctx)
	if err != nil {
		return err
	}
	over := f.nc.Stats().Reconnects
	watcher, err := f.kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watching the bucket %s: %w", f.bucket, err)
	}
	held, revision := map[string]bucketEntry{}, uint64(0)
	timeout := time.After(openTimeout)
	for {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), watcher.Stop())
		case <-timeout:
			return errors.Join(fmt.Errorf("reading the bucket %s: it does not answer: %w", f.bucket, context.DeadlineExceeded), watcher.Stop())
		case e, open := <-watcher.Updates():
			switch {
			case !open:
				return fmt.Errorf("reading the bucket %s: the watch ended", f.bucket)
			case e != nil:
				revision = max(revision, e.Revision())
				held[e.Key()] = readEntry(e)
				continue
			}
			if err := f.lag.checkComplete(revision, floor); err != nil {
				return errors.Join(err, watcher.Stop())
			}
			if f.watcher != nil {
				_ = f.watcher.Stop()
			}
			f.watcher, f.updates = watcher, watcher.Updates()
			f.applySnapshot(ctx, held, revision)
			f.view.Store(over)
			return nil
		}
	}
}

// applySnapshot makes a complete read the view: known keys that it lacks are deleted.
func (f *bucketFollower) applySnapshot(ctx context.Context, held map[string]bucketEntry, revision uint64) {
	for key := range f.known {
		if _, there := held[key]; !there {
			held[key] = bucketEntry{}
		}
	}
	f.pending, f.newest = held, revision // lower than before if the bucket was recreated
	f.applyPending(ctx)
}

func readEntry(e jetstream.KeyValueEntry) bucketEntry {
	if e.Operation() != jetstream.KeyValuePut {
		return bucketEntry{revision: e.Revision()}
	}
	return bucketEntry{value: append([]byte{}, e.Value()...), revision: e.Revision()}
}

func (f *bucketFollower) followChanges(ctx context.Context, back <-chan nats.Status) {
	again := time.NewTimer(retry.UntilTick(recordRetry))
	defer again.Stop()
	var burst <-chan time.Time // while a burst is under way
	stale := false
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-f.updates:
			if !open {
				f.updates, stale = nil, true
			}
			if e == nil {
				continue
			}
			f.pending[e.Key()], f.newest = readEntry(e), max(f.newest, e.Revision())
			switch {
			case f.settleDelay == 0:
				f.applyPending(ctx)
			case burst == nil:
				burst = time.After(f.settleDelay)
			}
		case <-burst:
			burst = nil
			f.applyPending(ctx)
		case <-back:
			stale = f.reopenWatch(ctx)
		case <-again.C:
			again.Reset(retry.UntilTick(recordRetry))
			if stale {
				stale = f.reopenWatch(ctx)
			}
			f.applyPending(ctx)
			f.lag.askLeader(ctx, f.newest)
		case l := <-f.lag.answers:
			if err := f.lag.checkAnswer(l, f.newest); err != nil {
				f.s.env.Log.Warn().Err(err).Msg("the bucket is read again")
				f.s.env.Metrics.ReaderStalled()
				stale = f.reopenWatch(ctx)
			}
		}
	}
}

// reopenWatch reads the bucket again and reports whether the view may still be out of date.
func (f *bucketFollower) reopenWatch(ctx context.Context) (stale bool) {
	err := f.openWatch(ctx)
	switch {
	case err == nil:
		f.s.env.Health.Set(f.bucket+"_watch", "")
		return false
	case ctx.Err() == nil:
		f.s.env.Log.Error().Err(err).Str("bucket", f.bucket).Msg("the bucket could not be read again yet")
		f.s.env.Health.Set(f.bucket+"_watch", "what is known of the bucket may be out of date: "+err.Error())
	}
	return true
}

// applyPending applies the collected changes. It calls apply without any change, too, so that
// apply can retry what failed before.
func (f *bucketFollower) applyPending(ctx context.Context) {
	for key, e := range f.pending {
		now := e.identity()
		if old, there := f.known[key]; there && old == now {
			delete(f.pending, key)
			continue
		}
		if f.known[key] = now; e.revision == 0 {
			delete(f.known, key)
		}
	}
	f.apply(ctx, f.pending, f.newest)
	f.pending = map[string]bucketEntry{}
	f.watermark.set(f.newest)
	if !f.hasReported || f.reported != f.newest {
		f.reported, f.hasReported = f.newest, true
		f.s.progress.noteChange(f.bucket, f.newest)
	}
}

// caughtUp waits until everything is applied that the bucket held at the call.
func (f *bucketFollower) caughtUp(ctx context.Context) error {
	st, err := streams.StreamState(ctx, f.js, "KV_"+f.bucket)
	if err != nil {
		return err
	}
	if err := f.watermark.await(ctx, st.LastSeq); err != nil {
		return fmt.Errorf("following the bucket %s: %w", f.bucket, err)
	}
	return nil
}

// watermark is the position that a view has reached; goroutines can wait for a position. The view
// sets it after it has applied the data. The zero watermark is at 0.
type watermark struct {
	mu       sync.Mutex
	position uint64
	moved    chan struct{} // closed at the next change; nil while no goroutine waits
}

// set moves the watermark, backwards too: the followed stream may have been recreated.
func (w *watermark) set(at uint64) { w.update(func(uint64) uint64 { return at }) }

// raise moves the watermark forward; a lower position changes nothing.
func (w *watermark) raise(at uint64) { w.update(func(now uint64) uint64 { return max(now, at) }) }

func (w *watermark) update(to func(now uint64) uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.position = to(w.position)
	if w.moved != nil {
		close(w.moved)
		w.moved = nil
	}
}

// current returns the position and a channel that is closed at the next change.
func (w *watermark) current() (at uint64, moved <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moved == nil {
		w.moved = make(chan struct{})
	}
	return w.position, w.moved
}

// await returns nil once the watermark has reached at, or the error of ctx.
func (w *watermark) await(ctx context.Context, at uint64) error {
	for {
		now, moved := w.current()
		if now >= at {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
