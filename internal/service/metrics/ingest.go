package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// ingestReasons are the reasons for not storing an event.
var ingestReasons = []string{"identity", "subject", "header", "size", "quota", "busy", "unavailable", "doubt"}

// Ingest is the set of the ingest service's metrics.
type Ingest struct {
	stored  Counter
	refused *Vector
	taking  atomic.Bool
}

// Ingest returns the metrics of the ingest service of a shard.
func (r *Registry) Ingest(shard string) *Ingest {
	return once(r, "ingest", func(r *Registry) *Ingest {
		i := &Ingest{refused: countersOf(descIngestRefused)}
		r.addCounter(descIngested, "", &i.stored)
		r.addVector(descIngestRefused, "", i.refused)
		r.registerFamily(descIngesting, "", func(of *prometheus.Desc, to chan<- prometheus.Metric) {
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, boolGauge(i.taking.Load()), shard)
		})
		return i
	})
}

// Taking records whether this instance takes events in.
func (i *Ingest) Taking(taking bool) {
	i.taking.Store(taking)
}

// Stored counts an event that is durably on the log.
func (i *Ingest) Stored() {
	i.stored.Inc()
}

// Refused counts an event that is not, or not certainly, on the log.
func (i *Ingest) Refused(reason string) {
	i.refused.With(reason).Inc()
}
