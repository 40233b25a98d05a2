package storage

import (
	"fmt"
	"math"
	"time"
)

// Kinds of evidence records.
const (
	KindRequest     = "request"
	KindEvent       = "event"
	KindDecision    = "decision"
	KindCall        = "call"
	KindFinding     = "finding"
	KindApproval    = "approval"
	KindControl     = "control"
	KindUnparseable = "unparseable"
)

// Kinds lists every kind of evidence record.
var Kinds = []string{KindRequest, KindEvent, KindDecision, KindCall, KindFinding, KindApproval, KindControl, KindUnparseable}

// EvidenceRow is one row of the table evidence. Record contains what the other fields hold,
// and Record is what was hashed; if they differ, the row was tampered with.
type EvidenceRow struct {
	Shard      string    // the log stream's incarnation
	Seq        uint64    // from 1
	Tenant     string    // from the subject
	Session    string    // empty where there is none
	Kind       string    // one of Kinds
	Subject    string    // the log subject
	BrokerTime time.Time // UTC, nanoseconds
	BodyDigest string
	Record     string // the canonical text
	RecordHash [32]byte
	// Expiry is the sequence of the control record that explains why Record is empty, 0 if
	// Record is not empty. Queries set it; inserts ignore it, except InsertCopy.
	Expiry       uint64
	SessionIndex *uint64 // index in the session's chain; nil if there is none
}

// AllSequences is the upper end of an unbounded range.
const AllSequences uint64 = math.MaxUint64

// Limits of one InsertEvidence. A batch is one block, which ClickHouse stores whole or not at
// all, and both sides hold a block in memory.
const (
	// MaxBatchRows is the most rows of one batch.
	MaxBatchRows = 100_000
	// MaxBatchBytes is the most bytes of record text of one batch.
	MaxBatchBytes = 256 << 20
)

// The range of DateTime64(9).
var (
	minTime = time.Unix(0, math.MinInt64)
	maxTime = time.Unix(0, math.MaxInt64)
)

// checkBatch returns an error if rows cannot be one batch; see InsertEvidence.
func checkBatch(rows []EvidenceRow) error {
	if len(rows) == 0 || len(rows) > MaxBatchRows {
		return fmt.Errorf("%w: it has %d rows, and may have 1 to %d", ErrBatch, len(rows), MaxBatchRows)
	}
	size := 0
	for i, r := range rows {
		if err := checkRow(r); err != nil {
			return fmt.Errorf("%w: row %d (seq %d): %w", ErrBatch, i, r.Seq, err)
		}
		if r.Shard != rows[0].Shard {
			return fmt.Errorf("%w: row %d (seq %d) is of shard %s, the first one of %s", ErrBatch, i, r.Seq, r.Shard, rows[0].Shard)
		}
		if i > 0 && r.Seq <= rows[i-1].Seq {
			return fmt.Errorf("%w: row %d has seq %d after %d", ErrBatch, i, r.Seq, rows[i-1].Seq)
		}
		size += len(r.Record)
	}
	if size > MaxBatchBytes && len(rows) > 1 {
		return fmt.Errorf("%w: it has %d bytes of records, and may have %d; split it", ErrBatch, size, MaxBatchBytes)
	}
	return nil
}

// rowRules are the conditions on every row, independent of its text.
var rowRules = []struct {
	ok   func(EvidenceRow) bool
	text string
}{
	{func(r EvidenceRow) bool { return r.Shard != "" }, "it has no shard"},
	{func(r EvidenceRow) bool { return r.Seq > 0 }, "sequences start at 1"},
	{func(r EvidenceRow) bool { return knownKind(r.Kind) }, "its kind is none of Kinds"},
	{func(r EvidenceRow) bool { return r.BrokerTime.After(minTime) && r.BrokerTime.Before(maxTime) }, "its broker time is missing or out of range"},
	{func(r EvidenceRow) bool { return r.RecordHash != [32]byte{} }, "it has no record hash"},
}

func checkRow(r EvidenceRow) error {
	for _, rule := range rowRules {
		if !rule.ok(r) {
			return fmt.Errorf("%s", rule.text)
		}
	}
	return nil
}

func knownKind(kind string) bool {
	for _, k := range Kinds {
		if k == kind {
			return true
		}
	}
	return false
}
