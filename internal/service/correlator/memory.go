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
	garbageBytes = 384 << 20 // bytes
	gcMaxPercent = 400       // percent of what is in use
	gcMinPercent = 100
	gcEvery      = 5 * time.Second // how often what is in use is looked at
)

// GCTuner adapts the garbage collector to the size of the state. GOGC in the
// environment wins.
type GCTuner struct {
	next    time.Time
	percent int
}

// Adapt is to be called now and then.
func (c *GCTuner) Adapt(now time.Time) {
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
	percent := gcMaxPercent
	for percent > gcMinPercent && live*uint64(percent)/100 > garbageBytes {
		percent -= 50
	}
	return percent
}
