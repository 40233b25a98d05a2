package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// secondBuckets are the histogram bounds of durations, in seconds: from a decision to a slow
// disk.
var secondBuckets = []float64{0.00001, 0.00003, 0.0001, 0.0003, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60}

// sizeBuckets are the histogram bounds of batch sizes.
var sizeBuckets = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2000, 4000, 10000}

// observeSince records the time since begun.
func observeSince(h prometheus.Histogram, begun time.Time) { h.Observe(time.Since(begun).Seconds()) }

// vector is a set of counters by one or two labels. The values of a label are known from the
// start; any other counts as "other".
type vector struct {
	counters *prometheus.CounterVec
	known    []map[string]bool // by label
}

// addVector makes the counters of a family with lists of its labels' values; without lists, those of labelValues. All
// combinations are exposed from the start, or those for which shown returns true; others are once they are counted.
func (r *Registry) addVector(d familyDesc, shard string, shown func(first, second string) bool, values ...[]string) vector {
	v := vector{counters: promauto.With(r.reg).NewCounterVec(prometheus.CounterOpts(d.options(shard)), d.labels)}
	for i, label := range d.labels {
		if len(values) <= i {
			values = append(values, labelValues[label])
		}
		v.known = append(v.known, map[string]bool{})
		for _, s := range values[i] {
			v.known[i][s] = true
		}
	}
	for _, first := range values[0] {
		if len(values) == 1 {
			v.counters.WithLabelValues(first)
			continue
		}
		for _, second := range values[1] {
			if shown == nil || shown(first, second) {
				v.counters.WithLabelValues(first, second)
			}
		}
	}
	return v
}

// with returns the counter of the values.
func (v vector) with(values ...string) prometheus.Counter {
	for i, s := range values {
		if !v.known[i][s] {
			values[i] = other
		}
	}
	return v.counters.WithLabelValues(values...)
}

func boolGauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
