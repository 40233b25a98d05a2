package records

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/write"
)

// A field that a record has learnt and its table has not is lost without a word:
// every field of the samples is set.
func TestSamplesAreFull(t *testing.T) {
	for _, v := range []any{storagetest.FullDecision, storagetest.FullCall, storagetest.FullFinding, storagetest.FullApproval} {
		r := reflect.ValueOf(v)
		for i := range r.NumField() {
			if r.Field(i).IsZero() {
				t.Errorf("%s.%s is not set", r.Type(), r.Type().Field(i).Name)
			}
		}
	}
}

func TestTypedTablesLoseNothing(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	decision, call, finding := storagetest.FullDecision, storagetest.FullCall, storagetest.FullFinding
	decision.DecisionID, decision.ToolCallID, call.ToolCallID, finding.ToolCallID = shard, shard, shard, shard
	bodies := []struct {
		kind string
		body any
	}{
		{storage.KindDecision, decision}, {storage.KindDecision, events.Decision{DecisionID: "bare", Tenant: "acme", Session: "s1"}},
		{storage.KindCall, call}, {storage.KindCall, events.Call{CallID: "bare", Tenant: "acme", Session: "s1"}},
		{storage.KindFinding, finding}, {storage.KindFinding, events.Finding{FindingID: "bare", Severity: events.SeverityInfo, Tenant: "acme", Session: "s1"}},
		{storage.KindApproval, storagetest.FullApproval}, {storage.KindApproval, events.Approval{WorkflowID: "bare", Tenant: "acme", Session: "s1"}},
	}
	var rows []storage.EvidenceRow
	for i, b := range bodies {
		r := storagetest.RecordRow(t, shard, uint64(i+1), b.kind, b.body)
		r.Session = shard
		rows = append(rows, r)
	}
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	decisions, err := inSession(t, db, decisionTable, shard)
	wantRecords(t, err, decisions, 1, bodies[0].body, bodies[1].body)
	calls, err := inSession(t, db, callTable, shard)
	wantRecords(t, err, calls, 3, bodies[2].body, bodies[3].body)
	findings, err := inSession(t, db, findingTable, shard)
	wantRecords(t, err, findings, 5, bodies[4].body, bodies[5].body)
	approvals, err := inSession(t, db, approvalTable, shard)
	wantRecords(t, err, approvals, 7, bodies[6].body, bodies[7].body)
	if places, err := db.DecisionPlaces(t.Context(), "acme", shard); err != nil || !slices.Equal(places, []Place{{shard, 1}}) {
		t.Errorf("the decision is at %v (%v)", places, err)
	}
}

// located is a record with its place in the log. The tenant and session in Record are those of
// its subject, not those in its text.
type located[T any] struct {
	Shard  string
	Seq    uint64
	Time   time.Time // broker time
	Record T
}

// place holds the columns that all typed tables have.
type place struct {
	Tenant     string    `ch:"tenant"`
	Session    string    `ch:"session"`
	Shard      string    `ch:"shard"`
	Seq        uint64    `ch:"seq"`
	BrokerTime time.Time `ch:"broker_time"`
}

const (
	placeColumns = "tenant, session, shard, seq, broker_time"
	logOrder     = " ORDER BY shard, seq"
)

// recordTable describes one typed table: R is a row, T the record that it makes.
type recordTable[R, T any] struct {
	name    string
	columns []string
	place   func(R) place
	record  func(R) T
}

func queryRecords[R, T any](ctx context.Context, pool *conn.Pool, table recordTable[R, T], where string, args ...any) ([]located[T], error) {
	var rows []R
	query := "SELECT " + placeColumns + ", `" + strings.Join(table.columns, "`, `") + "` FROM " + table.name + " WHERE " + where + logOrder
	if err := pool.Select(ctx, &rows, query, args...); err != nil {
		return nil, err
	}
	list := make([]located[T], len(rows))
	for i, row := range rows {
		p := table.place(row)
		list[i] = located[T]{p.Shard, p.Seq, p.BrokerTime.UTC(), table.record(row)}
	}
	return list, nil
}

// eventTime converts a nullable column to a record's time.
func eventTime(t *time.Time) events.Time {
	if t == nil {
		return events.Time{}
	}
	return events.At(*t)
}

// elementAt returns element i of a parallel array, or the zero value if the array is shorter,
// which happens only if a row was changed.
func elementAt[T any](list []T, i int) (v T) {
	if i < len(list) {
		v = list[i]
	}
	return v
}

// inSession reads the records of a session back from the columns of their table.
func inSession[R, T any](t testing.TB, db *Reader, table recordTable[R, T], session string) ([]located[T], error) {
	t.Helper()
	return queryRecords(t.Context(), db.pool, table, "tenant = 'acme' AND session = {session:String}", conn.Param("session", session))
}

// wantRecords compares what came back with what went in. The session is the
// row's, which these tests set themselves.
func wantRecords[T any](t testing.TB, err error, got []located[T], firstSeq uint64, want ...any) {
	t.Helper()
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d records (%v), want %d", len(got), err, len(want))
	}
	for i, g := range got {
		if g.Seq != firstSeq+uint64(i) || !g.Time.Equal(storagetest.Time.Add(time.Duration(g.Seq))) {
			t.Errorf("record %d is at %d, %v", i, g.Seq, g.Time)
		}
		ignoreSession := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Session" }, cmp.Ignore())
		if d := cmp.Diff(want[i], any(g.Record), ignoreSession, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("record %d (-want +got):\n%s", i, d)
		}
	}
}

// Bodies that are no records of ours (forged, redacted, of a later version) must
// not keep evidence from being stored.
func TestStrangeBodies(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	deep := strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900)
	bodies := []string{
		``, `null`, `[]`, `"text"`, `{`, "\xff", `{"body":null}`, `{"body":[1,2]}`, `{"body":"text"}`, `{"body":{}}`,
		`{"body":{"decision_id":{"redacted":"x"},"occurrence":-1,"policy":"none","reasons":{"a":1},"decided_at":"yesterday","seqs":["x"],"findings":{"x":1}}}`,
		`{"body":{"occurrence":99999999999999999999,"policy":{"revision":1e400},"timeline":[1,{"at":5,"seq":"x"}],"inferred":"maybe","approval":[]}}`,
		`{"body":{"decided_at":"9999-12-31T23:59:59Z","received_at":"0001-01-01T00:00:00Z","detected_at":"-1"}}`,
		`{"body":` + deep + `}`,
		`{"body":{"policies":{"name":1},"documents":[1,{"name":[]}],"changes":"x","rules":[1],"kid":{},"counts":[[]],"inputs":[1],"enforced":"x","tool_call_ids":{},"quorum":-1}}`,
		`{"body":{"rules":{"a":{"b":1},"c":2},"policies":[{"name":"p"},7]},"redactions":[{"path":1},"x",{"detector":["y"]}]}`,
	}
	var rows []storage.EvidenceRow
	for _, kind := range []string{storage.KindDecision, storage.KindCall, storage.KindFinding, storage.KindApproval, storage.KindControl, storage.KindUnparseable} {
		for i, b := range bodies {
			r := storagetest.Row(shard, uint64(len(rows)+1))
			r.Kind, r.Record, r.Session = kind, b, shard
			if kind == storage.KindControl {
				r.Subject = "gov.control.GOV." + []string{"policy", "mandate", "publisher", "key", "rules", "redaction", "resolve", "new"}[i%8]
			}
			rows = append(rows, r)
		}
	}
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	n := uint64(len(bodies))
	storagetest.WantRows(t, db.pool, shard, map[string]uint64{"evidence": 6 * n, "redactions": n + 5, "decisions": n, "calls": n, "findings": n, "approvals": n})
	storagetest.WantRows(t, db.pool, shard, map[string]uint64{"changes": n})
	if _, err := inSession(t, db, decisionTable, shard); err != nil {
		t.Error(err)
	}
	if _, err := inSession(t, db, callTable, shard); err != nil {
		t.Error(err)
	}
}
