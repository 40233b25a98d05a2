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

// confirmations is the part that knows what AAEP's users have confirmed. It
// follows the questions and answers of the log; what was used is in a bucket,
// where only one admitter can put it. While the log cannot be read it knows of
// no confirmation, and grave invocations are asked about.
type confirmations struct {
	s    *service
	opts confirm.Options
	back time.Duration // how far the log is read back
	js   jetstream.JetStream
	kv   jetstream.KeyValue

	mu     sync.RWMutex
	ledger *confirm.Ledger
	head   mark // the ledger has everything up to it
}

func newConfirmations(s *service) *confirmations {
	c := &confirmations{s: s, opts: confirm.Options{Space: s.space, Repliers: s.flags.Repliers}, back: confirm.Horizon}
	c.reset()
	return c
}

// reset forgets everything.
func (c *confirmations) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger = confirm.New(c.opts)
	c.head.set(0)
}

// start implements part. It reads back as far as a question can still matter.
func (c *confirmations) start(ctx context.Context, _ *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	c.js = js
	if c.kv, err = streams.OpenBucket(ctx, js, streams.BucketConfirmed); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- c.follow(ctx, ready) }()
	select {
	case <-ready:
		return func() { cancel(); <-done }, nil
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("reading the confirmations: %w", err)
	}
}

// follow reads until ctx ends. An error before it is ready is returned; later
// ones are told, and reading begins anew.
func (c *confirmations) follow(ctx context.Context, ready chan<- struct{}) error {
	begun := false
	for {
		err := c.read(ctx, func() {
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

// read follows the log; caughtUp is called when there is nothing more to read,
// and then again and again.
func (c *confirmations) read(ctx context.Context, caughtUp func()) error {
	st, err := streams.StreamState(ctx, c.js, c.s.flags.Stream)
	if err != nil {
		return err
	}
	return streams.ReadLog(ctx, c.js, streams.ReadOptions{
		Stream: c.s.flags.Stream, Filter: c.opts.Subjects(), Since: time.Now().Add(-c.back), Log: c.s.env.Log, Stalled: c.s.env.Metrics.ReaderStalled,
		Idle: func() error {
			c.advance(nil, st.LastSeq) // what was before and is too old does not come
			caughtUp()
			return nil
		},
	}, func(batch []events.LogMessage) error {
		c.advance(batch, batch[len(batch)-1].Seq)
		return nil
	})
}

// advance takes messages; the ledger then has everything up to a sequence.
func (c *confirmations) advance(batch []events.LogMessage, head uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		c.ledger.Apply(m)
	}
	c.head.raise(head)
}

// Confirmation implements call.Confirmations.
func (c *confirmations) Confirmation(i call.Invocation) call.Confirmation {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ledger.Confirmation(i)
}

// fill implements part.
func (c *confirmations) fill(req admission.Request, in *admission.Inputs) {
	if req.Protocol == aaep.Name {
		in.Confirmations = c
	}
}

// take implements part.
func (c *confirmations) take(ctx context.Context, _ admission.Request, out *admission.Outcome) (taken, error) {
	switch {
	case out.Takes.Confirmation != "":
		return c.use(ctx, out.Takes.Confirmation, out.Decision)
	case out.Takes.Unconfirmed != nil:
		return taken{}, c.missed(ctx, *out.Takes.Unconfirmed)
	}
	return taken{}, nil
}

// usage is what the bucket says of a confirmation that was used.
type usage struct {
	DecisionID string      `json:"decision_id"`
	Session    string      `json:"session"`
	ToolCallID string      `json:"tool_call_id"`
	UsedAt     events.Time `json:"used_at"`
}

// use takes an acceptance for a decision: whoever creates its key has it. In
// doubt it is used; the user can be asked again.
func (c *confirmations) use(ctx context.Context, id string, d events.Decision) (taken, error) {
	body, err := events.Encode(usage{d.DecisionID, d.Session, d.ToolCallID, d.DecidedAt})
	if err != nil {
		return taken{}, err
	}
	revision, err := c.kv.Create(ctx, id, body)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		c.note(func(l *confirm.Ledger) { l.Use(id, "") })
		return taken{}, fmt.Errorf("%w: the user's confirmation", errAgain)
	case err != nil:
		return taken{}, fmt.Errorf("using a confirmation: %w", err)
	}
	c.note(func(l *confirm.Ledger) { l.Use(id, d.ToolCallID) })
	return taken{giveBack: func(ctx context.Context) {
		if err := c.kv.Delete(ctx, id, jetstream.LastRevision(revision)); err != nil {
			c.s.env.Log.Warn().Err(err).Msg("a confirmation that was not used cannot be given back; the user must be asked again")
			return
		}
		c.note(func(l *confirm.Ledger) { l.Release(id) })
	}}, nil
}

func (c *confirmations) note(f func(*confirm.Ledger)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.ledger)
}

// missed looks whether the log holds an answer that had not been read yet when
// the decision was made: a runtime may ask right after the acknowledgement of the
// answer that it published. If it makes a difference, the decision is made again.
func (c *confirmations) missed(ctx context.Context, i call.Invocation) error {
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
	if !c.reach(ctx, last) {
		return nil
	}
	snap := c.s.snapshot.Load()
	if aaep.Decides(i, c.Confirmation(i), snap != nil && snap.Strict) {
		return fmt.Errorf("%w: the user's answer has come", errAgain)
	}
	return nil
}

// reach waits until the ledger has a message of the log.
func (c *confirmations) reach(ctx context.Context, seq uint64) bool {
	return c.head.await(ctx, seq) == nil
}
