// Package lease selects the active instance of a service on a shard: the one that holds the
// lease, a key of a KV bucket that it rewrites periodically. The others stand by and take the
// lease over when the rewriting stops. Begin with Hold.
//
// A lease provides order, not safety: a holder that was suspended notices too late that it has
// lost the lease. Its writes must be fenced where they are stored.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// Defaults of Options. A standby takes over one TTL after the last renewal that it saw; its own
// start comes on top.
const (
	DefaultTTL = 4 * time.Second
	renewals   = 6 // per TTL
)

// ErrLost reports that another instance holds the lease, or may hold it.
var ErrLost = errors.New("the lease of the shard is lost")

// Options of Hold.
type Options struct {
	Key string // one per service and shard
	// Holder identifies this process; it must be unique.
	Holder string
	// Place, unless empty, names a place where only one process can run at a time, such as a
	// child of one supervisor: a lease held by an earlier process of the same place is taken over
	// at once.
	Place string
	TTL   time.Duration // DefaultTTL if zero; the same for all instances
	Log   zerolog.Logger
	// Report is told why Hold can neither read nor take the lease, and "" when that is over. It may be nil.
	Report func(problem string)
}

// leaseEntry is the value of a lease's key.
type leaseEntry struct {
	Holder   string `json:"holder"`
	Place    string `json:"place,omitempty"`
	Released bool   `json:"released,omitempty"`
}

// Lease is a lease that this process holds.
type Lease struct {
	opt      Options
	kv       jetstream.KeyValue
	revision uint64
	renewed  atomic.Pointer[time.Time] // start of the last successful write
	ctx      context.Context
	lose     context.CancelCauseFunc
	done     chan struct{}
}

// Hold waits until this process holds the lease, or ctx ends. standby, which may be nil, is
// called once if it has to wait; holder identifies the active instance.
func Hold(ctx context.Context, kv jetstream.KeyValue, opt Options, standby func(holder string)) (*Lease, error) {
	if opt.TTL == 0 {
		opt.TTL = DefaultTTL
	}
	var seen uint64 // last revision seen
	var since, noted time.Time
	for {
		have, revision, err := readEntry(ctx, kv, opt.Key)
		if err == nil && (revision != seen || since.IsZero()) {
			seen, since = revision, time.Now()
		}
		own := have.Holder == opt.Holder // an earlier write was stored, and its answer came too late
		free := revision == 0 || have.Released || own || have.Place != "" && have.Place == opt.Place || time.Since(since) >= opt.TTL
		switch {
		case err == nil && free:
			l, failed := takeLease(ctx, kv, opt, revision)
			if failed == nil {
				opt.report("")
				return l, nil
			}
			if !streams.IsKVConflict(failed) { // else another instance was faster
				err = fmt.Errorf("NATS does not take the write: %w", failed)
			}
		case err == nil && standby != nil:
			standby(have.Holder)
			standby = nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			opt.report("")
		} else {
			opt.report("the lease of the shard cannot be had: " + err.Error())
			if time.Since(noted) >= opt.TTL {
				opt.Log.Warn().Err(err).Msg("the lease of the shard cannot be had; it will be tried again")
				noted = time.Now()
			}
		}
		if err := retry.Sleep(ctx, opt.TTL/renewals); err != nil {
			return nil, err
		}
	}
}

func (o Options) report(problem string) {
	if o.Report != nil {
		o.Report(problem)
	}
}

func readEntry(ctx context.Context, kv jetstream.KeyValue, key string) (e leaseEntry, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	have, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return leaseEntry{}, 0, nil
	}
	if err != nil {
		return leaseEntry{}, 0, err
	}
	// A value that cannot be read names no holder; it expires like any other.
	_ = json.Unmarshal(have.Value(), &e)
	return e, have.Revision(), nil
}

// callTimeout bounds one call to the bucket.
const callTimeout = time.Second

func takeLease(ctx context.Context, kv jetstream.KeyValue, opt Options, revision uint64) (*Lease, error) {
	l := &Lease{opt: opt, kv: kv, revision: revision, done: make(chan struct{})}
	if err := l.writeEntry(ctx, false); err != nil {
		return nil, err
	}
	l.ctx, l.lose = context.WithCancelCause(ctx)
	go l.keepRenewing()
	return l, nil
}

func (l *Lease) writeEntry(ctx context.Context, released bool) error {
	value, err := json.Marshal(leaseEntry{l.opt.Holder, l.opt.Place, released})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(callTimeout, l.opt.TTL/4))
	defer cancel()
	begun := time.Now()
	var revision uint64
	if l.revision == 0 {
		revision, err = l.kv.Create(ctx, l.opt.Key, value) // also behind the marker of a deleted key
	} else {
		revision, err = l.kv.Update(ctx, l.opt.Key, value, l.revision)
	}
	if err != nil {
		return err
	}
	l.revision = revision
	l.renewed.Store(&begun)
	return nil
}

// keepRenewing renews the lease until its context ends, another instance has it, or renewals have
// failed for so long that another instance may have it.
func (l *Lease) keepRenewing() {
	defer close(l.done)
	every := l.opt.TTL / renewals
	next := time.NewTimer(retry.UntilTick(every))
	defer next.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-next.C:
		}
		next.Reset(retry.UntilTick(every)) // a renewal that takes longer is followed by another at once
		err := l.writeEntry(l.ctx, false)
		if err == nil {
			continue
		}
		if l.ctx.Err() != nil {
			return
		}
		if err = l.recoverWrite(err); err == nil {
			continue
		}
		l.opt.Log.Warn().Err(err).Msg("the lease could not be renewed")
		// The others count from when they saw the last renewal, which is later.
		switch {
		case errors.Is(err, ErrLost):
			l.lose(err)
			return
		case !l.Valid():
			l.lose(fmt.Errorf("%w: it could not be renewed for %v, so another instance may have it: %w", ErrLost, l.opt.TTL*3/4, err))
			return
		}
	}
}

// recoverWrite checks what a failed write has done: it may have been stored.
func (l *Lease) recoverWrite(cause error) error {
	have, revision, err := readEntry(l.ctx, l.kv, l.opt.Key)
	switch {
	case err != nil:
		return cause
	case have.Holder == l.opt.Holder:
		l.revision = max(l.revision, revision)
		return cause // only a successful write renews
	case revision == 0:
		l.revision = 0 // the bucket was recreated
		return cause
	case revision < l.revision:
		// Older than this holder's last write: a lagging server answered, or the bucket was
		// recreated. In the second case the renewals fail until the lease is lost.
		return cause
	}
	return fmt.Errorf("%w: %s has it", ErrLost, have.Holder)
}

// Valid reports whether the lease is held now: it was not lost, and was renewed so recently that no
// standby can have taken it. There is one exception: once its key or bucket is deleted, a standby takes it
// at once. After a suspension of the process this notices the loss before the next renewal does.
func (l *Lease) Valid() bool {
	return l.ctx.Err() == nil && time.Since(*l.renewed.Load()) < l.opt.TTL*3/4
}

// Context ends with the context of Hold or, with ErrLost as its cause, when the lease is lost.
func (l *Lease) Context() context.Context { return l.ctx }

// Release releases the lease, so that a standby need not wait until it expires. Call it after the
// last write.
func (l *Lease) Release() {
	lost := context.Cause(l.ctx)
	l.lose(context.Canceled)
	<-l.done
	if errors.Is(lost, ErrLost) {
		return
	}
	if err := l.writeEntry(context.WithoutCancel(l.ctx), true); err != nil {
		l.opt.Log.Debug().Err(err).Msg("the lease runs out by itself")
	}
}
