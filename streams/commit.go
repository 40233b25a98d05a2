package streams

import (
	"context"
	"errors"
	"fmt"
)

// maxBackoff is how many groups at most go by singles after a refused batch.
const maxBackoff = 64

// commit stores one group and settles its calls. Nothing cuts it short: a commit
// under way ends by itself or by its timeout.
func (c *Committer) commit(l *lane, group []*appendCall) {
	var msgs []Msg
	for _, call := range group {
		msgs = append(msgs, call.msgs...)
	}
	if err := c.admit(); err != nil {
		c.settle(group, func(int) outcome { return outcome{err: err} })
		return
	}
	if err := c.seal(msgs); err != nil {
		c.settle(group, func(int) outcome { return outcome{err: err} })
		return
	}
	if len(msgs) > c.opt.BatchAbove && !c.skipBatch() {
		seqs, err := l.batch(context.Background(), msgs, nil)
		if !errors.Is(err, ErrRefused) {
			c.settle(group, func(i int) outcome { return batchOutcome(seqs, err, i) })
			return
		}
		// Nothing of it is stored: singly, so that a tenant who occupies all
		// batches only slows this down and a bad message fails alone.
		c.refusedBatch()
	}
	out := l.singles(context.Background(), msgs, nil)
	c.settle(group, func(i int) outcome { return out[i] })
}

// admit asks the guard whether messages may be sent.
func (c *Committer) admit() error {
	if c.opt.Guard == nil {
		return nil
	}
	if err := c.opt.Guard(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

func (c *Committer) seal(msgs []Msg) error {
	var sealed []Msg
	for _, m := range msgs {
		if m.Seal {
			sealed = append(sealed, m)
		}
	}
	if len(sealed) == 0 {
		return nil
	}
	if c.opt.Seal == nil {
		return fmt.Errorf("%w: a message asks for a seal, and the Committer has none", ErrRefused)
	}
	if err := c.opt.Seal(sealed); err != nil {
		return fmt.Errorf("%w: sealing %d messages: %w", ErrRefused, len(sealed), err)
	}
	return nil
}

func batchOutcome(seqs []uint64, err error, i int) outcome {
	if err != nil {
		return outcome{err: err}
	}
	return outcome{seq: seqs[i]}
}

// skipBatch counts down the groups that go singly after a refusal.
func (c *Committer) skipBatch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.skip > 0 {
		c.skip--
		return true
	}
	return false
}

func (c *Committer) refusedBatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backoff = min(2*c.backoff+1, maxBackoff)
	c.skip = c.backoff
}

// settle hands every call its sequences or its error.
func (c *Committer) settle(group []*appendCall, at func(int) outcome) {
	i := 0
	for _, call := range group {
		seqs := make([]uint64, len(call.msgs))
		outs := make([]outcome, len(call.msgs))
		for k := range call.msgs {
			outs[k] = at(i)
			seqs[k] = outs[k].seq
			i++
		}
		err := verdictOn(outs)
		if err != nil {
			seqs = nil
		}
		c.finish(call, seqs, err)
	}
}

// verdictOn sums up the messages of one Append: all stored in increasing order,
// all certainly not stored (ErrRefused), or doubt.
func verdictOn(outs []outcome) error {
	refused, last := 0, uint64(0)
	var first error
	for _, o := range outs {
		switch {
		case o.err != nil && first == nil:
			first = o.err
		case o.err == nil && o.seq <= last:
			return fmt.Errorf("%w: sequences do not increase (%d after %d)", ErrDoubt, o.seq, last)
		}
		if errors.Is(o.err, ErrRefused) {
			refused++
		}
		last = max(last, o.seq)
	}
	switch {
	case first == nil:
		return nil
	case refused == len(outs) || errors.Is(first, ErrDoubt):
		return first
	default: // keep the text, not the promise that nothing is stored
		return fmt.Errorf("%w: some of %d messages are stored, not all: %s", ErrDoubt, len(outs), first)
	}
}
