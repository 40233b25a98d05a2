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

// The derived tables are indexes: a user who may change them can delete, change and
// invent rows there, and no hash covers them. So they are made again from the texts
// of evidence, which a verification proves, and compared row by row.

// viewStatement finds the statements of the migrations that make views.
var viewStatement = regexp.MustCompile(`(?s)CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO \w+ AS\n(.*?);\n`)

// viewQueries gives the query of each view as the migrations have it. The query
// that the server has is not asked: who may alter tables may alter that, too.
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

// DerivedRow says how a derived table differs from what the texts of evidence give
// at one place.
type DerivedRow struct {
	Table, Shard string
	Seq          uint64
	// Lacks is how many rows the evidence gives that the table does not have. Extra
	// is how many the table has that the evidence does not give. Both are above zero
	// where a row was changed.
	Lacks, Extra uint64
	// NoText says that the record is in the evidence and has no text.
	NoText bool
}

// evidenceTexts is what views read instead of the table evidence: the rows of a
// stretch. What is a copy of something in the text is read from the text; of a row
// without one only the chain has a row. Tenant, session, kind, subject and time
// stay the columns, which a verification compares with the text.
const evidenceTexts = `(SELECT tenant, session, shard, seq, kind, subject, broker_time, record, record_hash, expiry,
		if(record = '', session_index, JSONExtract(record, 'session_index', 'Nullable(UInt64)')) AS session_index,
		position(record, '"redactions":[{') > 0 AS redacted
	FROM evidence WHERE %s) AS evidence
`

// derivedQuery gives the rows in which a table differs within a condition on shard
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
	if table.name != "evidence_chain" { // what was made from a text goes with it
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

// columnName finds the names of what the outermost SELECT of a view gives.
var columnName = regexp.MustCompile("(?:\\bAS )?`?([\\w.]+)`?$")

// viewColumns lists the columns that a view fills.
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

// CompareDerived gives fn every place from one sequence of a shard to another (both
// included) where a derived table is not what the texts of evidence give, table by
// table; tables names those that are compared, the table evidence for its own columns
// among them, and none stands for all. The server makes the rows again and compares; it holds those of the stretch
// meanwhile, so the stretch should be bounded. Rows that are being inserted or
// deleted meanwhile differ, too.
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

// compareCopies finds the rows of evidence whose columns of our own making differ
// from the text: those that a verification does not read.
func (db *DB) compareCopies(ctx context.Context, within string, fn func(seq uint64)) error {
	// What is NULL differs: a table may have other types than the migrations give it.
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

// markTextless notes which of the places have a record without a text.
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

// inComparison is true of the rows that CompareDerived sees when it is asked for all
// of every shard: of no row whose shard or sequence is NULL or no number.
const inComparison = "coalesce(toString(shard) IN (SELECT DISTINCT toString(shard) FROM evidence) AND seq BETWEEN 0 AND 18446744073709551615, false)"

// StrayDerived lists the shards that derived tables have rows of and evidence has
// none of, each with the table, and the rows that are at no place of a shard.
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
