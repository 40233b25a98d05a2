package admitter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aaep/confirm"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

const (
	// rereadAfter is the pause before the confirmations are read again, from a log that turned
	// out to be a new one.
	rereadAfter = time.Second
	// catchUp is how long a request waits at most for this admitter to read what is already in
	// the log.
	catchUp = 2 * time.Second
)

// confirmationStore is the stateStore of AAEP confirmations. It follows the questions and answers
// in the log. Used confirmations are keys of a bucket, which only one admitter can create. While
// the log cannot be read, no confirmation is known, and invocations that need one lead to a
// question.
type confirmationStore struct {
	s        *service
	opts     confirm.Options
	lookback time.Duration // how far back the log is read
	js       jetstream.JetStream
	kv       jetstream.KeyValue

	mu        sync.RWMutex
	store     *confirm.Store
	watermark watermark // the log sequence up to which store is complete
}

func newConfirmationStore(s *service) *confirmationStore {
	opts := confirm.Options{Space: s.space, Repliers: s.publishers.repliers, Entry: s.publishers.entry}
	c := &confirmationStore{s: s, opts: opts, lookback: confirm.Horizon}
	c.reset()
	return c
}

// reset forgets all confirmations.
func (c *confirmationStore) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store = confirm.New(c.opts)
	c.watermark.set(0)
}

// start implements stateStore. It reads back as far as a question can still matter.
func (c *confirmationStore) start(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	c.js = js
	if c.kv, err = streams.OpenBucket(ctx, js, streams.BucketConfirmed); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- c.followLog(ctx, ready) }()
	select {
	case <-ready:
		return func() { cancel(); <-done }, nil //nolint:errcheck // it is reported when it happens
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("reading the confirmations: %w", err)
	}
}

// followLog reads until ctx ends. An error before ready is closed is returned; a later one is
// reported, and reading starts again.
func (c *confirmationStore) followLog(ctx context.Context, ready chan<- struct{}) error {
	begun := false
	for {
		err := c.readLog(ctx, func() {
			c.s.env.Health.Set("confirmations", "")
			if !begun {
				begun = true
				close(ready)
			}
		})
		if ctx.Err() != nil || !begun {
			return err
		}
		c.reset()
		c.s.env.Log.Error().Err(err).Msg("the confirmations are read anew")
		c.s.env.Health.Set("confirmations", "no confirmation counts until the log can be read: "+err.Error())
		if err := retry.Sleep(ctx, rereadAfter); err != nil {
			return err
		}
	}
}

// readLog follows the log. It calls caughtUp whenever nothing is left to read.
func (c *confirmationStore) readLog(ctx context.Context, caughtUp func()) error {
	st, err := streams.StreamState(ctx, c.js, c.s.flags.Stream)
	if err != nil {
		return err
	}
	return streams.ReadLog(ctx, c.js, streams.ReadOptions{
		Stream: c.s.flags.Stream, Filter: c.opts.Subjects(), Since: time.Now().Add(-c.lookback), Log: c.s.env.Log, Stalled: c.s.env.Metrics.ReaderStalled,
		Idle: func() error {
			c.applyMessages(nil, st.LastSeq) // older messages are not delivered
			caughtUp()
			return nil
		},
	}, func(batch []events.LogMessage) error {
		c.applyMessages(batch, batch[len(batch)-1].Seq)
		return nil
	})
}

// applyMessages applies messages; the store is then complete up to sequence head.
func (c *confirmationStore) applyMessages(batch []events.LogMessage, head uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		c.store.Apply(m)
	}
	c.watermark.raise(head)
}

// Confirmation implements call.Confirmations.
func (c *confirmationStore) Confirmation(i call.Invocation) call.Confirmation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.store.Confirmation(i)
}

// load implements stateStore.
func (c *confirmationStore) load(_ admission.Request, in *admission.Inputs) { in.Confirmations = c }

// reserve implements stateStore.
func (c *confirmationStore) reserve(ctx context.Context, _ admission.Request, out *admission.Outcome) (reservation, error) {
	switch {
	case out.Consumption.Confirmation != "":
		if err := c.checkStands(ctx, out.Consumption.Confirmation, *out.Consumption.ConfirmedInvocation); err != nil {
			return reservation{}, err
		}
		return c.markUsed(ctx, out.Consumption.Confirmation, out.Decision)
	case out.Consumption.Unconfirmed != nil:
		return reservation{}, c.checkMissed(ctx, *out.Consumption.Unconfirmed)
	}
	return reservation{}, nil
}

// confirmationUse is the bucket's value for a used confirmation.
type confirmationUse struct {
	DecisionID string      `json:"decision_id"`
	Session    string      `json:"session"`
	ToolCallID string      `json:"tool_call_id"`
	UsedAt     events.Time `json:"used_at"`
}

// markUsed claims an acceptance for a decision by creating its key. In doubt it counts as used:
// the user can be asked again.
func (c *confirmationStore) markUsed(ctx context.Context, id string, d events.Decision) (reservation, error) {
	body, err := events.Encode(confirmationUse{d.DecisionID, d.Session, d.ToolCallID, d.DecidedAt})
	if err != nil {
		return reservation{}, err
	}
	revision, err := c.kv.Create(ctx, id, body)
	switch {
	case streams.IsKVConflict(err):
		c.updateStore(func(st *confirm.Store) { st.Use(id, "") })
		return reservation{}, fmt.Errorf("%w: the user's confirmation", errConflict)
	case err != nil:
		return reservation{}, fmt.Errorf("using a confirmation: %w", err)
	}
	c.updateStore(func(st *confirm.Store) { st.Use(id, d.ToolCallID) })
	return reservation{release: func(ctx context.Context) {
		if err := c.kv.Delete(ctx, id, jetstream.LastRevision(revision)); err != nil {
			c.s.env.Log.Warn().Err(err).Msg("a confirmation that was not used cannot be released; the user must be asked again")
			return
		}
		c.updateStore(func(st *confirm.Store) { st.Release(id) })
	}}, nil
}

func (c *confirmationStore) updateStore(f func(*confirm.Store)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.store)
}

// checkMissed checks whether the log holds an answer that had not been read when the decision was
// made: a runtime may send its request right after the acknowledgement of the answer. If the
// answer makes a difference, the decision is made again.
func (c *confirmationStore) checkMissed(ctx context.Context, i call.Invocation) error {
	if c.readUpTo(ctx, c.opts.ReplySubjects(i)) != nil {
		return nil // keep the decision: it asks the user
	}
	config := c.s.config.Load()
	if aaep.DecidesInvocation(i, c.Confirmation(i), config != nil && config.Strict) {
		return fmt.Errorf("%w: the user's answer has come", errConflict)
	}
	return nil
}

// checkStands checks that the log does not already take an acceptance back by what had not been
// read when the decision was made, such as the end of the session.
func (c *confirmationStore) checkStands(ctx context.Context, id string, i call.Invocation) error {
	if err := c.readUpTo(ctx, c.opts.SessionSubjects(i)); err != nil {
		return fmt.Errorf("reading what became of a confirmation: %w", err)
	}
	if now := c.Confirmation(i); now.Status != call.ConfirmationAccepted || now.ID != id {
		return fmt.Errorf("%w: the user's confirmation", errConflict)
	}
	return nil
}

// readUpTo waits until the store has applied what the log holds of some subjects, at most for
// catchUp.
func (c *confirmationStore) readUpTo(ctx context.Context, subjects []string) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	var last uint64
	for _, subj := range subjects {
		m, err := streams.LastBySubject(ctx, c.js, c.s.flags.Stream, subj)
		if err != nil {
			return err
		}
		if m != nil {
			last = max(last, m.Seq)
		}
	}
	return c.watermark.await(ctx, last)
}
