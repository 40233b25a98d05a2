package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/events"
)

// refusalCodes are the reason codes of unrecorded answers that have a counter of their own.
var refusalCodes = []string{"overloaded", "stopping", "quota_exceeded", "audit_unavailable", "internal_error", "policy_deadline"}

var verdicts = []string{string(events.Allow), string(events.Ask), string(events.Defer), string(events.Deny)}

// Admitter is the set of an admitter's metrics.
type Admitter struct {
	admissions vector
	refused    vector
	dropped    prometheus.Counter
	admission  prometheus.Histogram
	decide     prometheus.Histogram
	record     prometheus.Histogram
	policy     atomic.Pointer[policyState]
	observed   prometheus.Gauge
	taking     prometheus.Gauge
	inflight   atomic.Pointer[func() int]
}

// policyState describes the policies that an admitter decides from.
type policyState struct {
	revision uint64
	usable   bool
	since    time.Time
}

// Admitter returns the metrics of the admitter of a shard. inflight returns how many requests are being worked
// on, of at most limit; a service that is run again passes it anew.
func (r *Registry) Admitter(shard string, limit int, inflight func() int) *Admitter {
	a := once(r, "admitter", func(r *Registry) *Admitter {
		a := &Admitter{
			admissions: r.addVector(descAdmissions, "", nil), refused: r.addVector(descRefused, "", nil), dropped: r.addCounter(descUnanswerable, ""),
			admission: r.addHistogram(descAdmission, "", secondBuckets), decide: r.addHistogram(descDecide, "", secondBuckets), record: r.addHistogram(descRecord, "", secondBuckets),
			taking: r.addGauge(descTaking, shard), observed: r.addGauge(descObserved, ""),
		}
		a.inflight.Store(&inflight)
		r.addScraped(descInflight, "", func() (float64, bool) { return float64((*a.inflight.Load())()), true })
		r.addGauge(descInflightMax, "").Set(float64(limit))
		r.addScraped(descRevision, "", a.ofPolicy(func(p *policyState) float64 { return float64(p.revision) }))
		r.addScraped(descUsable, "", a.ofPolicy(func(p *policyState) float64 { return boolGauge(p.usable) }))
		r.addScraped(descSnapshotAge, "", a.ofPolicy(func(p *policyState) float64 { return time.Since(p.since).Seconds() }))
		return a
	})
	a.inflight.Store(&inflight)
	return a
}

func (a *Admitter) ofPolicy(value func(*policyState) float64) func() (float64, bool) {
	return func() (float64, bool) {
		p := a.policy.Load()
		if p == nil {
			return 0, false
		}
		return value(p), true
	}
}

// Observed records how many tenants are in mode observe.
func (a *Admitter) Observed(tenants int) {
	a.observed.Set(float64(tenants))
}

// Taking records whether the admitter takes requests.
func (a *Admitter) Taking(taking bool) {
	a.taking.Set(boolGauge(taking))
}

// Decided records the duration of a decision that began at begun.
func (a *Admitter) Decided(begun time.Time) {
	observeSince(a.decide, begun)
}

// Recorded records the duration of making a record durable.
func (a *Admitter) Recorded(begun time.Time) {
	observeSince(a.record, begun)
}

// Admitted counts a request that was recorded and answered.
func (a *Admitter) Admitted(protocol string, verdict events.Verdict, received time.Time) {
	a.admissions.with(protocol, string(verdict)).Inc()
	observeSince(a.admission, received)
}

// Refused counts an answer without a record.
func (a *Admitter) Refused(code string) {
	a.refused.with(code).Inc()
}

// Dropped counts a request without a reply subject that may be answered.
func (a *Admitter) Dropped() {
	a.dropped.Inc()
}

// Policies reports that the admitter decides from other policies now.
func (a *Admitter) Policies(revision uint64, usable bool) {
	a.policy.Store(&policyState{revision, usable, time.Now()})
}

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
