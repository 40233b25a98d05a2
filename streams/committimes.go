package streams

import "time"

// fewMessages is a size up to which a group is always published singly. A batch makes, syncs and
// removes files of its own.
const fewMessages = 8

// commitTimes estimates how long the server takes to store messages singly and in a batch. Which
// way is shorter depends on its disk (ADR 15).
type commitTimes struct {
	single time.Duration // one of several messages that are published singly
	batch  time.Duration // one batch
}

// singlesPerBatch is the ratio that is assumed until both ways were measured.
const singlesPerBatch = 12

// prefersBatch reports whether a batch of n messages is expected to be stored before n single
// messages are.
func (c *Committer) prefersBatch(n int) bool {
	if c.opt.BatchAbove > 0 {
		return n > c.opt.BatchAbove
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times.prefersBatch(n)
}

func (t *commitTimes) prefersBatch(n int) bool {
	if n <= fewMessages {
		return false
	}
	if t.single == 0 || t.batch == 0 {
		return n > singlesPerBatch
	}
	return time.Duration(n)*t.single > t.batch
}

func (c *Committer) recordBatch(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times.recordBatch(took)
}

func (c *Committer) recordSingles(n int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times.recordSingles(n, took)
}

func (t *commitTimes) recordBatch(took time.Duration) {
	t.batch = average(t.batch, took)
}

// recordSingles leaves small groups out, because the way to the server and back is most of their
// time. Every larger group that was published singly makes batches look a little shorter, so that a
// batch is tried again now and then.
func (t *commitTimes) recordSingles(n int, took time.Duration) {
	if n <= fewMessages {
		return
	}
	t.single = average(t.single, took/time.Duration(n))
	t.batch -= t.batch / 128
}

func average(before, now time.Duration) time.Duration {
	if before == 0 {
		return now
	}
	return (before + now) / 2
}
