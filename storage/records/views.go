package records

import (
	"context"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

// CallFilter selects calls of a tenant; a zero field sets no condition.
type CallFilter struct {
	Session, State, Tool string
	Since                time.Time // least broker time of the call's newest record
	Limit                int       // greatest number of calls, the newest ones; 0 means all
}

// LatestCalls returns the newest record of each call that matches f, in log order.
func (r *Reader) LatestCalls(ctx context.Context, tenant string, f CallFilter) ([]storage.EvidenceRow, error) {
	query := `SELECT shard, seq, false FROM (
			SELECT shard, seq, broker_time, state, tool FROM calls
			WHERE tenant = {tenant:String} AND ({session:String} = '' OR session = {session:String}) AND broker_time >= {since:DateTime64(9, 'UTC')}
			ORDER BY seq DESC LIMIT 1 BY shard, call_id
		) WHERE ({state:String} = '' OR state = {state:String}) AND ({tool:String} = '' OR tool = {tool:String})
		ORDER BY broker_time DESC, shard DESC, seq DESC` + conn.LimitClause(f.Limit)
	marked, err := r.findingsAt(ctx, query, conn.Param("tenant", tenant), conn.Param("session", f.Session), conn.TimeParam("since", f.Since), conn.Param("state", f.State), conn.Param("tool", f.Tool))
	rows := make([]storage.EvidenceRow, len(marked))
	for i, m := range marked {
		rows[i] = m.EvidenceRow
	}
	return rows, err
}

// FindingFilter selects findings of a tenant, and those of the log itself, which have no tenant; a zero
// field sets no condition.
type FindingFilter struct {
	Session, Rule string
	Severity      events.Severity // least severity
	Since         time.Time       // least broker time
	Enforced      bool            // only findings that the tenant wants enforced, and retractions of these
	Retracted     bool            // also retracted findings and the records that retract them
	Limit         int             // greatest number of findings, the newest ones; 0 means all
}

// StoredFinding is the row of a finding. Retracted says that a record retracts it: a finding of severity
// info under its rule, in its shard. An id may come again in the next incarnation of the log, and the
// admitter may publish findings of another severity.
type StoredFinding struct {
	storage.EvidenceRow
	Retracted bool
}

// LatestFindings returns the findings that match f, in log order.
func (r *Reader) LatestFindings(ctx context.Context, tenant string, f FindingFilter) ([]StoredFinding, error) {
	query := `SELECT shard, seq, (shard, rule, finding_id) IN (
			SELECT shard, rule, withdraws FROM findings WHERE tenant IN ({tenant:String}, '') AND withdraws != '' AND severity = 'info'
		) AS taken_back
		FROM findings
		WHERE tenant IN ({tenant:String}, '') AND ({session:String} = '' OR session = {session:String}) AND broker_time >= {since:DateTime64(9, 'UTC')}
			AND ({rule:String} = '' OR rule = {rule:String}) AND (empty({severities:Array(String)}) OR severity IN ({severities:Array(String)})
				OR (shard, rule, withdraws) IN (SELECT shard, rule, finding_id FROM findings WHERE tenant IN ({tenant:String}, '') AND severity IN ({severities:Array(String)})))
			AND (NOT {enforced:UInt8} OR enforced OR (shard, rule, withdraws) IN (SELECT shard, rule, finding_id FROM findings WHERE tenant IN ({tenant:String}, '') AND enforced))
			AND ({withdrawn:UInt8} OR (NOT taken_back AND withdraws = ''))
		ORDER BY broker_time DESC, shard DESC, seq DESC` + conn.LimitClause(f.Limit)
	return r.findingsAt(ctx, query, conn.Param("tenant", tenant), conn.Param("session", f.Session), conn.TimeParam("since", f.Since), conn.Param("rule", f.Rule),
		conn.Param("severities", severitiesFrom(f.Severity)), conn.Param("enforced", boolInt(f.Enforced)), conn.Param("withdrawn", boolInt(f.Retracted)))
}

// severitiesFrom are a severity and those above it; of "" none.
func severitiesFrom(least events.Severity) []string {
	names := []string{}
	for i := slices.Index(events.Severities, least); 0 <= i && i < len(events.Severities); i++ {
		names = append(names, string(events.Severities[i]))
	}
	return names
}

func boolInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

// findingsAt runs a query for (shard, seq, retracted) and returns the evidence rows at these
// places, in log order.
func (r *Reader) findingsAt(ctx context.Context, query string, args ...any) ([]StoredFinding, error) {
	type place struct {
		shard string
		seq   uint64
	}
	marks := map[place]bool{}
	keys, err := ext.NewTable("wanted", ext.Column("s", "String"), ext.Column("q", "UInt64"))
	if err != nil {
		return nil, err
	}
	err = r.pool.EachRow(ctx, query, func(row driver.Rows) error {
		var p place
		var mark bool
		if err := row.Scan(&p.shard, &p.seq, &mark); err != nil {
			return err
		}
		marks[p] = mark
		return keys.Append(p.shard, p.seq)
	}, args...)
	if err != nil || len(marks) == 0 {
		return nil, err
	}
	var list []StoredFinding
	ctx = clickhouse.Context(conn.QueryContext(ctx), clickhouse.WithExternalTable(keys))
	err = r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence WHERE (shard, seq) IN (SELECT s, q FROM wanted) ORDER BY shard, seq`,
		rows.Each(func(r storage.EvidenceRow) error {
			list = append(list, StoredFinding{r, marks[place{r.Shard, r.Seq}]})
			return nil
		}))
	return list, err
}

// SessionsWithPrefix lists up to most names of a tenant's sessions that begin with a prefix, in
// alphabetical order.
func (r *Reader) SessionsWithPrefix(ctx context.Context, tenant, prefix string, most int) ([]string, error) {
	return conn.Column[string](ctx, r.pool, `SELECT DISTINCT session FROM evidence_chain
		WHERE tenant = {tenant:String} AND startsWith(session, {prefix:String}) AND session != '' ORDER BY session`+conn.LimitClause(most),
		conn.Param("tenant", tenant), conn.Param("prefix", prefix))
}

// CallKey identifies the calls that share one tool call id. Calls without one are told apart by Tool
// and EventID, the event that asked for the verdict; both are empty with an id.
type CallKey struct{ Session, Source, ToolCallID, Tool, EventID string }

// LatestVerdicts returns the last verdict on each tool call id of the sessions, and on each tool and
// event without one.
func (r *Reader) LatestVerdicts(ctx context.Context, tenant string, sessions []string) (map[CallKey]Verdict, error) {
	list := map[CallKey]Verdict{}
	err := r.pool.EachRow(ctx, `SELECT session, source, tool_call_id, if(tool_call_id = '', tool, '') AS of_tool, if(tool_call_id = '', event_id, '') AS of_event,
			argMax(verdict, (shard, seq)), max(shard), argMax(seq, (shard, seq)) FROM decisions
		WHERE tenant = {tenant:String} AND session IN ({sessions:Array(String)}) GROUP BY session, source, tool_call_id, of_tool, of_event`,
		func(row driver.Rows) error {
			var k CallKey
			var v Verdict
			err := row.Scan(&k.Session, &k.Source, &k.ToolCallID, &k.Tool, &k.EventID, &v.Verdict, &v.Shard, &v.Seq)
			list[k] = v
			return err
		}, conn.Param("tenant", tenant), conn.Param("sessions", sessions))
	return list, err
}

// Verdict is a verdict and its place in the log.
type Verdict struct {
	Verdict, Shard string
	Seq            uint64
}
