package policy

import "time"

// Count is one counter that a call adds to if it is allowed.
type Count struct {
	Key    string        // unique among all counters of all tenants
	Window time.Duration // how long an addition counts
	Amount int64
}

// Counters knows what was counted before the call.
type Counters interface {
	// Total gives the sum of the amounts added to a counter within its window
	// before now.
	Total(key string, window time.Duration, now time.Time) int64
}
