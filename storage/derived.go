package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// The derived tables are indexes. No hash covers them: a user with write access can delete,
// change and invent rows there. CompareDerived therefore computes their rows again from the
// texts of evidence, which a verification proves, and compares row by row.

// viewStatement matches the statements of the migrations that make views.
var viewStatement = regexp.MustCompile(`(?s)CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO \w+ AS\n(.*?);\n`)

// viewQueries maps each view to its query in the migrations. The queries on the server are
// not used, because a user that may alter tables may alter those too.
var viewQueries = sync.OnceValues(func() (map[string]string, error) {
	queries := map[string]string{}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	for _, name := range files {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, m := range viewStatement.FindAllSubmatch(text, -1) {
			queries[string(m[1])] = string(m[2])
		}
	}
	return queries, err
})

// DerivedRow describes how a derived table differs at one sequence from the rows that the
// texts of evidence give.
type DerivedRow struct {
	Table, Shard string
	Seq          uint64
	// Lacks is the number of rows that the evidence gives and the table does not have. Extra is
	// the number of rows that the table has and the evidence does not give. A changed row
	// makes both greater than zero.
	Lacks, Extra uint64
	// NoText says that evidence has the record without its text.
	NoText bool
}

// evidenceTexts replaces the table evidence in the queries of views: the rows within a
// condition. Columns that are copies of something in the text are read from the text; of a
// row without a text only evidence_chain has a row. Tenant, session, kind, subject and time
// stay columns, which a verification compares with the text.
const evidenceTexts = `(SELECT tenant, session, shard, seq, kind, subject, broker_time, record, record_hash, expiry,
		if(record = '', session_index, JSONExtract(record, 'session_index', 'Nullable(UInt64)')) AS session_index,
		position(record, '"redactions":[{') > 0 AS redacted
	FROM evidence WHERE %s) AS evidence
`

// derivedQuery returns the query for the differences of a table within a condition on shard
// and seq.
func derivedQuery(table derivedTable, within string) (string, error) {
	queries, err := viewQueries()
	if err != nil {
		return "", err
	}
	columns, err := viewColumns(queries[table.view])
	if err != nil {
		return "", fmt.Errorf("view %s of the migrations: %w", table.view, err)
	}
	texts := within
	if table.name != "evidence_chain" { // the other tables have no rows of expired records
		texts += " AND record != ''"
	}
	again := strings.Replace(queries[table.view]+"\n", "FROM evidence\n", "FROM "+fmt.Sprintf(evidenceTexts, texts), 1)
	list := "`" + strings.Join(columns, "`, `") + "`"
	return fmt.Sprintf(`SELECT seq, sumIf(n, n > 0) AS lacks, -sumIf(n, n < 0) AS extra FROM (
		SELECT seq, sum(side) AS n FROM (
			SELECT %[1]s, toInt64(1) AS side FROM (%[2]s)
			UNION ALL
			SELECT %[1]s, toInt64(-1) AS side FROM %[3]s WHERE %[4]s
		) GROUP BY %[1]s HAVING n != 0
	) GROUP BY seq ORDER BY seq`, list, again, table.name, within), nil
}

// columnName matches the name of a column in the outermost SELECT of a view.
var columnName = regexp.MustCompile("(?:\\bAS )?`?([\\w.]+)`?$")

// viewColumns lists the columns that a view's query fills.
func viewColumns(query string) (names []string, err error) {
	const begin = "SELECT"
	if !strings.HasPrefix(query, begin) {
		return nil, errors.New("no query that begins with SELECT")
	}
	depth, text, item := 0, strings.TrimPrefix(query, begin), ""
	add := func() error {
		m := columnName.FindStringSubmatch(strings.TrimSpace(item))
		if m == nil {
			return fmt.Errorf("no name in %.80q", item)
		}
		names, item = append(names, m[1]), ""
		return nil
	}
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0 && c == ',':
			if err := add(); err != nil {
				return nil, err
			}
			continue
		case depth == 0 && strings.HasPrefix(text[i:], "\nFROM"):
			return names, add()
		}
		item += string(c)
	}
	return nil, errors.New("no FROM")
}

// CompareDerived calls fn for each sequence between from and to (both included) of a shard where a
// derived table differs from the texts of evidence, table by table. tables names the tables
// to compare; none means all. The name evidence stands for the columns of evidence that
// copy parts of the text. The server computes and holds the rows of the whole range, so the
// caller should bound it. Rows that are being inserted or deleted also count as differences.
func (db *DB) CompareDerived(ctx context.Context, shard string, from, to uint64, tables []string, fn func(DerivedRow) error) error {
	wanted := func(name string) bool { return len(tables) == 0 || slices.Contains(tables, name) }
	within := fmt.Sprintf("shard = %s AND seq BETWEEN %d AND %d", sqlString(shard), from, to)
	var found []DerivedRow
	for _, table := range derivedTables {
		if !wanted(table.name) {
			continue
		}
		query, err := derivedQuery(table, within)
		if err != nil {
			return err
		}
		err = db.eachRow(ctx, query, func(r driver.Rows) error {
			d := DerivedRow{Table: table.name, Shard: shard}
			var lacks, extra int64
			err := r.Scan(&d.Seq, &lacks, &extra)
			d.Lacks, d.Extra = uint64(lacks), uint64(extra)
			found = append(found, d)
			return err
		})
		if err != nil {
			return fmt.Errorf("comparing table %s: %w", table.name, err)
		}
	}
	if err := db.compareCopies(ctx, within, func(seq uint64) {
		found = append(found, DerivedRow{Table: "evidence", Shard: shard, Seq: seq, Lacks: 1, Extra: 1})
	}); err != nil {
		return err
	}
	if err := db.markTextless(ctx, within, found); err != nil {
		return err
	}
	for _, d := range found {
		if err := fn(d); err != nil {
			return err
		}
	}
	return nil
}

// compareCopies finds the rows of evidence with columns that differ from the text. It compares
// only the columns that a verification does not read.
func (db *DB) compareCopies(ctx context.Context, within string, fn func(seq uint64)) error {
	// NULL counts as a difference: a changed table may have other column types.
	err := db.eachRow(ctx, `SELECT seq FROM evidence WHERE `+within+` AND NOT coalesce(record = ''
			OR ifNull(toInt64(session_index), -1) = ifNull(JSONExtract(record, 'session_index', 'Nullable(Int64)'), -1)
				AND redacted = (position(record, '"redactions":[{') > 0) AND expiry = 0, false) ORDER BY seq`,
		func(r driver.Rows) error {
			var seq uint64
			err := r.Scan(&seq)
			fn(seq)
			return err
		})
	if err != nil {
		return fmt.Errorf("comparing the columns of table evidence: %w", err)
	}
	return nil
}

// markTextless sets NoText in the differences.
func (db *DB) markTextless(ctx context.Context, within string, found []DerivedRow) error {
	if len(found) == 0 {
		return nil
	}
	textless := map[uint64]bool{}
	err := db.eachRow(ctx, `SELECT seq FROM evidence WHERE `+within+` AND record = ''`, func(r driver.Rows) error {
		var seq uint64
		err := r.Scan(&seq)
		textless[seq] = true
		return err
	})
	for i := range found {
		found[i].NoText = textless[found[i].Seq]
	}
	return err
}

// inComparison is true of the rows that CompareDerived can see in a full comparison of every
// shard. It is false of a row with a shard or sequence that is NULL or no number.
const inComparison = "coalesce(toString(shard) IN (SELECT DISTINCT toString(shard) FROM evidence) AND seq BETWEEN 0 AND 18446744073709551615, false)"

// StrayDerived lists the rows of derived tables that CompareDerived cannot see: by table, the
// shards that evidence has no rows of, and rows without a valid shard or sequence.
func (db *DB) StrayDerived(ctx context.Context) (list []DerivedRow, err error) {
	for _, table := range derivedTables {
		err := db.eachRow(ctx, `SELECT coalesce(toString(shard), '') AS s, toUInt64(coalesce(min(seq), 0)), count() FROM `+table.name+` WHERE NOT `+inComparison+` GROUP BY s ORDER BY s`,
			func(r driver.Rows) error {
				d := DerivedRow{Table: table.name}
				err := r.Scan(&d.Shard, &d.Seq, &d.Extra)
				list = append(list, d)
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
