package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/evidence"
)

var recordKinds = []string{evidence.KindRequest, evidence.KindEvent, evidence.KindDecision, evidence.KindCall, evidence.KindFinding,
	evidence.KindApproval, evidence.KindControl, evidence.KindUnparseable}

// Auditor counts what an auditor does on one shard. A nil Auditor counts nothing.
type Auditor struct {
	records, redactions                   *Vector
	bytes, quarantined, checkpoints, lost Counter
	batch, insert                         prometheus.Histogram
	signed                                Gauge
	lag                                   readerLag
}

// Auditor gives the metrics of the auditor of a shard. detectors are the names of
// everything that redacts.
func (r *Registry) Auditor(shard string, detectors []string) *Auditor {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	a := r.auditors[shard]
	if a != nil {
		r.mu.Unlock()
		return a
	}
	a = &Auditor{records: countersOf(descRecords), redactions: newVector(detectors)}
	r.auditors[shard] = a
	r.mu.Unlock()
	r.addVector(descRecords, shard, a.records)
	r.addVector(descRedactions, shard, a.redactions)
	r.addCounter(descBytes, shard, &a.bytes)
	r.addCounter(descQuarantine, shard, &a.quarantined)
	r.addCounter(descCheckpoints, shard, &a.checkpoints)
	r.addCounter(descLost, shard, &a.lost)
	a.batch = r.addHistogram(descBatch, shard, sizeBuckets)
	a.insert = r.addHistogram(descInsert, shard, secondBuckets)
	r.addGauge(descSigned, shard, func() (float64, bool) { return float64(a.signed.n.Load()), true })
	r.addGauge(descAuditLag, shard, a.lag.messagesBehind)
	r.addGauge(descAuditAge, shard, a.lag.secondsBehind)
	return a
}

// Follow says how to ask how far the log goes.
func (a *Auditor) Follow(head Head) {
	if a != nil {
		a.lag.setHead(head)
	}
}

// Resumed says that the evidence ends at a sequence and has so many sequences up
// to it: the others are lost.
func (a *Auditor) Resumed(last, sequences uint64) {
	if a == nil {
		return
	}
	a.lag.done.Store(last)
	if last > sequences {
		a.lost.Add(last - sequences)
	}
}

// Stored says that a batch is durable. before is the sequence that the evidence
// ended at; what lies between it and the batch's last sequence and is not in the
// batch is lost.
func (a *Auditor) Stored(before uint64, batch []evidence.Built, begun time.Time) {
	if a == nil || len(batch) == 0 {
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

// Checkpoint says that a checkpoint is stored and published.
func (a *Auditor) Checkpoint(size int64) {
	if a != nil {
		a.checkpoints.Inc()
		a.signed.Set(size)
	}
}
