package conn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// EachRow runs a query and calls fn for each row. An error of fn ends the query and is returned
// unchanged.
func (p *Pool) EachRow(ctx context.Context, query string, fn func(driver.Rows) error, args ...any) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := p.conn.Query(QueryContext(ctx), query, args...)
	if err != nil {
		return p.QueryError(err)
	}
	defer func() {
		if err != nil {
			cancel() // otherwise Close reads the rest of the answer
		}
		if closed := p.QueryError(rows.Close()); err == nil { // otherwise it is the same error again
			err = closed
		}
	}()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return p.QueryError(rows.Err())
}

// Column returns the values of an answer with one column.
func Column[T any](ctx context.Context, p *Pool, query string, args ...any) (list []T, err error) {
	err = p.EachRow(ctx, query, func(row driver.Rows) error {
		var v T
		err := row.Scan(&v)
		list = append(list, v)
		return err
	}, args...)
	return list, err
}

// ErrDamaged says that ClickHouse could not read rows that it had stored.
var ErrDamaged = errors.New("stored rows are damaged on ClickHouse's disk: copy its data directory as it is, then restore a backup (docs/operating.md)")

// damageCodes are ClickHouse's error codes for damaged files, with their meaning.
var damageCodes = map[int32]string{
	40: "a checksum does not match", 246: "corrupted data", 271: "a block cannot be decompressed", 228: "a file has an unexpected size",
	107: "a file is missing", 27: "a file cannot be parsed", 33: "a file ends too early",
}

// passingCodes are ClickHouse's error codes of a server that stops (ABORTED, QUERY_WAS_CANCELLED),
// or is short of something for the moment (TOO_MANY_SIMULTANEOUS_QUERIES, MEMORY_LIMIT_EXCEEDED).
var passingCodes = []int32{236, 394, 202, 241}

// IsLasting reports whether the server answered a query with an error that it would give again.
func IsLasting(err error) bool {
	var refused *clickhouse.Exception
	return errors.Is(err, ErrDamaged) || errors.As(err, &refused) && !slices.Contains(passingCodes, refused.Code)
}

// IsMissing reports whether the server answered that it has no such database or table.
func IsMissing(err error) bool {
	var refused *clickhouse.Exception
	return errors.As(err, &refused) && (refused.Code == codeUnknownDatabase || refused.Code == codeUnknownTable)
}

// Exec runs a statement.
func (p *Pool) Exec(ctx context.Context, statement string, args ...any) error {
	return p.conn.Exec(ctx, statement, args...)
}

// QueryRow runs a query with one row of answer.
func (p *Pool) QueryRow(ctx context.Context, query string, args ...any) driver.Row {
	return p.conn.QueryRow(ctx, query, args...)
}

// Select reads the rows of an answer into a slice of structs with tags `ch`.
func (p *Pool) Select(ctx context.Context, into any, query string, args ...any) error {
	return p.QueryError(p.conn.Select(QueryContext(ctx), into, query, args...))
}

// PrepareBatch begins an insert.
func (p *Pool) PrepareBatch(ctx context.Context, statement string) (driver.Batch, error) {
	return p.conn.PrepareBatch(ctx, statement)
}

// QueryError adds the server's name to a query's error. For a damaged file it names the table
// but does not repeat ClickHouse's message.
func (p *Pool) QueryError(err error) error {
	if err == nil {
		return nil
	}
	var refused *clickhouse.Exception
	if errors.As(err, &refused) && damageCodes[refused.Code] != "" {
		return fmt.Errorf("querying %s: %s in %s: %w", p.ServerName(), damageCodes[refused.Code], tableIn(refused.Message), ErrDamaged)
	}
	return fmt.Errorf("querying %s: %w", p.ServerName(), err)
}

var tableName = regexp.MustCompile(`\bin table ([A-Za-z0-9_.]{1,128})`)

// tableIn returns the table that an error of ClickHouse names.
func tableIn(message string) string {
	if m := tableName.FindStringSubmatch(message); m != nil {
		return "table " + m[1]
	}
	return "a table"
}
