package metrics

import (
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
	records, redactions, findings         *Vector
	bytes, quarantined, checkpoints, lost Counter
	batch, insert                         prometheus.Histogram
	signed, dueSince                      Gauge
	lag                                   readerLag
}

// Auditor returns the metrics of a shard's auditor. detectors are the names of all redaction
// detectors. rules are those of its own findings, as for Correlator.
func (r *Registry) Auditor(shard string, detectors []string, rules map[string][]events.Severity) *Auditor {
	return once(r, "auditor of "+shard, func(r *Registry) *Auditor {
		a := &Auditor{records: countersOf(descRecords), redactions: newVector(detectors), findings: findingsOf(rules)}
		r.addVector(descRecords, shard, a.records)
		r.addVector(descRedactions, shard, a.redactions)
		r.addVector(descFindings, shard, a.findings)
		r.addCounter(descBytes, shard, &a.bytes)
		r.addCounter(descQuarantine, shard, &a.quarantined)
		r.addCounter(descCheckpoints, shard, &a.checkpoints)
		r.addCounter(descLost, shard, &a.lost)
		a.batch = r.addHistogram(descBatch, shard, sizeBuckets)
		a.insert = r.addHistogram(descInsert, shard, secondBuckets)
		r.addGauge(descSigned, shard, func() (float64, bool) { return float64(a.signed.n.Load()), true })
		r.addGauge(descAuditLag, shard, a.lag.messagesBehind)
		r.addGauge(descAuditAge, shard, a.lag.secondsBehind)
		r.addGauge(descDue, shard, a.secondsDue)
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
		a.dueSince.Set(0)
		return
	}
	a.dueSince.Set(since.Unix())
}

func (a *Auditor) secondsDue() (float64, bool) {
	since := a.dueSince.n.Load()
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
		a.lost.Add(last - sequences)
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
		a.records.With(b.Record.Kind).Inc()
		a.bytes.Add(uint64(len(b.Canonical)))
		if b.Quarantine {
			a.quarantined.Inc()
		}
		for _, r := range b.Record.Redactions {
			a.redactions.With(r.Detector).Inc()
		}
	}
	last := batch[len(batch)-1].Record.Seq
	if passed := last - before; passed > uint64(len(batch)) {
		a.lost.Add(passed - uint64(len(batch)))
	}
	a.batch.Observe(float64(len(batch)))
	observeSince(a.insert, begun)
	a.lag.done.Store(last)
}

// Found counts a finding of the auditor's own that is in the log.
func (a *Auditor) Found(f events.Finding) {
	a.findings.With(f.Rule, string(f.Severity)).Inc()
}

// Checkpoint reports that a checkpoint is stored and published.
func (a *Auditor) Checkpoint(size int64) {
	a.checkpoints.Inc()
	a.signed.Set(size)
}
