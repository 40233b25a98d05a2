package correlator

import "time"

// When a write begins. An atomic batch costs the server several syncs and new
// files, whatever its size, and what it costs it takes from those who publish. Where
// that is much, because the disk or the server is busy, a few large batches are
// better than many small ones: the next write rests half as long as the last one
// took too long, and what comes meanwhile goes with it. Nor does a write begin while
// more messages are there to be applied. On a log where little happens nothing waits.
const (
	quick    = 25 * time.Millisecond // how long a write takes that is not slow
	restMost = 8 * time.Millisecond  // that an output waits for others
	enough   = maxOutputs / 2        // outputs that wait for no others
)

// pace decides when to write. It belongs to the worker's goroutine.
type pace struct {
	launched, landed time.Time
	took             time.Duration // of the last write
	held             time.Time     // since when outputs wait for messages; zero if none do
	timer            *time.Timer
}

// wake fires when a write that had to wait may begin.
func (p *pace) wake() <-chan time.Time {
	if p.timer == nil {
		p.timer = time.NewTimer(restMost)
		p.timer.Stop()
	}
	return p.timer.C
}

// wait is how long a write of so many outputs has to wait. more says that there
// are messages to be applied.
func (p *pace) wait(now time.Time, outputs int, more bool) time.Duration {
	if outputs >= enough {
		return 0
	}
	if rest := min(max(p.took-quick, 0)/2, restMost) - now.Sub(p.landed); rest > 0 || !more {
		return max(rest, 0)
	}
	if p.held.IsZero() {
		p.held = now
	}
	return max(restMost-now.Sub(p.held), 0)
}

// delay has wake fire after a while.
func (p *pace) delay(d time.Duration) {
	p.wake()
	p.timer.Reset(d)
}

func (p *pace) launch(now time.Time) { p.launched, p.held = now, time.Time{} }

func (p *pace) land(now time.Time) { p.landed, p.took = now, now.Sub(p.launched) }
