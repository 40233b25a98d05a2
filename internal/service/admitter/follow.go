package admitter

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// bucketFollower keeps a view of a KV bucket up to date: it passes on the content of the bucket, and
// then every change. It reads the bucket again after a lost connection, because the watch would notice
// only much later what it missed, and when the watch stalls while the bucket's leader holds more.
type bucketFollower struct {
	s      *service
	bucket string
	// settleDelay is how long a burst of changes is collected; 0 applies each change at once.
	settleDelay time.Duration
	view        bucketView
	// notices tell of changes that the watch does not report; nil if there are none. checkNotice reads
	// what one may concern; after an error the bucket is read again.
	notices     <-chan *nats.Msg
	checkNotice func(ctx context.Context, notice []byte) error

	nc         *nats.Conn
	kv         jetstream.KeyValue
	lag        *leaderLag
	logged     daemon.LoggedProblem // of reportStale
	watch      jetstream.KeyWatcher
	updates    <-chan jetstream.KeyValueEntry // of watch; nil once it has ended
	pending    map[string]bucketEntry         // collected during a burst
	newest     uint64                         // the newest revision seen
	watermark  watermark
	reconnects atomic.Uint64 // of the connection, before the view was read; notCurrent while the view is known to be old
}

// notCurrent is a number of reconnects that no connection has.
const notCurrent = math.MaxUint64

// closeWatch ends a watch. Stop alone leaves a goroutine of the library, which waits until an update is
// taken.
func closeWatch(w jetstream.KeyWatcher) {
	_ = w.Stop() // fails only if the watch has ended
	for range w.Updates() {
	}
}

// bucketView is what a bucketFollower keeps up to date. Calls never overlap.
type bucketView interface {
	// replaceAll makes a complete read of the bucket the view.
	replaceAll(ctx context.Context, read bucketRead)
	// applyChanges applies changed keys; revision is the newest of the bucket. Now and then it is called
	// without any change, to try again what failed before.
	applyChanges(ctx context.Context, changed map[string]bucketEntry, revision uint64)
}

// bucketRead is a complete read of a bucket. The view may keep and change the map.
type bucketRead struct {
	entries  map[string]bucketEntry
	revision uint64 // the bucket's newest
}

// bucketEntry is one key's value as a bucket holds it.
type bucketEntry struct {
	value    []byte // nil: deleted
	revision uint64 // 0: the bucket holds no trace of the key
}

// start reads the bucket before it returns, and follows it until ctx ends.
func (f *bucketFollower) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	if err := f.openBucket(ctx, nc, js); err != nil {
		return nil, err
	}
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
		closeWatch(f.watch)
	}()
	return func() { cancel(); <-done }, nil
}

func (f *bucketFollower) openBucket(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (err error) {
	f.nc, f.lag, f.pending = nc, newLeaderLag(js, f.bucket), map[string]bucketEntry{}
	f.kv, err = streams.OpenBucket(ctx, js, f.bucket)
	return err
}

// openWatch applies the content of the bucket and keeps the watch. It returns streams.ErrBehind,
// and applies nothing, if the watch delivered an older state than the bucket's leader has.
func (f *bucketFollower) openWatch(ctx context.Context) error {
	reconnects := f.nc.Stats().Reconnects // before anything is asked: what follows may come over a later connection
	if err := f.lag.begin(ctx); err != nil {
		return err
	}
	floor, err := f.lag.minRevision(ctx)
	if err != nil {
		return err
	}
	watch, err := f.kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watching the bucket %s: %w", f.bucket, err)
	}
	read, err := f.readAll(ctx, watch)
	if err == nil {
		err = f.lag.checkComplete(read.revision, floor)
	}
	if err != nil {
		closeWatch(watch)
		return err
	}
	if f.watch != nil {
		closeWatch(f.watch)
	}
	f.watch, f.updates = watch, watch.Updates()
	f.pending, f.newest = map[string]bucketEntry{}, read.revision // lower than before if the bucket was recreated
	f.view.replaceAll(ctx, read)
	f.reconnects.Store(reconnects)
	f.watermark.set(f.newest)
	return nil
}

// readAll takes the content of the bucket from a watch that has just begun. A large bucket may take long; a
// server that sends nothing for openTimeout does not answer.
func (f *bucketFollower) readAll(ctx context.Context, watch jetstream.KeyWatcher) (read bucketRead, err error) {
	read.entries = map[string]bucketEntry{}
	silence := time.NewTimer(openTimeout)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return read, ctx.Err()
		case <-silence.C:
			return read, fmt.Errorf("reading the bucket %s: it does not answer: %w", f.bucket, context.DeadlineExceeded)
		case e, open := <-watch.Updates():
			switch {
			case !open:
				return read, fmt.Errorf("reading the bucket %s: the watch ended", f.bucket)
			case e == nil:
				return read, nil
			}
			silence.Reset(openTimeout)
			read.revision = max(read.revision, e.Revision())
			read.entries[e.Key()] = readEntry(e)
		}
	}
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
				f.suspend(ctx)
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
		case m := <-f.notices:
			if err := f.checkNotice(ctx, m.Data); err != nil {
				f.reportStale(ctx, err)
				stale = f.reopenWatch(ctx)
			}
		case <-back:
			stale = f.reopenWatch(ctx)
		case <-again.C:
			again.Reset(retry.UntilTick(recordRetry))
			if stale {
				stale = f.reopenWatch(ctx)
			}
			f.applyPending(ctx)
			if !stale { // else the bucket is read again anyway
				f.lag.askLeader(ctx, f.newest)
			}
		case l := <-f.lag.answers:
			if err := f.lag.checkAnswer(l, f.newest); err != nil {
				f.s.env.Log.Warn().Err(err).Msg("the bucket is read again")
				if errors.Is(err, streams.ErrBehind) {
					f.s.env.Metrics.ReaderStalled()
				}
				stale = f.reopenWatch(ctx)
			}
		}
	}
}

// reopenWatch reads the bucket again and reports whether the view may still be out of date.
func (f *bucketFollower) reopenWatch(ctx context.Context) (stale bool) {
	if err := f.openWatch(ctx); err != nil {
		f.reportStale(ctx, err)
		return true
	}
	f.s.env.Health.Set(f.bucket+"_watch", "")
	return false
}

// suspend says that the view is no longer current. At the end of ctx it still is: decisions under way
// are finished by it.
func (f *bucketFollower) suspend(ctx context.Context) {
	if ctx.Err() == nil {
		f.reconnects.Store(notCurrent)
	}
}

func (f *bucketFollower) reportStale(ctx context.Context, err error) {
	f.suspend(ctx)
	if ctx.Err() == nil {
		if f.logged.IsDue(err.Error(), time.Now()) {
			f.s.env.Log.Error().Err(err).Str("bucket", f.bucket).Msg("the bucket could not be read again yet")
		}
		f.s.env.Health.Set(f.bucket+"_watch", "what is known of the bucket may be out of date: "+err.Error())
	}
}

func (f *bucketFollower) applyPending(ctx context.Context) {
	f.view.applyChanges(ctx, f.pending, f.newest)
	f.pending = map[string]bucketEntry{}
	f.watermark.set(f.newest)
}

// caughtUp waits until everything is applied that the bucket holds at the call. What was newer and is gone,
// by its age or an erasure, no watch delivers.
func (f *bucketFollower) caughtUp(ctx context.Context) error {
	newest, err := f.lag.minRevision(ctx)
	if err != nil {
		return err
	}
	if err := f.watermark.await(ctx, newest); err != nil {
		return fmt.Errorf("following the bucket %s: %w", f.bucket, err)
	}
	return nil
}

// trackedView is the view of a bucket that decisions rest on. It leaves out what has not changed, and
// tells the service's progress what new decisions use.
type trackedView struct {
	progress *changeProgress
	bucket   string
	// apply gets the changed keys (value nil for deleted ones) and the bucket's revision; without any
	// change it tries again what failed before.
	apply func(ctx context.Context, changed map[string]bucketEntry, revision uint64)

	known       map[string]knownEntry // what has been applied
	reported    uint64                // the revision reported to progress
	hasReported bool
}

// knownEntry identifies an entry. The hash is needed because a recreated bucket counts its
// revisions from one again.
type knownEntry struct {
	revision uint64
	value    [sha256.Size]byte
}

func (e bucketEntry) identity() knownEntry { return knownEntry{e.revision, sha256.Sum256(e.value)} }

// newTrackedFollower is a follower of a bucket that decisions rest on. They are recorded only while its
// view was read over the current connection, and is not known to be older than the bucket.
func newTrackedFollower(s *service, bucket string, settleDelay time.Duration, apply func(ctx context.Context, changed map[string]bucketEntry, revision uint64)) *bucketFollower {
	v := &trackedView{progress: s.progress, bucket: bucket, apply: apply, known: map[string]knownEntry{}}
	f := &bucketFollower{s: s, bucket: bucket, settleDelay: settleDelay, view: v}
	s.progress.trackView(&f.reconnects)
	return f
}

// replaceAll implements bucketView: known keys that the read lacks are deleted.
func (v *trackedView) replaceAll(ctx context.Context, read bucketRead) {
	for key := range v.known {
		if _, there := read.entries[key]; !there {
			read.entries[key] = bucketEntry{}
		}
	}
	v.applyChanges(ctx, read.entries, read.revision)
}

// applyChanges implements bucketView.
func (v *trackedView) applyChanges(ctx context.Context, changed map[string]bucketEntry, revision uint64) {
	for key, e := range changed {
		now := e.identity()
		if old, there := v.known[key]; there && old == now {
			delete(changed, key)
			continue
		}
		if v.known[key] = now; e.revision == 0 {
			delete(v.known, key)
		}
	}
	v.apply(ctx, changed, revision)
	if !v.hasReported || v.reported != revision {
		v.reported, v.hasReported = revision, true
		v.progress.noteChange(v.bucket, revision)
	}
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
