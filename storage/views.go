package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// CallFilter says which calls of a tenant are wanted; zero values are no
// condition.
type CallFilter struct {
	Session, State, Tool string
	Since                time.Time // of the call's newest record, broker time
	Limit                int       // at most so many, the newest; 0 is all
}

// LatestCalls gives the newest record of each call that fits, in the order of the
// log.
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

// FindingFilter says which findings of a tenant are wanted; zero values are no
// condition.
type FindingFilter struct {
	Session, Rule, Severity string
	Since                   time.Time // broker time
	Enforced                bool      // only those that the tenant wants enforced, and what takes such a one back
	Retracted               bool      // those that were taken back, too, and the records that did it
	Limit                   int       // at most so many, the newest; 0 is all
}

// StoredFinding is the row of a finding; Withdrawn says that a later record took
// it back.
type StoredFinding struct {
	EvidenceRow
	Retracted bool
}

// LatestFindings gives the findings that fit, in the order of the log.
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

// findingsAt runs a query for (shard, seq, mark) and gives the evidence rows at these
// places, in the order of the log.
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

// SessionsWithPrefix gives names of a tenant's sessions that begin with a prefix, at
// most so many, in alphabetical order.
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

// ShardExtent is how far a shard's evidence goes, and how many sequences it has, none
// of them counted twice unless somebody inserted a row.
func (db *DB) ShardExtent(ctx context.Context, shard string) (last, sequences uint64, err error) {
	err = db.eachRow(ctx, `SELECT max(seq), count() FROM evidence WHERE shard = {shard:String}`,
		func(r driver.Rows) error { return r.Scan(&last, &sequences) }, queryParam("shard", shard))
	return last, sequences, err
}

// ControlRecords gives fn a shard's control records up to a sequence, cursors left out,
// in order.
func (db *DB) ControlRecords(ctx context.Context, shard string, to uint64, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND seq <= {to:UInt64} AND kind = 'control' AND NOT endsWith(subject, '.cursor') ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("to", to))
}

// EventsOf gives fn the events of a tenant whose subject ends in a type, up to a
// sequence, in order.
func (db *DB) EventsOf(ctx context.Context, shard, tenant, typ string, to uint64, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND seq <= {to:UInt64} AND kind = 'event' AND tenant = {tenant:String}
			AND endsWith(subject, {ending:String}) ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("to", to), queryParam("tenant", tenant), queryParam("ending", "."+typ))
}

// FirstInput is the first message after a sequence that was stored at a time or
// later and is neither of what a correlator writes; seq is 0 if there is none.
func (db *DB) FirstInput(ctx context.Context, shard string, after uint64, at time.Time) (seq uint64, stored time.Time, err error) {
	err = db.eachRow(ctx, `SELECT seq, broker_time FROM evidence
		WHERE shard = {shard:String} AND seq > {after:UInt64} AND broker_time >= {since:DateTime64(9, 'UTC')}
			AND kind NOT IN ('call', 'finding') AND NOT (kind = 'control' AND endsWith(subject, '.cursor'))
		ORDER BY shard, seq LIMIT 1`,
		func(r driver.Rows) error { return r.Scan(&seq, &stored) }, queryParam("shard", shard), queryParam("after", after), sinceArg(at))
	return seq, stored.UTC(), err
}

// LastCursor gives fn the newest record of the correlator's position, if there is
// one.
func (db *DB) LastCursor(ctx context.Context, shard string, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND kind = 'control' AND endsWith(subject, '.cursor') ORDER BY shard DESC, seq DESC LIMIT 1`,
		eachEvidence(fn), queryParam("shard", shard))
}

// CallKey names the calls under one id.
type CallKey struct{ Session, Source, ToolCallID string }

// LatestVerdicts gives the last verdict on each tool call id of the sessions, and
// its sequence.
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

// Verdict is a verdict and where it stands in the log.
type Verdict struct {
	Verdict, Shard string
	Seq            uint64
}
