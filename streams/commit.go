package streams

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxBackoff is the greatest number of groups that are published singly after a refused batch.
const maxBackoff = 64

// commitGroup stores one group, settles its calls, and reports whether the group was stored as a
// batch. It cannot be cancelled: a commit ends by itself or by its timeout.
func (c *Committer) commitGroup(s *sender, group []*appendCall) (batched bool) {
	var msgs []Msg
	for _, call := range group {
		msgs = append(msgs, call.msgs...)
	}
	if err := c.checkGuard(); err != nil {
		c.settleCalls(group, func(int) publishOutcome { return publishOutcome{err: err} })
		return false
	}
	if err := c.signMessages(msgs); err != nil {
		c.settleCalls(group, func(int) publishOutcome { return publishOutcome{err: err} })
		return false
	}
	began := time.Now()
	if c.prefersBatch(len(msgs)) && !c.skipBatch() {
		seqs, err := s.publishBatch(context.Background(), msgs, nil)
		if !errors.Is(err, ErrRefused) {
			c.recordBatch(time.Since(began))
			c.settleCalls(group, func(i int) publishOutcome { return batchOutcome(seqs, err, i) })
			return true
		}
		// Nothing of the batch is stored. Its messages are published singly: other services may hold
		// all of the server's batches, and a bad message then fails alone.
		c.refusedBatch()
	}
	began = time.Now()
	out := s.publishEach(context.Background(), msgs, nil)
	c.recordSingles(len(msgs), time.Since(began))
	c.settleCalls(group, func(i int) publishOutcome { return out[i] })
	return false
}

// checkGuard asks the guard whether messages may be sent.
func (c *Committer) checkGuard() error {
	if c.opt.Guard == nil {
		return nil
	}
	if err := c.opt.Guard(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

func (c *Committer) signMessages(msgs []Msg) error {
	var signed []Msg
	for _, m := range msgs {
		if m.Sign {
			signed = append(signed, m)
		}
	}
	if len(signed) == 0 {
		return nil
	}
	if c.opt.Sign == nil {
		return fmt.Errorf("%w: a message is to be signed, and the Committer has no Sign", ErrRefused)
	}
	if err := c.opt.Sign(signed); err != nil {
		return fmt.Errorf("%w: signing %d messages: %w", ErrRefused, len(signed), err)
	}
	return nil
}

func batchOutcome(seqs []uint64, err error, i int) publishOutcome {
	if err != nil {
		return publishOutcome{err: err}
	}
	return publishOutcome{seq: seqs[i]}
}

// skipBatch reports whether the next group is to be published singly, and counts it.
func (c *Committer) skipBatch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batchesToSkip > 0 {
		c.batchesToSkip--
		return true
	}
	return false
}

func (c *Committer) refusedBatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backoff = min(2*c.backoff+1, maxBackoff)
	c.batchesToSkip = c.backoff
}

// settleCalls gives every call its sequences or its error.
func (c *Committer) settleCalls(group []*appendCall, at func(int) publishOutcome) {
	i := 0
	for _, call := range group {
		seqs := make([]uint64, len(call.msgs))
		outs := make([]publishOutcome, len(call.msgs))
		for k := range call.msgs {
			outs[k] = at(i)
			seqs[k] = outs[k].seq
			i++
		}
		err := appendResult(outs)
		if err != nil {
			seqs = nil
		}
		c.finishCall(call, seqs, err)
	}
}

// appendResult combines the outcomes of one Append: nil if all messages are stored in increasing
// order, ErrRefused if certainly none is stored, ErrAmbiguous otherwise.
func appendResult(outs []publishOutcome) error {
	refused, last := 0, uint64(0)
	var first error
	for _, o := range outs {
		switch {
		case o.err != nil && first == nil:
			first = o.err
		case o.err == nil && o.seq <= last:
			return fmt.Errorf("%w: sequences do not increase (%d after %d)", ErrAmbiguous, o.seq, last)
		}
		if errors.Is(o.err, ErrRefused) {
			refused++
		}
		last = max(last, o.seq)
	}
	switch {
	case first == nil:
		return nil
	case refused == len(outs) || errors.Is(first, ErrAmbiguous):
		return first
	default: // keep the text, but not ErrRefused: some messages may be stored
		return fmt.Errorf("%w: some of %d messages are stored, not all: %s", ErrAmbiguous, len(outs), first) //nolint:errorlint // a refusal of one is none of all
	}
}
