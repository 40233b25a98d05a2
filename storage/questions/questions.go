// Package questions holds the predefined questions of auditors and asks them. Begin with All and Ask.
package questions

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage/conn"
)

// Question is a predefined question of auditors. Its statement uses query parameters, which
// clickhouse-client supports too. The read-only user and an auditor of one tenant (engine.TenantReader)
// may run it.
type Question struct {
	Name  string // a short name for the command line
	Asks  string
	Says  string   // what the rows of an answer are
	Hides string   // what an auditor of one tenant is not shown, and why; may be empty
	Needs []string // its parameters besides tenant and most; see Params
	SQL   string
}

// Missing is the name of the only question about the whole log instead of one tenant's
// records.
const Missing = "missing"

// Params are the parameters of questions. A zero Since or Until sets no limit.
type Params struct {
	Tenant       string
	Agent        string // an agent, or the publisher it speaks through
	ID           string // of a decision, call, event, workflow or mandate, depending on the question
	Session      string // may be empty: all sessions
	Since, Until time.Time
	Most         int // greatest number of rows; 0 means DefaultMost
}

// DefaultMost is the default limit on the rows of an answer.
const DefaultMost = 1000

// optionalParams are the parameters that may be empty.
var optionalParams = []string{"since", "until", "session"}

// ErrMissingParams says that a question lacks a required parameter.
var ErrMissingParams = errors.New("the question needs more")

// Answer is the result of a question: values by column. Times are UTC.
type Answer struct {
	Columns []string
	Rows    [][]any // a cell without a value is nil
}

// All lists the questions in their order.
func All() []Question { return slices.Clone(questions) }

// Find finds a question by its name or its number, which starts at "1".
func Find(name string) (Question, bool) {
	for i, q := range questions {
		if q.Name == name || fmt.Sprint(i+1) == name {
			return q, true
		}
	}
	return Question{}, false
}

// Ask runs a question. It returns ErrMissingParams if a required parameter is empty.
func Ask(ctx context.Context, pool *conn.Pool, q Question, t Params) (a Answer, err error) {
	if t.Most <= 0 {
		t.Most = DefaultMost
	}
	if t.Until.IsZero() {
		t.Until = conn.MaxTime
	}
	given := map[string]string{"tenant": t.Tenant, "agent": t.Agent, "id": t.ID}
	for _, need := range append([]string{"tenant"}, q.Needs...) {
		if !slices.Contains(optionalParams, need) && given[need] == "" {
			return a, fmt.Errorf("%w: %s", ErrMissingParams, need)
		}
	}
	args := []any{conn.Param("tenant", t.Tenant), conn.Param("most", t.Most)}
	for _, need := range q.Needs {
		switch need {
		case "since":
			args = append(args, conn.TimeParam("since", t.Since))
		case "until":
			args = append(args, conn.TimeParam("until", t.Until))
		case "session":
			args = append(args, conn.Param("session", t.Session))
		default:
			args = append(args, conn.Param(need, given[need]))
		}
	}
	err = pool.EachRow(ctx, q.SQL, func(rows driver.Rows) error {
		if a.Columns == nil {
			a.Columns = rows.Columns()
		}
		row, err := anyRow(rows)
		a.Rows = append(a.Rows, row)
		return err
	}, args...)
	return a, err
}

// anyRow reads a row with any column types.
func anyRow(rows driver.Rows) ([]any, error) {
	types := rows.ColumnTypes()
	cells := make([]any, len(types))
	for i, t := range types {
		cells[i] = reflect.New(t.ScanType()).Interface()
	}
	if err := rows.Scan(cells...); err != nil {
		return nil, err
	}
	for i, c := range cells {
		v := reflect.ValueOf(c).Elem()
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() == reflect.Pointer {
			cells[i] = nil
			continue
		}
		cells[i] = v.Interface()
		if t, is := cells[i].(time.Time); is {
			cells[i] = t.UTC()
		}
	}
	return cells, nil
}
