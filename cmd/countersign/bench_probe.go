package main

import (
	"runtime"
	"slices"
	"time"
)

// probe is work that needs nothing but the processor, and all that this can do side by
// side: how long it takes says what the processor gives at the moment. On a core that
// is shared with other machines that is less for milliseconds or for hours, and no
// counter tells of it.
func probe() time.Duration {
	begun := time.Now()
	runtime.KeepAlive(sideBySide(4000)) // some 5 us
	return time.Since(begun)
}

//go:noinline
func sideBySide(n int) uint64 {
	var a, b, c, d, e, f, g, h uint64
	for range n {
		a, b, c, d, e, f, g, h = a+3, b^5, c+7, d^9, e+11, f^13, g+15, h^17
		a, b, c, d, e, f, g, h = a^2, b+4, c^6, d+8, e^10, f+12, g^14, h+16
	}
	return a + b + c + d + e + f + g + h
}

// undisturbedWithin is how much longer than the shortest a probe takes at most while
// the processor is undisturbed.
const undisturbedWithin = 1.05

// turn is one call of work that was measured.
type turn struct {
	messages int
	took     time.Duration
	probe    time.Duration // the longer one of those right before and right after
}

// add adds what was done in another turn.
func (t *turn) add(u turn) { t.messages, t.took = t.messages+u.messages, t.took+u.took }

// measure measures one call of work on n messages.
func measure(n int, work func()) turn {
	before := probe()
	begun := time.Now()
	work()
	took := time.Since(begun)
	return turn{n, took, max(before, probe())}
}

// undisturbed sums up the turns in which the processor was, and says which part of
// them all these are.
func undisturbed(turns []turn, shortest time.Duration) (sum turn, share float64) {
	n := 0
	for _, t := range turns {
		if float64(t.probe) <= undisturbedWithin*float64(shortest) {
			sum.add(t)
			n++
		}
	}
	return sum, float64(n) / float64(max(len(turns), 1))
}

// probeEvery is how often the processor is looked at while other processes work.
const probeEvery = 2 * time.Millisecond

// watchProcessor looks at the processor until stop, which gives the shortest probe and
// the median one.
func watchProcessor() (stop func() (shortest, median time.Duration)) {
	end, done := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var probes []time.Duration
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		for {
			probes = append(probes, probe())
			select {
			case <-tick.C:
			case <-end:
				slices.Sort(probes)
				done <- probes
				return
			}
		}
	}()
	return func() (shortest, median time.Duration) {
		close(end)
		probes := <-done
		return probes[0], probes[len(probes)/2]
	}
}
