package evidence

import (
	"math"
	"time"
)

// rangeGrace is how long after the beginning of a range a decision may have its
// request before it: they are committed together, within this time at the most.
const rangeGrace = 10 * time.Second

// RangeVerifier checks records of a shard that are not all of it: those between two
// times, in the order of their sequences. It keeps the head of every session, which
// may have begun before. That the records are in the tree is for the caller to
// check.
type RangeVerifier struct {
	v      *Verifier
	judged time.Time // from when on a decision must have its request among the records
	signed *checkpointTarget
}

// NewRangeVerifier checks the signature of the one checkpoint in opts and waits for
// rows from a broker time on.
func NewRangeVerifier(opts VerifyOptions, from time.Time) *RangeVerifier {
	opts.Part = &Part{First: 1, RequestsFrom: math.MaxUint64}
	v := NewVerifier(opts)
	return &RangeVerifier{v: v, judged: from.Add(rangeGrace), signed: v.targets.singleTarget(v.rep)}
}

// Report is what was found so far. The caller may add to it.
func (r *RangeVerifier) Report() *Report { return r.v.rep }

// Signed is the checkpoint, and whether a trusted key signed it.
func (r *RangeVerifier) Signed() (c Checkpoint, ok bool) {
	if r.signed == nil {
		return c, false
	}
	return r.signed.Checkpoint, true
}

// Row checks one row by itself and in its session.
func (r *RangeVerifier) Row(row Row) {
	v := r.v
	if v.trust.requestsFrom == math.MaxUint64 && !row.BrokerTime.Before(r.judged) {
		v.trust.requestsFrom = row.Seq
	}
	if v.rep.Records++; v.rep.Records == 1 {
		v.rep.From = row.Seq
	}
	v.rep.To = row.Seq
	var x Examined
	v.rowExaminer.Examine(&row, &x)
	v.reportExamined(&x)
	v.followChain(&x)
	v.trust.addRow(&x)
}

// Settle reports what is still open when all rows were seen.
func (r *RangeVerifier) Settle() {
	r.v.reportOpen()
	r.v.rep.Sessions = len(r.v.heads)
}
