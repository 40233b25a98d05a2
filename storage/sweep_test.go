package storage

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

func TestSweepIsScan(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := rowsOf(shard, 1, 30)
	for i := range rows {
		rows[i].SessionIndex = nil
	}
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := db.InsertEvidence(t.Context(), randomToken(), rows[6:7]); err != nil { // once more
		t.Fatal(err)
	}
	for i, r := range [][2]uint64{{0, AllSequences}, {7, 7}, {5, 12}, {30, 30}, {31, 40}, {0, AllSequences}, {5, 12}} {
		sweep := db.scanNative
		if i > 4 {
			sweep = db.scanReusingRow
		}
		var swept, scanned []EvidenceRow
		if err := sweep(t.Context(), shard, r[0], r[1], func(row *EvidenceRow) error {
			kept := *row // its texts go
			kept.Subject, kept.BodyDigest, kept.Record = strings.Clone(row.Subject), strings.Clone(row.BodyDigest), strings.Clone(row.Record)
			swept = append(swept, kept)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Scan(t.Context(), shard, r[0], r[1], func(row EvidenceRow) error { scanned = append(scanned, row); return nil }); err != nil {
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
	if err := db.ScanReusingRow(t.Context(), shard, 0, 10, func(*EvidenceRow) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// Where there is no plain connection the rows come the other way; what the server
// says of a query is an error, and so is the end of the context.
func TestSweepWithoutPlainConnection(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	if err := db.CommitEvidence(t.Context(), rowsOf(shard, 1, 30)); err != nil {
		t.Fatal(err)
	}
	other := func(change func(*clickhouse.Options)) *DB {
		options := *db.options
		change(&options)
		return &DB{options: &options, conn: db.conn, database: options.Auth.Database}
	}
	none := func(*EvidenceRow) error { return nil }
	for name, change := range map[string]func(*clickhouse.Options){
		"TLS":      func(o *clickhouse.Options) { o.TLS = &tls.Config{} },
		"far away": func(o *clickhouse.Options) { o.Addr = []string{"10.0.0.1:9000"} },
		"nobody":   func(o *clickhouse.Options) { o.Addr = []string{"127.0.0.1:1"} },
		"password": func(o *clickhouse.Options) { o.Auth.Password = "wrong" },
	} {
		if err := other(change).scanNative(t.Context(), shard, 0, 10, none); !errors.Is(err, errNative) {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := other(func(o *clickhouse.Options) { o.Auth.Database = "system" })
	if err := elsewhere.ScanReusingRow(t.Context(), shard, 0, 10, none); err == nil || !strings.Contains(err.Error(), "evidence") {
		t.Errorf("a database without the table: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := db.ScanReusingRow(ctx, shard, 0, 30, func(*EvidenceRow) error { cancel(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := db.scanNative(ctx, shard, 0, 30, none); err == nil {
		t.Error("cancelled before it began, and nothing happened")
	}
}

func TestOnlyLocal(t *testing.T) {
	for want, lists := range map[bool][][]string{
		true:  {{"127.0.0.1:9000"}, {"localhost:1"}, {"[::1]:9000", "127.1.2.3:9"}},
		false: {nil, {"10.0.0.1:9000"}, {"127.0.0.1:9000", "db.example:9000"}, {"127.0.0.1"}, {"127.0.0.1.example:9000"}},
	} {
		for _, list := range lists {
			if onlyLocal(list) != want {
				t.Errorf("%v: %v", list, !want)
			}
		}
	}
}

func TestRanges(t *testing.T) {
	db, shard := sharedDB(t), testShard(t)
	rows := append(rowsOf(shard, 1, 25), row(shard, 1<<60))
	if err := db.CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := db.InsertEvidence(t.Context(), randomToken(), rows[6:7]); err != nil {
		t.Fatal(err)
	}
	got, err := db.Ranges(t.Context(), shard, 0, AllSequences, 10)
	want := []Range{{1, 9, 10}, {10, 19, 10}, {20, 25, 6}, {1 << 60, 1 << 60, 1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if got, err = db.Ranges(t.Context(), shard, 8, 12, 10); err != nil || !reflect.DeepEqual(got, []Range{{8, 9, 2}, {10, 12, 3}}) {
		t.Errorf("%v %v", got, err)
	}
	if got, err = db.Ranges(t.Context(), "none", 0, AllSequences, 10); err != nil || len(got) != 0 {
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
			return testTime.Add(d)
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
	db := sharedDB(b)
	shard := "bench@sweep" + randomToken()
	const n, batch = 60_000, 10_000
	rows := make([]EvidenceRow, batch)
	for first := uint64(1); first <= n; first += batch {
		for i := range rows {
			seq := first + uint64(i)
			rows[i] = row(shard, seq)
			rows[i].Session = fmt.Sprintf("session-%d", seq%500)
			rows[i].BodyDigest = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(fmt.Sprint(seq))))
			rows[i].RecordHash = sha256.Sum256([]byte(fmt.Sprint(seq)))
			rows[i].Record = fmt.Sprintf(`{"body":{"n":%d,"digest":"%s","note":"%s"},"v":1}`, seq, rows[i].BodyDigest, strings.Repeat("looked at some pages ", 40))
		}
		if err := db.InsertEvidence(b.Context(), randomToken(), rows); err != nil {
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
						if err := db.ScanReusingRow(b.Context(), shard, i*size+1, (i+1)*size, func(*EvidenceRow) error { return nil }); err != nil {
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
