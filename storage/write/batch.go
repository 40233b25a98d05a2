package write

import (
	"fmt"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Limits of one InsertEvidence. A batch is one block, which ClickHouse stores whole or not at
// all, and both sides hold a block in memory.
const (
	// MaxBatchRows is the most rows of one batch.
	MaxBatchRows = 100_000
	// MaxBatchBytes is the most bytes of record text of one batch.
	MaxBatchBytes = 256 << 20
)

// checkBatch returns an error if rows cannot be one batch; see InsertEvidence.
func checkBatch(rows []storage.EvidenceRow) error {
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
	ok   func(storage.EvidenceRow) bool
	text string
}{
	{func(r storage.EvidenceRow) bool { return r.Shard != "" }, "it has no shard"},
	{func(r storage.EvidenceRow) bool { return r.Seq > 0 }, "sequences start at 1"},
	{func(r storage.EvidenceRow) bool { return knownKind(r.Kind) }, "its kind is none of Kinds"},
	{func(r storage.EvidenceRow) bool {
		return r.BrokerTime.After(conn.MinTime) && r.BrokerTime.Before(conn.MaxTime)
	}, "its broker time is missing or out of range"},
	{func(r storage.EvidenceRow) bool { return r.RecordHash != [32]byte{} }, "it has no record hash"},
}

func checkRow(r storage.EvidenceRow) error {
	for _, rule := range rowRules {
		if !rule.ok(r) {
			return fmt.Errorf("%s", rule.text)
		}
	}
	return nil
}

func knownKind(kind string) bool {
	for _, k := range storage.Kinds {
		if k == kind {
			return true
		}
	}
	return false
}
