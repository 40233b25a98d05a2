package correlator

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Reading the log makes much garbage. How much of it may lie about before it is
// collected trades memory for time: as much as garbageRoom, or as much as the
// state itself if that is more.
const (
	garbageRoom = 384 << 20 // bytes
	gcMost      = 400       // percent of what is in use
	gcLeast     = 100
	gcEvery     = 5 * time.Second // how often what is in use is looked at
)

// Collector adapts the garbage collector to the size of the state. GOGC in the
// environment wins.
type Collector struct {
	next    time.Time
	percent int
}

// Adapt is to be called now and then.
func (c *Collector) Adapt(now time.Time) {
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

// gcPercent is in steps, so that it is rarely changed.
func gcPercent(live uint64) int {
	percent := gcMost
	for percent > gcLeast && live*uint64(percent)/100 > garbageRoom {
		percent -= 50
	}
	return percent
}
