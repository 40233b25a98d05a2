package streams

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"
)

// Defaults of CommitterOptions.
const (
	DefaultBatchAbove    = 12
	DefaultMaxPending    = 8192
	DefaultCommitTimeout = 5 * time.Second
)

// CommitterOptions tune a Committer; zero values mean the defaults.
type CommitterOptions struct {
	// Stream that must acknowledge; required.
	Stream string
	// BatchAbove: a group of more messages than this goes as one atomic batch. A
	// batch costs about as much as a dozen single durable publishes.
	BatchAbove int
	// MaxBatch is the size of a group at most, in messages (at most 1000).
	MaxBatch int
	// MaxPending is how many messages may wait or be in flight; Append blocks
	// beyond it.
	MaxPending int
	// Timeout for the acknowledgements of one group.
	Timeout time.Duration
}

// Committer appends messages to the log for many goroutines: what is queued
// while a commit is in flight is committed together. One goroutine owns the
// sending; Close ends it.
type Committer struct {
	lane  *lane
	opt   CommitterOptions
	slots *semaphore.Weighted

	mu     sync.Mutex
	queue  []*appendCall
	closed bool

	wake    chan struct{}
	stop    context.CancelFunc
	stopped chan struct{}

	// Of the owner goroutine: how many groups still go by singles after a
	// refused batch, and the next such number.
	skip, backoff int
}

// appendCall is one Append under way.
type appendCall struct {
	msgs  []Msg
	bytes int
	// claimed by whoever is first: the owner who sends it or the caller who
	// gives up before.
	claimed atomic.Bool
	done    chan struct{}
	seqs    []uint64
	err     error
}

// NewCommitter starts a Committer on a connection that it shares.
func NewCommitter(nc *nats.Conn, opt CommitterOptions) (*Committer, error) {
	if opt.Stream == "" {
		return nil, fmt.Errorf("%w: CommitterOptions.Stream is empty", ErrRefused)
	}
	orInt := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	orInt(&opt.BatchAbove, DefaultBatchAbove)
	orInt(&opt.MaxBatch, MaxBatch)
	orInt(&opt.MaxPending, DefaultMaxPending)
	opt.MaxBatch = min(opt.MaxBatch, MaxBatch, opt.MaxPending)
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultCommitTimeout
	}
	l, err := newLane(nc, opt.Stream, opt.Timeout)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Committer{
		lane: l, opt: opt, slots: semaphore.NewWeighted(int64(opt.MaxPending)),
		wake: make(chan struct{}, 1), stop: stop, stopped: make(chan struct{}),
	}
	go c.run(ctx)
	return c, nil
}

// Append stores messages and returns their sequences in the log, in order and
// increasing (contiguous only by chance), once the server has acknowledged all
// of them. Messages of one Append are stored in their order, all in one batch
// or all singly. Errors: ErrRefused, nothing is stored (ErrTooLarge,
// ErrReservedHeader, ErrClosed say why); ErrDoubt, some or all may be stored;
// ctx's error alone, ctx ended before anything was sent.
func (c *Committer) Append(ctx context.Context, msgs ...Msg) ([]uint64, error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	if len(msgs) > c.opt.MaxBatch {
		return nil, fmt.Errorf("%w: %w: %d messages in one Append, at most %d", ErrRefused, ErrTooLarge, len(msgs), c.opt.MaxBatch)
	}
	bytes, err := checkAll(msgs, c.lane.nc.MaxPayload())
	if err != nil {
		return nil, err
	}
	n := int64(len(msgs))
	if err := c.slots.Acquire(ctx, n); err != nil {
		return nil, err
	}
	call := &appendCall{msgs: msgs, bytes: bytes, done: make(chan struct{})}
	if !c.enqueue(call) {
		c.slots.Release(n)
		return nil, fmt.Errorf("%w: %w", ErrRefused, ErrClosed)
	}
	select {
	case <-call.done:
		return call.seqs, call.err
	case <-ctx.Done():
		if call.claimed.CompareAndSwap(false, true) {
			return nil, ctx.Err() // the owner drops it, and frees its slots
		}
		return nil, fmt.Errorf("%w: %w", ErrDoubt, ctx.Err())
	}
}

func (c *Committer) enqueue(call *appendCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.queue = append(c.queue, call)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return true
}

// Close lets the commit in flight end, refuses what is queued and all that
// comes later, and returns when the owner goroutine is gone. The connection
// stays open.
func (c *Committer) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	<-c.stopped
}

// run is the owner. Only it touches the lane.
func (c *Committer) run(ctx context.Context) {
	defer close(c.stopped)
	defer c.lane.close()
	defer c.refuseQueued()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		for ctx.Err() == nil {
			group := c.take()
			if len(group) == 0 {
				break
			}
			c.commit(group)
		}
	}
}

func (c *Committer) refuseQueued() {
	for group := c.take(); len(group) > 0; group = c.take() {
		for _, call := range group {
			c.finish(call, nil, fmt.Errorf("%w: %w", ErrRefused, ErrClosed))
		}
	}
}

// take claims as many queued calls as fit into one group.
func (c *Committer) take() (group []*appendCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes, used := 0, 0, 0
	for _, call := range c.queue {
		if len(group) > 0 && (n+len(call.msgs) > c.opt.MaxBatch || bytes+call.bytes > maxRoundBytes) {
			break
		}
		used++
		if !call.claimed.CompareAndSwap(false, true) { // its caller gave up
			c.slots.Release(int64(len(call.msgs)))
			continue
		}
		group = append(group, call)
		n, bytes = n+len(call.msgs), bytes+call.bytes
	}
	clear(c.queue[:used])
	if c.queue = c.queue[used:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return group
}

func (c *Committer) finish(call *appendCall, seqs []uint64, err error) {
	call.seqs, call.err = seqs, err
	c.slots.Release(int64(len(call.msgs)))
	close(call.done)
}
