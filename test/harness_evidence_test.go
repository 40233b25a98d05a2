package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// row is a row of the evidence table, with its columns (docs/evidence-format.md).
type row struct {
	Shard      string    `ch:"shard"`
	Seq        uint64    `ch:"seq"`
	Tenant     string    `ch:"tenant"`
	Session    string    `ch:"session"`
	Kind       string    `ch:"kind"`
	Subject    string    `ch:"subject"`
	BrokerTime time.Time `ch:"broker_time"`
	BodyDigest string    `ch:"body_digest"`
	Record     string    `ch:"record"`
	RecordHash string    `ch:"record_hash"`
}

const columns = "shard, seq, tenant, session, kind, subject, broker_time, body_digest, record, record_hash"

// record parses the record's canonical text.
func (r row) record(t testing.TB) object {
	t.Helper()
	var o object
	ok(t, json.Unmarshal([]byte(r.Record), &o))
	return o
}

// body is the redacted body in the record.
func (r row) body(t testing.TB) object {
	t.Helper()
	b, _ := r.record(t)["body"].(map[string]any)
	return b
}

func openClickHouse(t testing.TB, dsn string) driver.Conn {
	t.Helper()
	opt, err := clickhouse.ParseDSN(dsn)
	ok(t, err)
	conn, err := clickhouse.Open(opt)
	ok(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// auditors connects as the auditors' read-only user; owner connects as the database's owner.
func (s *system) auditors(t testing.TB) driver.Conn {
	t.Helper()
	return openClickHouse(t, s.info(t).ClickHouseReadonlyDSN)
}

func (s *system) owner(t testing.TB) driver.Conn {
	t.Helper()
	return openClickHouse(t, s.info(t).ClickHouseDSN)
}

// evidence reads rows in log order; where is a condition.
func evidence(t testing.TB, db driver.Conn, where string, args ...any) (rows []row) {
	t.Helper()
	ok(t, db.Select(context.Background(), &rows, "SELECT "+columns+" FROM evidence WHERE "+where+" ORDER BY shard, seq", args...))
	return rows
}

// number returns the result of a query for one number.
func number(t testing.TB, db driver.Conn, query string, args ...any) (n uint64) {
	t.Helper()
	if err := db.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// change runs a statement as the owner and waits until its mutations are done.
func change(t testing.TB, db driver.Conn, statement string, args ...any) {
	t.Helper()
	ctx := clickhouse.Context(context.Background(), clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 2}))
	if err := db.Exec(ctx, statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// atSeq waits for the evidence of one message and returns it.
func atSeq(t testing.TB, db driver.Conn, seq uint64) (r row) {
	t.Helper()
	eventually(t, fmt.Sprintf("evidence of sequence %d", seq), func() error {
		rows := evidence(t, db, "seq = ?", seq)
		if len(rows) != 1 {
			return fmt.Errorf("%d rows", len(rows))
		}
		r = rows[0]
		return nil
	})
	return r
}

// session returns a session's evidence.
func session(t testing.TB, db driver.Conn, name string) []row {
	t.Helper()
	return evidence(t, db, "session = ?", name)
}

// listed describes rows, one per line.
func listed(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%d %s %s %s %s\n", r.Seq, r.BrokerTime.Format(time.RFC3339Nano), r.Kind, r.Subject, r.RecordHash)
	}
	return b.String()
}

// kinds lists the kinds of rows in order.
func kinds(rows []row) (list []string) {
	for _, r := range rows {
		list = append(list, r.Kind)
	}
	return list
}

var barriers atomic.Uint64

// settle returns once everything that is in the log now has been correlated and the results are
// in evidence. Log, correlator and auditor work in order: when the evidence holds the call record
// of an event, it holds the results of everything before.
func (s *system) settle(t testing.TB) {
	t.Helper()
	name := fmt.Sprintf("barrier-%d", barriers.Add(1))
	s.runtime(t).publish(t, preToolUse(name, "call-"+name, "read_file", object{"path": "/workspace/barrier"}))
	db := s.auditors(t)
	eventually(t, "the correlator's word on "+name, func() error {
		if n := number(t, db, "SELECT count() FROM evidence WHERE session = ? AND kind = 'call'", name); n != 1 {
			return fmt.Errorf("%d call records", n)
		}
		return nil
	})
	end := lastSeq(t, s.connect(t, "operator")) // others may go on publishing
	eventually(t, fmt.Sprint("the evidence reaches message ", end), func() error {
		if have := number(t, db, "SELECT max(seq) FROM evidence"); have < end {
			return fmt.Errorf("it ends at %d", have)
		}
		return nil
	})
	derived(t, db, end)
}

// derivedConditions are the conditions on evidence for a row in each derived table.
var derivedConditions = []struct{ table, condition string }{
	{"decisions", "record != '' AND kind = 'decision'"},
	{"calls", "record != '' AND kind = 'call'"},
	{"findings", "record != '' AND kind = 'finding'"},
	{"approvals", "record != '' AND kind = 'approval'"},
	{"redactions", "record != '' AND (redacted OR kind = 'unparseable')"},
	// These two keep the rows of expired records.
	{"evidence_chain", "session != '' OR session_index IS NOT NULL"},
	{"changes", "kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick'))"},
}

// derived waits until the derived tables match the evidence up to a message: the same insert fills
// them, a moment later. One query counts all of them, because almost every test asks it.
func derived(t testing.TB, db driver.Conn, end uint64) {
	t.Helper()
	var have, want []string
	for _, d := range derivedConditions {
		have = append(have, fmt.Sprintf("assumeNotNull((SELECT count() FROM %s WHERE seq <= %d))", d.table, end))
		want = append(want, "countIf("+d.condition+")")
	}
	query := fmt.Sprintf("SELECT [%s], [%s] FROM evidence WHERE seq <= %d", strings.Join(have, ", "), strings.Join(want, ", "), end)
	eventually(t, "the derived tables are complete", func() error {
		var rows, expected []uint64
		ok(t, db.QueryRow(context.Background(), query).Scan(&rows, &expected))
		for i, d := range derivedConditions {
			if rows[i] != expected[i] {
				return fmt.Errorf("table %s has %d rows of %d", d.table, rows[i], expected[i])
			}
		}
		return nil
	})
}

// exact checks that the evidence has exactly one record for every message of the log: contiguous
// from sequence 1 to the log's end, without duplicates, in one incarnation, and none that is not in the log.
func (s *system) exact(t testing.TB) {
	t.Helper()
	s.settle(t)
	db, operator := s.auditors(t), s.connect(t, "operator")
	// Repeated, because others may go on publishing.
	eventually(t, "evidence and log are the same", func() error {
		var rows, seqs, first, end, shards, newest uint64
		last := lastSeq(t, operator)
		ok(t, db.QueryRow(context.Background(), "SELECT countIf(seq <= $1), uniqExactIf(seq, seq <= $1), min(seq), maxIf(seq, seq <= $1), uniqExact(shard), max(seq) FROM evidence", last).
			Scan(&rows, &seqs, &first, &end, &shards, &newest))
		if rows != last || seqs != last || first != 1 || end != last || shards != 1 || newest > last && newest > lastSeq(t, operator) {
			return fmt.Errorf("the log has %d messages, the evidence %d rows of them, %d sequences from %d to %d, of %d shards, and ends at %d", last, rows, seqs, first, end, shards, newest)
		}
		return nil
	})
}

// verified runs `countersign verify` and expects an exit code.
func (s *system) verified(t testing.TB, code int, args ...string) result {
	t.Helper()
	return s.run(t, append([]string{"verify"}, args...)...).want(t, code)
}
