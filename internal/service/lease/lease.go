// Package lease decides which of several instances of a service is the active
// one on a shard: the one that holds the lease, a key of a KV bucket that it
// writes again and again. The others stand by and take it over when it stops
// doing so.
//
// A lease is for order, not for safety: a holder that was stopped for a while
// finds out too late that it has lost it. What it writes meanwhile must be fenced
// where it is written.
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
)

// Defaults of Options. A standby takes over TTL after the last sign of life, and
// what it then needs to begin comes on top.
const (
	DefaultTTL = 4 * time.Second
	renewals   = 6 // in one TTL
)

// ErrLost says that the lease is somebody else's, or may be.
var ErrLost = errors.New("the lease of the shard is lost: another instance is active or about to be")

// Options of Hold.
type Options struct {
	Key string // one for each service and shard
	// Holder names this process; it must be its own.
	Holder string
	// Place, unless it is empty, is where only one process can run at a time, such
	// as a child of one supervisor: what an earlier process of the same place holds
	// is taken over at once.
	Place string
	TTL   time.Duration // DefaultTTL if zero; the same for all instances
	Log   zerolog.Logger
}

// leaseEntry is the value of a lease's key.
type leaseEntry struct {
	Holder   string `json:"holder"`
	Place    string `json:"place,omitempty"`
	Released bool   `json:"released,omitempty"`
}

// Lease is one that this process holds.
type Lease struct {
	opt      Options
	kv       jetstream.KeyValue
	revision uint64
	renewed  atomic.Pointer[time.Time] // when the last write that succeeded began
	ctx      context.Context
	lose     context.CancelCauseFunc
	done     chan struct{}
}

// Hold waits until this process holds the lease, or ctx ends. standby, which may
// be nil, is called once if it has to wait; holder is who is active.
func Hold(ctx context.Context, kv jetstream.KeyValue, opt Options, standby func(holder string)) (*Lease, error) {
	if opt.TTL == 0 {
		opt.TTL = DefaultTTL
	}
	var seen uint64 // the revision that was there last
	var since time.Time
	for {
		have, revision, err := readEntry(ctx, kv, opt.Key)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			opt.Log.Warn().Err(err).Msg("the lease cannot be read; it will be tried again")
		case revision != seen || since.IsZero():
			seen, since = revision, time.Now()
		}
		free := err == nil && (revision == 0 || have.Released || have.Place != "" && have.Place == opt.Place || time.Since(since) >= opt.TTL)
		if free {
			l, err := takeLease(ctx, kv, opt, revision)
			if err == nil {
				return l, nil
			}
			opt.Log.Debug().Err(err).Msg("somebody else was faster")
		} else if err == nil && standby != nil {
			standby(have.Holder)
			standby = nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(opt.TTL / renewals):
		}
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
	// What cannot be read is held by nobody who can be named, and runs out.
	_ = json.Unmarshal(have.Value(), &e)
	return e, have.Revision(), nil
}

// callTimeout is for one call to the bucket.
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
	revision, err := l.kv.Update(ctx, l.opt.Key, value, l.revision)
	if err != nil {
		return err
	}
	l.revision = revision
	l.renewed.Store(&begun)
	return nil
}

// keepRenewing renews the lease until its context ends, somebody else has it, or it could
// not be renewed for so long that somebody else may have it.
func (l *Lease) keepRenewing() {
	defer close(l.done)
	tick := time.NewTicker(l.opt.TTL / renewals)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
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
		// The others count from when they saw it last, which was later.
		if errors.Is(err, ErrLost) || !l.Valid() {
			l.lose(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
	}
}

// recoverWrite finds out what a write that failed has done: it may have arrived.
func (l *Lease) recoverWrite(cause error) error {
	have, revision, err := readEntry(l.ctx, l.kv, l.opt.Key)
	switch {
	case err != nil:
		return cause
	case have.Holder == l.opt.Holder:
		l.revision = max(l.revision, revision)
		return cause // renewed only by a write that succeeds
	case revision == 0:
		l.revision = 0 // the bucket is new
		return cause
	case revision < l.revision:
		// Older than what this holder wrote: a server that lags answered, or the
		// bucket is new. In the second case the renewals fail until the lease is lost.
		return cause
	}
	return fmt.Errorf("%w: %s has it", ErrLost, have.Holder)
}

// Valid reports whether the lease is certainly held now: it was not lost, and was
// renewed so recently that no standby can have taken it. A process that was
// stopped for a while finds out here, before the next renewal does.
func (l *Lease) Valid() bool {
	return l.ctx.Err() == nil && time.Since(*l.renewed.Load()) < l.opt.TTL*3/4
}

// Context ends with the context of Hold, or, with ErrLost as its cause, when the
// lease is lost.
func (l *Lease) Context() context.Context { return l.ctx }

// Release gives the lease back, so that a standby need not wait until it runs
// out. Call it when nothing is written any more.
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
