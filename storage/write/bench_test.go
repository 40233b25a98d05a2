package write

import (
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
)

// session makes a batch as the log brings it: of eight rows one is a decision
// with its request, one a call, the rest events.
func session(b *testing.B, shard string, first uint64, n int) []storage.EvidenceRow {
	b.Helper()
	rows := make([]storage.EvidenceRow, n)
	for i := range rows {
		seq := first + uint64(i)
		switch i % 8 {
		case 0:
			rows[i] = storagetest.RecordRow(b, shard, seq, storage.KindDecision, storagetest.FullDecision)
		case 1:
			rows[i] = storagetest.RecordRow(b, shard, seq, storage.KindRequest, storagetest.FullDecision)
		case 2:
			rows[i] = storagetest.RecordRow(b, shard, seq, storage.KindCall, storagetest.FullCall)
		default:
			rows[i] = storagetest.RecordRow(b, shard, seq, storage.KindEvent, storagetest.FullFinding)
		}
		rows[i].Session = fmt.Sprintf("session-%d", i%50)
	}
	return rows
}

func BenchmarkInsertEvidence(b *testing.B) {
	db := New(enginetest.Pool(b))
	for _, size := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			shard := fmt.Sprintf("bench@%d@%s", size, randomToken())
			rows := session(b, shard, 1, size)
			next := uint64(1)
			for b.Loop() {
				for i := range rows {
					rows[i].Seq = next
					next++
				}
				if err := db.InsertEvidence(b.Context(), EvidenceToken(shard, rows[0].Seq), rows); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkScan(b *testing.B) {
	db := New(enginetest.Pool(b))
	shard := "bench@scan" + randomToken()
	const n = 10_000
	if err := db.InsertEvidence(b.Context(), shard, session(b, shard, 1, n)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := read.New(db.pool).Scan(b.Context(), shard, 1, storage.AllSequences, func(storage.EvidenceRow) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
