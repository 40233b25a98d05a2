package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// CallFilter selects calls of a tenant; a zero field sets no condition.
type CallFilter struct {
	Session, State, Tool string
	Since                time.Time // least broker time of the call's newest record
	Limit                int       // greatest number of calls, the newest ones; 0 means all
}

// LatestCalls returns the newest record of each call that matches f, in log order.
func (db *DB) LatestCalls(ctx context.Context, tenant string, f CallFilter) ([]EvidenceRow, error) {
	query := `SELECT shard, seq, false FROM (
			SELECT shard, seq, broker_time, state, tool FROM calls
			WHERE tenant = {tenant:String} AND ({session:String} = '' OR session = {session:String}) AND broker_time >= {since:DateTime64(9, 'UTC')}
			ORDER BY seq DESC LIMIT 1 BY shard, call_id
		) WHERE ({state:String} = '' OR state = {state:String}) AND ({tool:String} = '' OR tool = {tool:String})
		ORDER BY broker_time DESC, shard DESC, seq DESC` + limitClause(f.Limit)
	marked, err := db.findingsAt(ctx, query, queryParam("tenant", tenant), queryParam("session", f.Session), sinceArg(f.Since), queryParam("state", f.State), queryParam("tool", f.Tool))
	rows := make([]EvidenceRow, len(marked))
	for i, m := range marked {
		rows[i] = m.EvidenceRow
	}
	return rows, err
}

// FindingFilter selects findings of a tenant; a zero field sets no condition.
type FindingFilter struct {
	Session, Rule, Severity string
	Since                   time.Time // least broker time
	Enforced                bool      // only findings that the tenant wants enforced, and retractions of these
	Retracted               bool      // also retracted findings and the records that retract them
	Limit                   int       // greatest number of findings, the newest ones; 0 means all
}

// StoredFinding is the row of a finding. Retracted says that a later record retracts it.
type StoredFinding struct {
	EvidenceRow
	Retracted bool
}

// LatestFindings returns the findings that match f, in log order.
func (db *DB) LatestFindings(ctx context.Context, tenant string, f FindingFilter) ([]StoredFinding, error) {
	query := `SELECT shard, seq, finding_id IN (SELECT withdraws FROM findings WHERE tenant = {tenant:String} AND withdraws != '') AS taken_back
		FROM findings
		WHERE tenant = {tenant:String} AND ({session:String} = '' OR session = {session:String}) AND broker_time >= {since:DateTime64(9, 'UTC')}
			AND ({rule:String} = '' OR rule = {rule:String}) AND ({severity:String} = '' OR severity = {severity:String})
			AND (NOT {enforced:UInt8} OR enforced OR withdraws IN (SELECT finding_id FROM findings WHERE tenant = {tenant:String} AND enforced))
			AND ({withdrawn:UInt8} OR (NOT taken_back AND withdraws = ''))
		ORDER BY broker_time DESC, shard DESC, seq DESC` + limitClause(f.Limit)
	return db.findingsAt(ctx, query, queryParam("tenant", tenant), queryParam("session", f.Session), sinceArg(f.Since), queryParam("rule", f.Rule), queryParam("severity", f.Severity),
		queryParam("enforced", boolInt(f.Enforced)), queryParam("withdrawn", boolInt(f.Retracted)))
}

func boolInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

func sinceArg(t time.Time) any {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	return clickhouse.DateNamed("since", t.UTC(), clickhouse.NanoSeconds)
}

func limitClause(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" LIMIT %d", n)
}

// findingsAt runs a query for (shard, seq, retracted) and returns the evidence rows at these
// places, in log order.
func (db *DB) findingsAt(ctx context.Context, query string, args ...any) ([]StoredFinding, error) {
	type place struct {
		shard string
		seq   uint64
	}
	marks := map[place]bool{}
	keys, err := ext.NewTable("wanted", ext.Column("s", "String"), ext.Column("q", "UInt64"))
	if err != nil {
		return nil, err
	}
	err = db.eachRow(ctx, query, func(r driver.Rows) error {
		var p place
		var mark bool
		if err := r.Scan(&p.shard, &p.seq, &mark); err != nil {
			return err
		}
		marks[p] = mark
		return keys.Append(p.shard, p.seq)
	}, args...)
	if err != nil || len(marks) == 0 {
		return nil, err
	}
	var list []StoredFinding
	ctx = clickhouse.Context(queryContext(ctx), clickhouse.WithExternalTable(keys))
	err = db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence WHERE (shard, seq) IN (SELECT s, q FROM wanted) ORDER BY shard, seq`,
		eachEvidence(func(r EvidenceRow) error {
			list = append(list, StoredFinding{r, marks[place{r.Shard, r.Seq}]})
			return nil
		}))
	return list, err
}

// SessionsWithPrefix lists up to most names of a tenant's sessions that begin with a prefix, in
// alphabetical order.
func (db *DB) SessionsWithPrefix(ctx context.Context, tenant, prefix string, most int) (names []string, err error) {
	err = db.eachRow(ctx, `SELECT DISTINCT session FROM evidence_chain
		WHERE tenant = {tenant:String} AND startsWith(session, {prefix:String}) AND session != '' ORDER BY session`+limitClause(most),
		func(r driver.Rows) error {
			var s string
			err := r.Scan(&s)
			names = append(names, s)
			return err
		}, queryParam("tenant", tenant), queryParam("prefix", prefix))
	return names, err
}

// ShardExtent returns the last sequence of a shard's evidence and its number of rows. The number
// of rows is that of sequences unless a sequence is repeated.
func (db *DB) ShardExtent(ctx context.Context, shard string) (last, sequences uint64, err error) {
	err = db.eachRow(ctx, `SELECT max(seq), count() FROM evidence WHERE shard = {shard:String}`,
		func(r driver.Rows) error { return r.Scan(&last, &sequences) }, queryParam("shard", shard))
	return last, sequences, err
}

// ControlRecords calls fn for a shard's control records up to a sequence, except cursors, in
// order.
func (db *DB) ControlRecords(ctx context.Context, shard string, to uint64, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND seq <= {to:UInt64} AND kind = 'control' AND NOT endsWith(subject, '.cursor') ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("to", to))
}

// EventsOf calls fn for the events of a tenant up to a sequence with a subject that ends in a
// type, in order.
func (db *DB) EventsOf(ctx context.Context, shard, tenant, typ string, to uint64, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND seq <= {to:UInt64} AND kind = 'event' AND tenant = {tenant:String}
			AND endsWith(subject, {ending:String}) ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("to", to), queryParam("tenant", tenant), queryParam("ending", "."+typ))
}

// FirstInput returns the first message after a sequence that was stored at a time or later and
// that no correlator wrote. seq is 0 if there is none.
func (db *DB) FirstInput(ctx context.Context, shard string, after uint64, at time.Time) (seq uint64, stored time.Time, err error) {
	err = db.eachRow(ctx, `SELECT seq, broker_time FROM evidence
		WHERE shard = {shard:String} AND seq > {after:UInt64} AND broker_time >= {since:DateTime64(9, 'UTC')}
			AND kind NOT IN ('call', 'finding') AND NOT (kind = 'control' AND endsWith(subject, '.cursor'))
		ORDER BY shard, seq LIMIT 1`,
		func(r driver.Rows) error { return r.Scan(&seq, &stored) }, queryParam("shard", shard), queryParam("after", after), sinceArg(at))
	return seq, stored.UTC(), err
}

// LastCursor calls fn for the newest record of the correlator's position, if there is one.
func (db *DB) LastCursor(ctx context.Context, shard string, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND kind = 'control' AND endsWith(subject, '.cursor') ORDER BY shard DESC, seq DESC LIMIT 1`,
		eachEvidence(fn), queryParam("shard", shard))
}

// CallKey identifies the calls that share one tool call id.
type CallKey struct{ Session, Source, ToolCallID string }

// LatestVerdicts returns the last verdict on each tool call id of the sessions.
func (db *DB) LatestVerdicts(ctx context.Context, tenant string, sessions []string) (map[CallKey]Verdict, error) {
	list := map[CallKey]Verdict{}
	err := db.eachRow(ctx, `SELECT session, source, tool_call_id, argMax(verdict, (shard, seq)), max(shard), argMax(seq, (shard, seq)) FROM decisions
		WHERE tenant = {tenant:String} AND session IN ({sessions:Array(String)}) GROUP BY session, source, tool_call_id`,
		func(r driver.Rows) error {
			var k CallKey
			var v Verdict
			err := r.Scan(&k.Session, &k.Source, &k.ToolCallID, &v.Verdict, &v.Shard, &v.Seq)
			list[k] = v
			return err
		}, queryParam("tenant", tenant), queryParam("sessions", sessions))
	return list, err
}

// Verdict is a verdict and its place in the log.
type Verdict struct {
	Verdict, Shard string
	Seq            uint64
}
