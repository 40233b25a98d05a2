package metrics

// ingestReasons are the reasons for not storing an event.
var ingestReasons = []string{"identity", "subject", "header", "size", "quota", "busy", "unavailable", "doubt"}

// Ingest is the set of the ingest service's metrics.
type Ingest struct {
	stored  Counter
	refused *Vector
}

// Ingest returns the metrics of the ingest service.
func (r *Registry) Ingest() *Ingest {
	return once(r, "ingest", func(r *Registry) *Ingest {
		i := &Ingest{refused: countersOf(descIngestRefused)}
		r.addCounter(descIngested, "", &i.stored)
		r.addVector(descIngestRefused, "", i.refused)
		return i
	})
}

// Stored counts an event that is durably on the log.
func (i *Ingest) Stored() {
	i.stored.Inc()
}

// Refused counts an event that is not, or not certainly, on the log.
func (i *Ingest) Refused(reason string) {
	i.refused.With(reason).Inc()
}
