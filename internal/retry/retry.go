// Package retry holds the pauses between the attempts of a loop that tries again. The loops
// themselves decide which errors are worth another attempt. Begin with New.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses are the growing pauses of one loop: each is twice as long as the one before, up to a
// maximum. One goroutine owns them.
type Pauses struct{ growing backoff.ExponentialBackOff }

// New returns pauses that begin with first and grow up to most.
func New(first, most time.Duration) *Pauses {
	return &Pauses{backoff.ExponentialBackOff{InitialInterval: first, Multiplier: 2, MaxInterval: max(first, most)}}
}

// Next returns the length of the next pause.
func (p *Pauses) Next() time.Duration { return p.growing.NextBackOff() }

// Reset makes the next pause the first one again.
func (p *Pauses) Reset() { p.growing.Reset() }

// Wait waits for the next pause, or returns ctx's error as soon as ctx ends.
func (p *Pauses) Wait(ctx context.Context) error { return Sleep(ctx, p.Next()) }

// Sleep waits for d, or returns ctx's error as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// UntilTick is the time until the next whole multiple of every on this machine's clock. Loops that
// look for changes wait so long instead of every: the processes of a machine then wake up, and
// wake up the server that they ask, together and not each at its own moment.
func UntilTick(every time.Duration) time.Duration {
	now := time.Now()
	return now.Truncate(every).Add(every).Sub(now)
}
