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
	minWriteInterval     = 16 * time.Millisecond // from the beginning of one write to that of the next
	maxHold              = 4 * time.Millisecond  // that outputs wait for messages to be applied
	fullBatch            = maxOutputs / 2        // outputs that wait for nothing
	backlogHigh          = feedDepth / 2         // batches of messages that are much to read
	backlogWriteInterval = 48 * time.Millisecond // from one write to the next as long as those are there, unless it is full
)

// writePacer decides when to write. It belongs to the worker's goroutine.
type writePacer struct {
	lastWrite time.Time // the last write
	heldSince time.Time // since when outputs wait for messages; zero if none do
	timer     *time.Timer
}

// wakeSignal fires when a write that had to wait may begin.
func (p *writePacer) wakeSignal() <-chan time.Time {
	if p.timer == nil {
		p.timer = time.NewTimer(minWriteInterval)
		p.timer.Stop()
	}
	return p.timer.C
}

// delayFor is how long a write of so many outputs has to wait while so many batches of
// messages are there to be applied.
func (p *writePacer) delayFor(now time.Time, outputs, coming int) time.Duration {
	since := now.Sub(p.lastWrite)
	rest := minWriteInterval - since
	switch {
	case outputs >= maxOutputs:
		return 0
	case coming >= backlogHigh && since < backlogWriteInterval:
		return backlogWriteInterval - since
	case outputs >= fullBatch:
		return 0
	case rest > 0 || coming == 0:
		return max(rest, 0)
	}
	if p.heldSince.IsZero() {
		p.heldSince = now
	}
	return max(maxHold-now.Sub(p.heldSince), 0)
}

// wakeAfter has wake fire after a while.
func (p *writePacer) wakeAfter(d time.Duration) {
	p.wakeSignal()
	p.timer.Reset(d)
}

func (p *writePacer) noteWrite(now time.Time) { p.lastWrite, p.heldSince = now, time.Time{} }
