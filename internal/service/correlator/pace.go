package correlator

import "time"

// When a write begins. An atomic batch costs the server several syncs and new
// files, whatever its size, one after the other in the goroutine that also takes in
// what others publish and sends what is read: many small batches make all of them
// wait, and most of all the slowest. So writes begin some time apart, and what comes
// meanwhile goes along; it is sent to the server at once (see flight). Nor does a
// write begin while more messages are there to be applied. On a log where little
// happens nothing waits, and an instance that has much to read yet, whose outputs are
// late whatever it does, fills its batches.
const (
	apart       = 16 * time.Millisecond // from the beginning of one write to that of the next
	holdMost    = 4 * time.Millisecond  // that outputs wait for messages to be applied
	enough      = maxOutputs / 2        // outputs that wait for nothing
	behind      = feedDepth / 2         // batches of messages that are much to read
	apartBehind = 48 * time.Millisecond // from one write to the next as long as those are there, unless it is full
)

// pace decides when to write. It belongs to the worker's goroutine.
type pace struct {
	launched time.Time // the last write
	held     time.Time // since when outputs wait for messages; zero if none do
	timer    *time.Timer
}

// wake fires when a write that had to wait may begin.
func (p *pace) wake() <-chan time.Time {
	if p.timer == nil {
		p.timer = time.NewTimer(apart)
		p.timer.Stop()
	}
	return p.timer.C
}

// wait is how long a write of so many outputs has to wait while so many batches of
// messages are there to be applied.
func (p *pace) wait(now time.Time, outputs, coming int) time.Duration {
	since := now.Sub(p.launched)
	rest := apart - since
	switch {
	case outputs >= maxOutputs:
		return 0
	case coming >= behind && since < apartBehind:
		return apartBehind - since
	case outputs >= enough:
		return 0
	case rest > 0 || coming == 0:
		return max(rest, 0)
	}
	if p.held.IsZero() {
		p.held = now
	}
	return max(holdMost-now.Sub(p.held), 0)
}

// delay has wake fire after a while.
func (p *pace) delay(d time.Duration) {
	p.wake()
	p.timer.Reset(d)
}

func (p *pace) launch(now time.Time) { p.launched, p.held = now, time.Time{} }
