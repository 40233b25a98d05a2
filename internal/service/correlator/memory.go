package correlator

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Reading the log produces much garbage. How much of it may exist before a collection trades
// memory for time: garbageBytes, or the size of the state if that is more.
const (
	garbageBytes = 384 << 20 // bytes
	gcMaxPercent = 400       // percent of the live heap
	gcMinPercent = 100
	gcEvery      = 5 * time.Second // how often the live heap is measured
)

// gcTuner adapts the garbage collector to the size of the state. GOGC in the environment takes
// precedence.
type gcTuner struct {
	next    time.Time
	percent int
}

// adapt sets the percentage anew if gcEvery has passed; call it often.
func (c *gcTuner) adapt(now time.Time) {
	if now.Before(c.next) || os.Getenv("GOGC") != "" {
		return
	}
	c.next = now.Add(gcEvery)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if percent := gcPercent(live[0].Value.Uint64()); percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
}

// gcPercent returns a percentage in steps of 50, so that it rarely changes.
func gcPercent(live uint64) int {
	percent := gcMaxPercent
	for percent > gcMinPercent && live*uint64(percent)/100 > garbageBytes {
		percent -= 50
	}
	return percent
}
