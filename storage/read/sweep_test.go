package read

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

func TestSweepIsScan(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := storagetest.Rows(shard, 1, 30)
	for i := range rows {
		rows[i].SessionIndex = nil
	}
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db.pool).InsertEvidence(t.Context(), storagetest.Token(), rows[6:7]); err != nil { // once more
		t.Fatal(err)
	}
	for i, r := range [][2]uint64{{0, storage.AllSequences}, {7, 7}, {5, 12}, {30, 30}, {31, 40}, {0, storage.AllSequences}, {5, 12}} {
		sweep := db.scanNative
		if i > 4 {
			sweep = db.scanReusingRow
		}
		var swept, scanned []storage.EvidenceRow
		if err := sweep(t.Context(), shard, r[0], r[1], func(row *storage.EvidenceRow) error {
			kept := *row // its texts go
			kept.Subject, kept.BodyDigest, kept.Record = strings.Clone(row.Subject), strings.Clone(row.BodyDigest), strings.Clone(row.Record)
			swept = append(swept, kept)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Scan(t.Context(), shard, r[0], r[1], func(row storage.EvidenceRow) error { scanned = append(scanned, row); return nil }); err != nil {
			t.Fatal(err)
		}
		for i := range swept {
			swept[i].BrokerTime = swept[i].BrokerTime.UTC()
		}
		if !reflect.DeepEqual(swept, scanned) {
			t.Errorf("%v: swept %d rows, scanned %d", r, len(swept), len(scanned))
		}
	}
	stop := fmt.Errorf("enough")
	if err := db.ScanReusingRow(t.Context(), shard, 0, 10, func(*storage.EvidenceRow) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestRanges(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	rows := append(storagetest.Rows(shard, 1, 25), storagetest.Row(shard, 1<<60))
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db.pool).InsertEvidence(t.Context(), storagetest.Token(), rows[6:7]); err != nil {
		t.Fatal(err)
	}
	got, err := db.Ranges(t.Context(), shard, 0, storage.AllSequences, 10)
	want := []Range{{1, 9, 10}, {10, 19, 10}, {20, 25, 6}, {1 << 60, 1 << 60, 1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if got, err = db.Ranges(t.Context(), shard, 8, 12, 10); err != nil || !reflect.DeepEqual(got, []Range{{8, 9, 2}, {10, 12, 3}}) {
		t.Errorf("%v %v", got, err)
	}
	if got, err = db.Ranges(t.Context(), "none", 0, storage.AllSequences, 10); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
	for _, tc := range []struct {
		since, until time.Duration
		first, last  uint64
	}{{-1, -1, 1, 1 << 60}, {5, 9, 5, 8}, {5, -1, 5, 1 << 60}, {-1, 5, 1, 4}, {26, 40, 0, 0}, {9, 5, 0, 0}} {
		at := func(d time.Duration) time.Time {
			if d < 0 {
				return time.Time{}
			}
			return storagetest.Time.Add(d)
		}
		first, last, err := db.SequencesBetween(t.Context(), shard, at(tc.since), at(tc.until))
		if err != nil || first != tc.first || last != tc.last {
			t.Errorf("%+v: %d to %d, %v", tc, first, last, err)
		}
	}
	if _, _, err := db.SequencesBetween(t.Context(), shard, time.Unix(-1<<40, 0), time.Unix(1<<40, 0)); err != nil {
		t.Error(err)
	}
}

// BenchmarkSweep reads rows of about a kilobyte, on one connection and on two.
func BenchmarkSweep(b *testing.B) {
	db := New(enginetest.Pool(b))
	shard := "bench@sweep" + storagetest.Token()
	const n, batch = 60_000, 10_000
	rows := make([]storage.EvidenceRow, batch)
	for first := uint64(1); first <= n; first += batch {
		for i := range rows {
			seq := first + uint64(i)
			rows[i] = storagetest.Row(shard, seq)
			rows[i].Session = fmt.Sprintf("session-%d", seq%500)
			rows[i].BodyDigest = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(fmt.Sprint(seq))))
			rows[i].RecordHash = sha256.Sum256([]byte(fmt.Sprint(seq)))
			rows[i].Record = fmt.Sprintf(`{"body":{"n":%d,"digest":"%s","note":"%s"},"v":1}`, seq, rows[i].BodyDigest, strings.Repeat("looked at some pages ", 40))
		}
		if err := write.New(db.pool).InsertEvidence(b.Context(), storagetest.Token(), rows); err != nil {
			b.Fatal(err)
		}
	}
	for _, bc := range []struct {
		name    string
		readers uint64
	}{{"1", 1}, {"2", 2}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range bc.readers {
					wg.Go(func() {
						size := n / bc.readers
						if err := db.ScanReusingRow(b.Context(), shard, i*size+1, (i+1)*size, func(*storage.EvidenceRow) error { return nil }); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
