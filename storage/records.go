package storage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Located is a record with its place in the log. Tenant and session of the
// record are those of its subject, not what the record says of itself.
type Located[T any] struct {
	Shard  string
	Seq    uint64
	Time   time.Time // broker time
	Record T
}

// place is what the typed tables have in common.
type place struct {
	Tenant     string    `ch:"tenant"`
	Session    string    `ch:"session"`
	Shard      string    `ch:"shard"`
	Seq        uint64    `ch:"seq"`
	BrokerTime time.Time `ch:"broker_time"`
}

const placeColumns = "tenant, session, shard, seq, broker_time"

// inSession and of select from a typed table; both put the log's order on it.
const (
	inSession = "tenant = {tenant:String} AND session = {session:String}"
	logOrder  = " ORDER BY shard, seq"
)

// Decisions gives the admission decisions of a session in log order.
func (db *DB) Decisions(ctx context.Context, tenant, session string) ([]Located[events.Decision], error) {
	return queryRecords(ctx, db, decisionTable, inSession, queryParam("tenant", tenant), queryParam("session", session))
}

// DecisionByID gives the decision with an id, wherever it is; more than one means
// that somebody forged one. ErrNotFound when there is none.
func (db *DB) DecisionByID(ctx context.Context, tenant, id string) ([]Located[events.Decision], error) {
	list, err := queryRecords(ctx, db, decisionTable, "tenant = {tenant:String} AND decision_id = {id:String}", queryParam("tenant", tenant), queryParam("id", id))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("decision %.64q of tenant %.64q: %w", id, tenant, ErrNotFound)
	}
	return list, err
}

// Calls gives the call records of a session in log order.
func (db *DB) Calls(ctx context.Context, tenant, session string) ([]Located[events.Call], error) {
	return queryRecords(ctx, db, callTable, inSession, queryParam("tenant", tenant), queryParam("session", session))
}

// Findings gives the findings about a session in log order.
func (db *DB) Findings(ctx context.Context, tenant, session string) ([]Located[events.Finding], error) {
	return queryRecords(ctx, db, findingTable, inSession, queryParam("tenant", tenant), queryParam("session", session))
}

// Approvals gives the approval records of a session in log order.
func (db *DB) Approvals(ctx context.Context, tenant, session string) ([]Located[events.Approval], error) {
	return queryRecords(ctx, db, approvalTable, inSession, queryParam("tenant", tenant), queryParam("session", session))
}

// ToolCall is everything recorded about one tool_call_id of a tenant, over all
// sessions and publishers: the ids are not unique.
type ToolCall struct {
	Decisions []Located[events.Decision]
	Calls     []Located[events.Call]
	Findings  []Located[events.Finding]
}

// ToolCall gathers what is known of a tool_call_id.
func (db *DB) ToolCall(ctx context.Context, tenant, toolCallID string) (t ToolCall, err error) {
	const where = "tenant = {tenant:String} AND tool_call_id = {id:String}"
	args := []any{queryParam("tenant", tenant), queryParam("id", toolCallID)}
	if t.Decisions, err = queryRecords(ctx, db, decisionTable, where, args...); err != nil {
		return t, err
	}
	if t.Calls, err = queryRecords(ctx, db, callTable, where, args...); err != nil {
		return t, err
	}
	t.Findings, err = queryRecords(ctx, db, findingTable, where, args...)
	return t, err
}

// recordTable reads one typed table: R is a row, T the record it makes.
type recordTable[R, T any] struct {
	name    string
	columns []string
	place   func(R) place
	record  func(R) T
}

func queryRecords[R, T any](ctx context.Context, db *DB, table recordTable[R, T], where string, args ...any) ([]Located[T], error) {
	var rows []R
	query := "SELECT " + placeColumns + ", `" + strings.Join(table.columns, "`, `") + "` FROM " + table.name + " WHERE " + where + logOrder
	if err := db.conn.Select(queryContext(ctx), &rows, query, args...); err != nil {
		return nil, db.queryError(err)
	}
	list := make([]Located[T], len(rows))
	for i, row := range rows {
		p := table.place(row)
		list[i] = Located[T]{p.Shard, p.Seq, p.BrokerTime.UTC(), table.record(row)}
	}
	return list, nil
}

// eventTime turns a nullable time into a record's.
func eventTime(t *time.Time) events.Time {
	if t == nil {
		return events.Time{}
	}
	return events.At(*t)
}

// elementAt gives element i of a parallel array, and the zero value where the
// array is shorter (it is not, unless somebody changed a row).
func elementAt[T any](list []T, i int) (v T) {
	if i < len(list) {
		v = list[i]
	}
	return v
}
