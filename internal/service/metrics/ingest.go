package metrics

import "github.com/prometheus/client_golang/prometheus"

// ingestReasons are the reasons for not storing an event.
var ingestReasons = []string{"identity", "subject", "header", "size", "quota", "busy", "unavailable", "doubt"}

// Ingest is the set of the ingest service's metrics.
type Ingest struct {
	stored  prometheus.Counter
	refused vector
	taking  prometheus.Gauge
}

// Ingest returns the metrics of the ingest service of a shard.
func (r *Registry) Ingest(shard string) *Ingest {
	return once(r, "ingest", func(r *Registry) *Ingest {
		return &Ingest{stored: r.addCounter(descIngested, ""), refused: r.addVector(descIngestRefused, "", nil), taking: r.addGauge(descIngesting, shard)}
	})
}

// Taking records whether this instance takes events in.
func (i *Ingest) Taking(taking bool) {
	i.taking.Set(boolGauge(taking))
}

// Stored counts an event that is durably on the log.
func (i *Ingest) Stored() {
	i.stored.Inc()
}

// Refused counts an event that is not, or not certainly, on the log.
func (i *Ingest) Refused(reason string) {
	i.refused.with(reason).Inc()
}
