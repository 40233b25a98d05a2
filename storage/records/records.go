// Package records reads the typed tables that materialized views fill from evidence: decisions,
// calls, findings and approvals, and which records a replay begins with. The tables are
// indexes: a user with write access can change them, and a verification compares them with
// the evidence. Begin with Reader.
package records

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Reader reads the typed tables. Its methods are safe for concurrent use.
type Reader struct{ pool *conn.Pool }

// New makes a reader over connections that the caller closes.
func New(pool *conn.Pool) *Reader { return &Reader{pool} }

// Located is a record with its place in the log. The tenant and session in Record are those of
// its subject, not those in its text.
type Located[T any] struct {
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

// DecisionByID returns the decision with an id, in any session. More than one means that one is
// forged. It returns storage.ErrNotFound if there is none.
func (r *Reader) DecisionByID(ctx context.Context, tenant, id string) ([]Located[events.Decision], error) {
	list, err := queryRecords(ctx, r.pool, decisionTable, "tenant = {tenant:String} AND decision_id = {id:String}", conn.Param("tenant", tenant), conn.Param("id", id))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("decision %.64q of tenant %.64q: %w", id, tenant, storage.ErrNotFound)
	}
	return list, err
}

// recordTable describes one typed table: R is a row, T the record that it makes.
type recordTable[R, T any] struct {
	name    string
	columns []string
	place   func(R) place
	record  func(R) T
}

func queryRecords[R, T any](ctx context.Context, pool *conn.Pool, table recordTable[R, T], where string, args ...any) ([]Located[T], error) {
	var rows []R
	query := "SELECT " + placeColumns + ", `" + strings.Join(table.columns, "`, `") + "` FROM " + table.name + " WHERE " + where + logOrder
	if err := pool.Select(ctx, &rows, query, args...); err != nil {
		return nil, err
	}
	list := make([]Located[T], len(rows))
	for i, row := range rows {
		p := table.place(row)
		list[i] = Located[T]{p.Shard, p.Seq, p.BrokerTime.UTC(), table.record(row)}
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
