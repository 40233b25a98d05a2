package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
)

var recordKinds = []string{evidence.KindRequest, evidence.KindEvent, evidence.KindDecision, evidence.KindCall, evidence.KindFinding,
	evidence.KindApproval, evidence.KindControl, evidence.KindUnparseable}

// Auditor is the set of an auditor's metrics on one shard.
type Auditor struct {
	records, redactions, findings         vector
	bytes, quarantined, checkpoints, lost prometheus.Counter
	batch, insert                         prometheus.Histogram
	signed                                prometheus.Gauge
	dueSince                              atomic.Int64 // seconds since 1970; 0: nothing is due
	lag                                   readerLag
}

// Auditor returns the metrics of a shard's auditor. detectors are the names of all redaction
// detectors. rules are those of its own findings, as for Correlator.
func (r *Registry) Auditor(shard string, detectors []string, rules map[string][]events.Severity) *Auditor {
	return once(r, "auditor of "+shard, func(r *Registry) *Auditor {
		a := &Auditor{
			records: r.addVector(descRecords, shard, nil), redactions: r.addVector(descRedactions, shard, nil, detectors), findings: r.addFindings(shard, rules),
			bytes: r.addCounter(descBytes, shard), quarantined: r.addCounter(descQuarantine, shard), checkpoints: r.addCounter(descCheckpoints, shard), lost: r.addCounter(descLost, shard),
			batch: r.addHistogram(descBatch, shard, sizeBuckets), insert: r.addHistogram(descInsert, shard, secondBuckets), signed: r.addGauge(descSigned, shard),
		}
		r.addScraped(descAuditLag, shard, a.lag.messagesBehind)
		r.addScraped(descAuditAge, shard, a.lag.secondsBehind)
		r.addScraped(descDue, shard, a.secondsDue)
		return a
	})
}

// Follow sets the function that reads the end of the log.
func (a *Auditor) Follow(head Head) {
	a.lag.setHead(head)
}

// Due reports since when the session is due that waits longest for its erasure; the zero time if none waits.
func (a *Auditor) Due(since time.Time) {
	if since.IsZero() {
		a.dueSince.Store(0)
		return
	}
	a.dueSince.Store(since.Unix())
}

func (a *Auditor) secondsDue() (float64, bool) {
	since := a.dueSince.Load()
	if since == 0 {
		return 0, true
	}
	return max(0, time.Since(time.Unix(since, 0)).Seconds()), true
}

// Resumed reports that the evidence ends at sequence last and has so many sequences up to it. The
// others are counted as lost.
func (a *Auditor) Resumed(last, sequences uint64) {
	a.lag.done.Store(last)
	if last > sequences {
		a.lost.Add(float64(last - sequences))
	}
}

// Stored reports that a batch is durable. before is the sequence at which the evidence ended.
// Sequences between before and the batch's last one that are not in the batch are counted as
// lost.
func (a *Auditor) Stored(before uint64, batch []build.Built, begun time.Time) {
	if len(batch) == 0 {
		return
	}
	for i := range batch {
		b := &batch[i]
		a.records.with(b.Record.Kind).Inc()
		a.bytes.Add(float64(len(b.Canonical)))
		if b.Quarantine {
			a.quarantined.Inc()
		}
		for _, r := range b.Record.Redactions {
			a.redactions.with(r.Detector).Inc()
		}
	}
	last := batch[len(batch)-1].Record.Seq
	if passed := last - before; passed > uint64(len(batch)) {
		a.lost.Add(float64(passed - uint64(len(batch))))
	}
	a.batch.Observe(float64(len(batch)))
	observeSince(a.insert, begun)
	a.lag.done.Store(last)
}

// Found counts a finding of the auditor's own that is in the log.
func (a *Auditor) Found(f events.Finding) {
	a.findings.with(f.Rule, string(f.Severity)).Inc()
}

// Checkpoint reports that a checkpoint is stored and published.
func (a *Auditor) Checkpoint(size int64) {
	a.checkpoints.Inc()
	a.signed.Set(float64(size))
}
