package auditor

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// evidenceMark is an end of the log that the evidence must have reached before an order begins or a policy is applied:
// idleness and legal holds are judged by what the evidence has (TestNothingIsDecidedByOldEvidence).
type evidenceMark struct {
	seq   uint64
	at    time.Time // by the broker's clock, as the times of the records
	taken time.Time // by the own clock; zero without a mark
}

// markLasts bounds how much older than a decision its mark is: what a session did since is not seen.
const markLasts = time.Minute

// markEnd marks the end of the log, unless there is a young mark.
func (c *custodian) markEnd(ctx context.Context) error {
	if !c.mark.taken.IsZero() && time.Since(c.mark.taken) < markLasts {
		return nil
	}
	taken := time.Now()
	st, err := streams.StreamState(ctx, c.js, c.stream)
	if err != nil {
		return err
	}
	c.mark = evidenceMark{seq: st.LastSeq, at: st.At, taken: taken}
	c.clock.compare(st.At, taken.Round(0), taken.Sub(c.started)) // Round: by the wall clock
	return nil
}

// decisionTime is the time up to which the evidence is known, plus that which policies are ahead. It is zero while the
// evidence has not reached the mark; afterwards the mark is gone.
func (c *custodian) decisionTime(ctx context.Context) (at time.Time, err error) {
	if c.mark.taken.IsZero() {
		return at, nil
	}
	position, _, err := c.db.Position(ctx, c.shard)
	if err != nil {
		return at, err
	}
	if position < c.mark.seq {
		if c.behind.IsZero() {
			c.behind = time.Now()
		}
		return at, nil
	}
	if !c.judged && c.clock.problem == nil {
		if err := c.judgeClock(ctx); err != nil {
			return at, err
		}
	}
	at, c.mark, c.behind = c.mark.at.Add(c.ahead), evidenceMark{}, time.Time{}
	return at, nil
}

// judgeClock judges the first reading of a custodian, which has no earlier one to compare with, by the evidence: its
// newest record that is older than leapTrusted, and the next one. Of the younger records the clock may be the one that
// leapt, so they prove nothing (TestALeapBeforeTheStart).
func (c *custodian) judgeClock(ctx context.Context) error {
	_, last, err := c.db.SequencesBetween(ctx, c.shard, time.Time{}, c.mark.at.Add(-leapTrusted))
	if err != nil {
		return err
	}
	var before time.Time
	after := c.mark.at
	err = c.db.Scan(ctx, c.shard, last, last+1, func(r storage.EvidenceRow) error {
		if r.Seq == last {
			before = r.BrokerTime
		} else {
			after = r.BrokerTime
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.judged = true; last > 0 && after.Sub(before) > leapAtMost {
		passed := c.mark.taken.Sub(c.started)
		c.clock.at, c.clock.passed, c.clock.trusted = before, 0, passed+leapTrusted-max(c.mark.at.Sub(after), 0)
		c.clock.compare(c.mark.at, c.mark.taken.Round(0), passed)
	}
	return nil
}

// behindAtMost is how long the evidence may be behind the log without a problem that is shown.
const behindAtMost = 10 * time.Minute

// checkBehind returns an error if nothing was decided for long. While the bucket is empty, nothing waits for a decision.
func (c *custodian) checkBehind(bucketRevision uint64) error {
	if bucketRevision == 0 || c.behind.IsZero() || time.Since(c.behind) < behindAtMost {
		return nil
	}
	return fmt.Errorf("the evidence has been behind the log for more than %.0f minutes: no erasure begins and no policy is applied", behindAtMost.Minutes())
}

const (
	clocksApart = time.Minute    // how far the clocks of broker and auditor may differ
	leapAtMost  = 24 * time.Hour // how far the clocks may leave the time that passed
	leapTrusted = 24 * time.Hour // after this the time behind a leap counts
)

// policyClock judges whether policies may be applied by the broker's clock: what they erase is gone for ever, so a clock
// that stepped must not decide about it. A leap is measured from the last comparison that showed none. It may be right,
// as after a machine slept for days: it counts once it has stayed for leapTrusted, or a person has looked at the clocks
// (TestPolicyClock).
type policyClock struct {
	at      time.Time     // by the broker's clock, at that comparison
	passed  time.Duration // since the custodian began, at that comparison
	trusted time.Duration // since the custodian began: from then on the time behind a leap counts; zero without one
	checked time.Time     // Flags.ClocksChecked
	problem error
}

// compare compares the broker's clock with the own one, and with the time that passed since the custodian began, which
// no step of a clock changes.
func (p *policyClock) compare(at, own time.Time, passed time.Duration) {
	if apart := at.Sub(own).Abs(); apart > clocksApart {
		p.problem = fmt.Errorf("the clocks of the NATS server and of the auditor differ by %v: no retention policy is applied until they agree", apart.Round(time.Second))
		return
	}
	leap := at.Sub(p.at) - (passed - p.passed)
	if p.at.IsZero() || leap.Abs() <= leapAtMost || p.trusted > 0 && passed >= p.trusted || p.isChecked(at) {
		*p = policyClock{at: at, passed: passed, checked: p.checked}
		return
	}
	if p.trusted == 0 {
		p.trusted = passed + leapTrusted
	}
	p.problem = fmt.Errorf("the clocks leapt by %v: no retention policy is applied for %v. If they are right, start the auditor with COUNTERSIGN_CLOCKS_CHECKED set to the time by a clock that you trust",
		leap.Round(time.Hour), (p.trusted - passed).Round(time.Minute))
}

// isChecked reports whether a person has found the clocks right within the last day by their own reckoning. A supervisor
// that repeats the word confirms no other time.
func (p *policyClock) isChecked(at time.Time) bool {
	ago := at.Sub(p.checked)
	return ago >= -clocksApart && ago <= leapTrusted
}

// policyTime is the time by which policies are applied: now, or zero and the reason.
func (p *policyClock) policyTime(now time.Time) (time.Time, error) {
	if p.problem != nil {
		return time.Time{}, p.problem
	}
	return now, nil
}
