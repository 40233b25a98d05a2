package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counter counts up. Its methods may be called from any goroutine.
type Counter struct{ n atomic.Uint64 }

// Add adds n.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Gauge is a number that goes up and down. Its methods may be called from any
// goroutine.
type Gauge struct{ n atomic.Int64 }

// Set sets the value.
func (g *Gauge) Set(n int64) { g.n.Store(n) }

// secondBuckets are the bounds of durations: from a decision to a slow disk.
var secondBuckets = []float64{0.00001, 0.00003, 0.0001, 0.0003, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60}

// sizeBuckets are the bounds of batches.
var sizeBuckets = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000, 4000, 10000}

// observeSince counts the time since begun.
func observeSince(h prometheus.Histogram, begun time.Time) { h.Observe(time.Since(begun).Seconds()) }

// Vector is counters by one or two labels. Every value that a label may have is
// known from the start; any other counts as "other".
type Vector struct {
	values       [][]string // by label
	index        []map[string]int
	cells        []Counter
	hiddenAtZero func(values []string) bool // which are left out while they are zero; nil for those of "other"
}

// newVector makes the counters of all combinations of values.
func newVector(values ...[]string) *Vector {
	v := &Vector{}
	size := 1
	for _, list := range values {
		list = append(append([]string{}, list...), other)
		at := make(map[string]int, len(list))
		for i, s := range list {
			at[s] = i
		}
		v.values, v.index = append(v.values, list), append(v.index, at)
		size *= len(list)
	}
	v.cells = make([]Counter, size)
	return v
}

// With gives the counter of the values. Whoever counts often keeps it.
func (v *Vector) With(values ...string) *Counter {
	cell := 0
	for i, s := range values {
		at, known := v.index[i][s]
		if !known {
			at = len(v.values[i]) - 1
		}
		cell = cell*len(v.values[i]) + at
	}
	return &v.cells[cell]
}

// eachShown gives every counter that is shown.
func (v *Vector) eachShown(fn func(values []string, n uint64)) {
	at := make([]string, len(v.values))
	for i := range v.cells {
		rest := i
		for l := len(v.values) - 1; l >= 0; l-- {
			at[l] = v.values[l][rest%len(v.values[l])]
			rest /= len(v.values[l])
		}
		n := v.cells[i].n.Load()
		if n == 0 && (v.hiddenAtZero == nil && slices.Contains(at, other) || v.hiddenAtZero != nil && v.hiddenAtZero(at)) {
			continue
		}
		fn(at, n)
	}
}

func boolGauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
