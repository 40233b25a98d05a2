package storage

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Question is one of the questions that auditors ask. Its statement uses query
// parameters, as clickhouse-client knows them too; the auditors' user and an
// auditor of one tenant (Auditor) may run it.
type Question struct {
	Name  string // short, for the command line
	Asks  string
	Needs []string // the parameters it has beside tenant and most, see Terms
	SQL   string
}

// QuestionMissing is the name of the question that is about the whole log, and not
// one tenant's records.
const QuestionMissing = "missing"

// QuestionParams are the parameters of questions. The zero Since and Until are no limits.
type QuestionParams struct {
	Tenant       string
	Agent        string // an agent, or the publisher it speaks through
	ID           string // of a decision, call or event, of a workflow or a mandate: what the question asks for
	Session      string // may be empty where a question has it: all
	Since, Until time.Time
	Most         int // rows at most, the first ones; 0 is DefaultMost
}

// DefaultMost is how many rows an answer has at most.
const DefaultMost = 1000

// optionalParams may be empty.
var optionalParams = []string{"since", "until", "session"}

// ErrMissingParams: a question lacks what it needs to be asked.
var ErrMissingParams = errors.New("the question needs more")

// Answer is what a question gives: values by column. Times are UTC.
type Answer struct {
	Columns []string
	Rows    [][]any
}

// Questions lists the questions in their order.
func Questions() []Question { return slices.Clone(questions) }

// FindQuestion finds a question by its name or its number, from "1" on.
func FindQuestion(name string) (Question, bool) {
	for i, q := range questions {
		if q.Name == name || fmt.Sprint(i+1) == name {
			return q, true
		}
	}
	return Question{}, false
}

// AnswerQuestion answers a question.
func (db *DB) AnswerQuestion(ctx context.Context, q Question, t QuestionParams) (a Answer, err error) {
	if t.Most <= 0 {
		t.Most = DefaultMost
	}
	if t.Until.IsZero() {
		t.Until = maxTime
	}
	given := map[string]string{"tenant": t.Tenant, "agent": t.Agent, "id": t.ID}
	for _, need := range append([]string{"tenant"}, q.Needs...) {
		if !slices.Contains(optionalParams, need) && given[need] == "" {
			return a, fmt.Errorf("%w: %s", ErrMissingParams, need)
		}
	}
	args := []any{queryParam("tenant", t.Tenant), queryParam("most", t.Most)}
	for _, need := range q.Needs {
		switch need {
		case "since":
			args = append(args, sinceArg(t.Since))
		case "until":
			args = append(args, clickhouse.DateNamed("until", t.Until.UTC(), clickhouse.NanoSeconds))
		case "session":
			args = append(args, queryParam("session", t.Session))
		default:
			args = append(args, queryParam(need, given[need]))
		}
	}
	err = db.eachRow(ctx, q.SQL, func(r driver.Rows) error {
		if a.Columns == nil {
			a.Columns = r.Columns()
		}
		row, err := anyRow(r)
		a.Rows = append(a.Rows, row)
		return err
	}, args...)
	return a, err
}

// anyRow reads a row of whatever types.
func anyRow(r driver.Rows) ([]any, error) {
	types := r.ColumnTypes()
	cells := make([]any, len(types))
	for i, t := range types {
		cells[i] = reflect.New(t.ScanType()).Interface()
	}
	if err := r.Scan(cells...); err != nil {
		return nil, err
	}
	for i, c := range cells {
		v := reflect.ValueOf(c).Elem()
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		cells[i] = v.Interface()
		if t, is := cells[i].(time.Time); is {
			cells[i] = t.UTC()
		}
	}
	return cells, nil
}
