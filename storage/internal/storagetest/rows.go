// Package storagetest makes rows for the tests of storage's packages, and counts what is stored.
package storagetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Token is a de-duplication token of the test's own.
func Token() string { return rand.Text() }

// Shard is a shard of the test's own, another one each time it runs.
func Shard(t testing.TB) string { return "GOV@" + t.Name() + "@" + Token()[:8] }

// Time is the broker time of sequence 0.
var Time = time.Date(2026, 11, 20, 6, 41, 50, 123456789, time.UTC)

// Row makes an event row of session s1.
func Row(shard string, seq uint64) storage.EvidenceRow {
	index := seq - 1
	return storage.EvidenceRow{
		Shard: shard, Seq: seq, Tenant: "acme", Session: "s1", Kind: storage.KindEvent, Subject: "gov.events.acme.rt1.aaep.s1.tool",
		BrokerTime: Time.Add(time.Duration(seq)), BodyDigest: "sha256:00", Record: fmt.Sprintf(`{"body":{"n":%d},"v":1}`, seq),
		RecordHash: [32]byte{byte(seq), byte(seq >> 8), byte(seq >> 16), 1}, SessionIndex: &index,
	}
}

// RecordRow makes a row with a service record as the body of its record.
func RecordRow(t testing.TB, shard string, seq uint64, kind string, body any) storage.EvidenceRow {
	t.Helper()
	text, err := events.Encode(map[string]any{"v": 1, "body": body})
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Fatalf("not JSON: %s", text)
	}
	r := Row(shard, seq)
	r.Kind, r.Record = kind, string(text)
	if f, is := body.(events.Finding); is {
		r.Subject = subject.Space{}.Finding(r.Tenant, string(f.Severity), r.Session)
	}
	return r
}

// Rows makes the rows of the sequences first to last.
func Rows(shard string, first, last uint64) (rows []storage.EvidenceRow) {
	for seq := first; seq <= last; seq++ {
		rows = append(rows, Row(shard, seq))
	}
	return rows
}

// Count runs a query that gives one number.
func Count(t testing.TB, pool *conn.Pool, query string, args ...any) (n uint64) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Collect returns the rows of a scan.
func Collect(t testing.TB, scan func(func(storage.EvidenceRow) error) error) (rows []storage.EvidenceRow) {
	t.Helper()
	if err := scan(func(r storage.EvidenceRow) error { rows = append(rows, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

// OneOfEach is a batch with a row for every derived table, in session s1.
func OneOfEach(t testing.TB, shard string, first uint64) []storage.EvidenceRow {
	return []storage.EvidenceRow{
		Row(shard, first),
		RecordRow(t, shard, first+1, storage.KindDecision, events.Decision{DecisionID: "d1", Tenant: "acme", ToolCallID: "tc1", Verdict: events.Deny}),
		RecordRow(t, shard, first+2, storage.KindCall, events.Call{CallID: "c1", Tenant: "acme", ToolCallID: "tc1", State: events.CallDenied}),
		RecordRow(t, shard, first+3, storage.KindFinding, events.Finding{FindingID: "f1", Rule: "executed_despite_deny", ToolCallID: "tc1"}),
		RecordRow(t, shard, first+4, storage.KindApproval, events.Approval{WorkflowID: "w1", Tenant: "acme", Status: "pending"}),
	}
}

// RowsIn counts the rows of a shard in a table.
func RowsIn(t testing.TB, pool *conn.Pool, table, shard string) uint64 {
	t.Helper()
	return Count(t, pool, "SELECT count() FROM "+table+" WHERE shard = {s:String}", conn.Param("s", shard))
}

// WantRows compares the numbers of a shard's rows, by table.
func WantRows(t testing.TB, pool *conn.Pool, shard string, want map[string]uint64) {
	t.Helper()
	for table, n := range want {
		if got := RowsIn(t, pool, table, shard); got != n {
			t.Errorf("table %s has %d rows, want %d", table, got, n)
		}
	}
}

// OneEach are the numbers of rows, by table, after OneOfEach was stored.
var OneEach = map[string]uint64{"evidence": 5, "evidence_chain": 5, "decisions": 1, "calls": 1, "findings": 1, "approvals": 1}

// Writer is what this package needs of write.Writer. It does not import package write, because the tests
// of that package import this one.
type Writer interface {
	InsertEvidence(context.Context, string, []storage.EvidenceRow) error
	CommitEvidence(context.Context, []storage.EvidenceRow) error
	InsertTreeNodes(context.Context, string, []storage.TreeNode) error
	InsertCheckpoint(context.Context, storage.Checkpoint) error
}

// TwoTenants stores evidence of the tenants acme and globex in shard S: 11 records, a tree hash
// and a checkpoint.
func TwoTenants(t testing.TB, w Writer) {
	t.Helper()
	theirs := OneOfEach(t, "S", 6)
	for i := range theirs {
		theirs[i].Tenant, theirs[i].Session, theirs[i].Subject = "globex", "hidden-session", "gov.events.globex.rt1.aaep.hidden-session.tool"
	}
	theirs[4] = RecordRow(t, "S", 10, storage.KindControl, events.KeyRecord{KeyID: "k1", Use: "receipt"})
	theirs[4].Kind, theirs[4].Tenant, theirs[4].Session, theirs[4].Subject = storage.KindControl, "", "", "gov.control.GOV.key"
	policy := RecordRow(t, "S", 11, storage.KindControl, map[string]any{"policies": []any{map[string]any{"name": "globex-policy"}}})
	policy.Tenant, policy.Session, policy.Subject = "", "", "gov.control.GOV.policy"
	for _, rows := range [][]storage.EvidenceRow{OneOfEach(t, "S", 1), append(theirs, policy)} {
		if err := w.CommitEvidence(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.InsertTreeNodes(t.Context(), "S", []storage.TreeNode{{Index: uint64(tlog.StoredHashIndex(8, 0)), Hash: [32]byte{1}}}); err != nil {
		t.Fatal(err)
	}
	if err := w.InsertCheckpoint(t.Context(), storage.Checkpoint{Shard: "S", Size: 1, Root: [32]byte{1}, Note: "n", Created: Time}); err != nil {
		t.Fatal(err)
	}
}

// WithMember is the expression of record_fields' column fields with another text in a member of the
// bodies, for tests that change rows.
func WithMember(name, value string) string {
	return fmt.Sprintf(`JSONExtract(replaceRegexpOne(toJSONString(fields), '"%s":"[^"]*"', '"%[1]s":"%s"'), toTypeName(fields))`, name, value)
}
