package verify

import (
	"math"
	"time"

	"github.com/countersign-dev/countersign/evidence"
)

// rangeGrace is the time after the beginning of a range in which a decision may have its
// request before the range. A request and its decision are committed together, within this
// time at most.
const rangeGrace = 10 * time.Second

// RangeVerifier checks some records of a shard, in the order of their sequences: those between two
// times, or those of a session. It keeps the head of every session. It does not check that the records
// are in the tree, nor whose they are: the caller does.
type RangeVerifier struct {
	v      *Verifier
	judged time.Time // time from which on a decision must have its request among the records
}

// NewRangeVerifier makes a verifier for rows with a broker time not before from, and checks
// the signature of the one checkpoint in opts. Sessions may have begun before the range.
func NewRangeVerifier(opts Options, from time.Time) *RangeVerifier {
	opts.Part = &Part{First: 1, RequestsFrom: math.MaxUint64}
	r := NewSessionVerifier(opts)
	r.judged = from.Add(rangeGrace)
	return r
}

// NewSessionVerifier is NewRangeVerifier for the rows of a session, from its first on.
func NewSessionVerifier(opts Options) *RangeVerifier {
	v := NewVerifier(opts)
	v.targets.singleTarget(v.rep)
	return &RangeVerifier{v: v}
}

// Report is the report so far. The caller may add to it.
func (r *RangeVerifier) Report() *Report { return r.v.rep }

// Row checks one row alone and in its session.
func (r *RangeVerifier) Row(row evidence.Row) {
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

// Settle reports what is still open. The caller calls it after the last row.
func (r *RangeVerifier) Settle() {
	r.v.reportOpen()
	r.v.rep.Sessions = len(r.v.heads)
}
