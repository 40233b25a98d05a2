package correlator

import "time"

// When a write starts. An atomic batch costs the server several syncs and new files, whatever its
// size, in the goroutine that also stores what others publish and delivers what is read: many
// small batches delay all of them, the slowest most. So writes start some time apart, and outputs
// that come meanwhile join the next write. A write does not start either while more messages wait to be applied. On a quiet log nothing
// waits. An instance with a large backlog, and so late outputs anyway, fills its batches.
//
// A batch of few outputs waits longer, because its cost is shared by few.
const (
	minWriteInterval     = 16 * time.Millisecond  // from the start of one write to that of the next
	fewWriteInterval     = 100 * time.Millisecond // the same for fewer than enoughOutputs
	enoughOutputs        = 64                     // a batch of as many is worth its cost
	maxHold              = 4 * time.Millisecond   // how long outputs wait for messages to be applied
	fullBatch            = maxOutputs / 2         // outputs that start a write at once
	backlogHigh          = maxQueuedBatches / 2   // decoded batches that count as a large backlog
	backlogWriteInterval = 48 * time.Millisecond  // between writes during a large backlog, unless the batch is full
)

// writePacer decides when to write. The worker's goroutine owns it.
type writePacer struct {
	lastWrite time.Time // start of the last write
	heldSince time.Time // since when outputs wait for messages; zero if they do not
	timer     *time.Timer
}

// wakeSignal fires when a delayed write may start.
func (p *writePacer) wakeSignal() <-chan time.Time {
	if p.timer == nil {
		p.timer = time.NewTimer(minWriteInterval)
		p.timer.Stop()
	}
	return p.timer.C
}

// delayFor is how long a write of so many outputs has to wait. waiting is how many batches wait to
// be applied.
func (p *writePacer) delayFor(now time.Time, outputs, waiting int) time.Duration {
	since := now.Sub(p.lastWrite)
	rest := writeInterval(outputs) - since
	switch {
	case outputs >= maxOutputs:
		return 0
	case waiting >= backlogHigh && since < backlogWriteInterval:
		return backlogWriteInterval - since
	case outputs >= fullBatch:
		return 0
	case rest > 0 || waiting == 0:
		return max(rest, 0)
	}
	if p.heldSince.IsZero() {
		p.heldSince = now
	}
	return max(maxHold-now.Sub(p.heldSince), 0)
}

// writeInterval is how far apart two writes start if the second one has so many outputs.
func writeInterval(outputs int) time.Duration {
	if outputs >= enoughOutputs {
		return minWriteInterval
	}
	return fewWriteInterval
}

// wakeAfter makes wakeSignal fire after d.
func (p *writePacer) wakeAfter(d time.Duration) {
	p.wakeSignal()
	p.timer.Reset(d)
}

func (p *writePacer) noteWrite(now time.Time) { p.lastWrite, p.heldSince = now, time.Time{} }
