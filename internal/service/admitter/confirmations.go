package admitter

import (
	"context"
	"errors"
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
	"github.com/countersign-dev/countersign/streams"
)

const (
	// rereadAfter is the pause before the confirmations are read anew from a log
	// that turned out to be another one.
	rereadAfter = time.Second
	// catchUp is how long a request waits at most for this admitter to have read an
	// answer that is on the log already.
	catchUp = 2 * time.Second
)

// confirmationStore is the part that knows what AAEP's users have confirmed. It
// follows the questions and answers of the log; what was used is in a bucket,
// where only one admitter can put it. While the log cannot be read it knows of
// no confirmation, and grave invocations are asked about.
type confirmationStore struct {
	s        *service
	opts     confirm.Options
	lookback time.Duration // how far the log is read back
	js       jetstream.JetStream
	kv       jetstream.KeyValue

	mu        sync.RWMutex
	ledger    *confirm.Store
	watermark watermark // the ledger has everything up to it
}

func newConfirmationStore(s *service) *confirmationStore {
	c := &confirmationStore{s: s, opts: confirm.Options{Space: s.space, Repliers: s.flags.Repliers}, lookback: confirm.Horizon}
	c.reset()
	return c
}

// reset forgets everything.
func (c *confirmationStore) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger = confirm.New(c.opts)
	c.watermark.set(0)
}

// start implements part. It reads back as far as a question can still matter.
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
		return func() { cancel(); <-done }, nil
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("reading the confirmations: %w", err)
	}
}

// followLog reads until ctx ends. An error before it is ready is returned; later
// ones are told, and reading begins anew.
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rereadAfter):
		}
	}
}

// readLog follows the log; caughtUp is called when there is nothing more to read,
// and then again and again.
func (c *confirmationStore) readLog(ctx context.Context, caughtUp func()) error {
	st, err := streams.StreamState(ctx, c.js, c.s.flags.Stream)
	if err != nil {
		return err
	}
	return streams.ReadLog(ctx, c.js, streams.ReadOptions{
		Stream: c.s.flags.Stream, Filter: c.opts.Subjects(), Since: time.Now().Add(-c.lookback), Log: c.s.env.Log, Stalled: c.s.env.Metrics.ReaderStalled,
		Idle: func() error {
			c.applyMessages(nil, st.LastSeq) // what was before and is too old does not come
			caughtUp()
			return nil
		},
	}, func(batch []events.LogMessage) error {
		c.applyMessages(batch, batch[len(batch)-1].Seq)
		return nil
	})
}

// applyMessages takes messages; the ledger then has everything up to a sequence.
func (c *confirmationStore) applyMessages(batch []events.LogMessage, head uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		c.ledger.Apply(m)
	}
	c.watermark.raise(head)
}

// Confirmation implements call.Confirmations.
func (c *confirmationStore) Confirmation(i call.Invocation) call.Confirmation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ledger.Confirmation(i)
}

// load implements part.
func (c *confirmationStore) load(req admission.Request, in *admission.Inputs) {
	if req.Protocol == aaep.Name {
		in.Confirmations = c
	}
}

// reserve implements part.
func (c *confirmationStore) reserve(ctx context.Context, _ admission.Request, out *admission.Outcome) (reservation, error) {
	switch {
	case out.Reservations.Confirmation != "":
		return c.markUsed(ctx, out.Reservations.Confirmation, out.Decision)
	case out.Reservations.Unconfirmed != nil:
		return reservation{}, c.checkMissed(ctx, *out.Reservations.Unconfirmed)
	}
	return reservation{}, nil
}

// confirmationUse is what the bucket says of a confirmation that was used.
type confirmationUse struct {
	DecisionID string      `json:"decision_id"`
	Session    string      `json:"session"`
	ToolCallID string      `json:"tool_call_id"`
	UsedAt     events.Time `json:"used_at"`
}

// markUsed takes an acceptance for a decision: whoever creates its key has it. In
// doubt it is used; the user can be asked again.
func (c *confirmationStore) markUsed(ctx context.Context, id string, d events.Decision) (reservation, error) {
	body, err := events.Encode(confirmationUse{d.DecisionID, d.Session, d.ToolCallID, d.DecidedAt})
	if err != nil {
		return reservation{}, err
	}
	revision, err := c.kv.Create(ctx, id, body)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		c.updateLedger(func(l *confirm.Store) { l.Use(id, "") })
		return reservation{}, fmt.Errorf("%w: the user's confirmation", errConflict)
	case err != nil:
		return reservation{}, fmt.Errorf("using a confirmation: %w", err)
	}
	c.updateLedger(func(l *confirm.Store) { l.Use(id, d.ToolCallID) })
	return reservation{release: func(ctx context.Context) {
		if err := c.kv.Delete(ctx, id, jetstream.LastRevision(revision)); err != nil {
			c.s.env.Log.Warn().Err(err).Msg("a confirmation that was not used cannot be given back; the user must be asked again")
			return
		}
		c.updateLedger(func(l *confirm.Store) { l.Release(id) })
	}}, nil
}

func (c *confirmationStore) updateLedger(f func(*confirm.Store)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.ledger)
}

// checkMissed looks whether the log holds an answer that had not been read yet when
// the decision was made: a runtime may ask right after the acknowledgement of the
// answer that it published. If it makes a difference, the decision is made again.
func (c *confirmationStore) checkMissed(ctx context.Context, i call.Invocation) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	var last uint64
	for _, subj := range c.opts.ReplySubjects(i) {
		m, err := streams.LastBySubject(ctx, c.js, c.s.flags.Stream, subj)
		if err != nil {
			return nil // what is known stands: it asks
		}
		if m != nil {
			last = max(last, m.Seq)
		}
	}
	if !c.awaitSeq(ctx, last) {
		return nil
	}
	snap := c.s.snapshot.Load()
	if aaep.DecidesInvocation(i, c.Confirmation(i), snap != nil && snap.Strict) {
		return fmt.Errorf("%w: the user's answer has come", errConflict)
	}
	return nil
}

// awaitSeq waits until the ledger has a message of the log.
func (c *confirmationStore) awaitSeq(ctx context.Context, seq uint64) bool {
	return c.watermark.await(ctx, seq) == nil
}
