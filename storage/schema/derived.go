package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage/conn"
)

// The derived tables and the views of them are indexes. No hash covers them: a user with write
// access can delete, change and invent rows there, and replace a view. Compare therefore computes
// their rows again from the texts of evidence, which a verification proves, and compares row by row.

// DerivedRow describes how a derived table or a record view differs at one sequence from the rows that the
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

// evidenceTexts replaces the table evidence in the queries of derived tables: the rows within a
// condition. Columns that are copies of something in the text are read from the text; of a
// row without a text only evidence_chain has a row. Tenant, session, kind, subject and time
// stay columns, which a verification compares with the text.
const evidenceTexts = `(SELECT tenant, session, shard, seq, kind, subject, broker_time, record, record_hash, expiry,
		if(record = '', session_index, JSONExtract(record, 'session_index', 'Nullable(UInt64)')) AS session_index,
		position(record, '"redactions":[{') > 0 AS redacted
	FROM evidence WHERE %s) AS evidence
`

// derivedQuery returns the query for the differences of a table or view within a condition on shard
// and seq. It groups by one tuple of all columns: grouping by fifty columns takes the server
// four times the processor time, most of it for planning.
func derivedQuery(name, within string) (string, error) {
	query, columns, err := definition(name)
	if err != nil {
		return "", err
	}
	texts := within
	if name != "evidence_chain" { // the others have no rows of expired records
		texts += " AND record != ''"
	}
	again := strings.Replace(query+"\n", "FROM evidence\n", "FROM "+fmt.Sprintf(evidenceTexts, texts), 1)
	row := "tuple(`" + strings.Join(columns, "`, `") + "`)"
	return fmt.Sprintf(`SELECT seq, sumIf(n, n > 0) AS lacks, -sumIf(n, n < 0) AS extra FROM (
		SELECT seq, row, sum(side) AS n FROM (
			SELECT seq, %[1]s AS row, toInt64(1) AS side FROM (%[2]s)
			UNION ALL
			SELECT seq, %[1]s AS row, toInt64(-1) AS side FROM %[3]s WHERE %[4]s
		) GROUP BY seq, row HAVING n != 0
	) GROUP BY seq ORDER BY seq`, row, again, name, within), nil
}

// Compare calls fn for each sequence between from and to (both included) of a shard where a derived
// table or record view differs from the texts of evidence, one after the other. names lists those to
// compare; none means all that auditors read: the record views, and not the table under them. The
// name evidence stands for the columns of evidence that copy parts of the text. The server computes
// and holds the rows of the whole range, so the caller should bound it. Rows that are being inserted
// or deleted also count as differences.
func Compare(ctx context.Context, p *conn.Pool, shard string, from, to uint64, names []string, fn func(DerivedRow) error) error {
	if len(names) == 0 {
		names = auditedNames
	}
	within := fmt.Sprintf("shard = %s AND seq BETWEEN %d AND %d", conn.QuoteString(shard), from, to)
	var found []DerivedRow
	for _, name := range names {
		if name == "evidence" {
			continue
		}
		query, err := derivedQuery(name, within)
		if err != nil {
			return err
		}
		err = p.EachRow(ctx, query, func(r driver.Rows) error {
			d := DerivedRow{Table: name, Shard: shard}
			var lacks, extra int64
			err := r.Scan(&d.Seq, &lacks, &extra)
			d.Lacks, d.Extra = uint64(lacks), uint64(extra)
			found = append(found, d)
			return err
		})
		if err != nil {
			return fmt.Errorf("comparing table %s: %w", name, err)
		}
	}
	changed, err := changedCopies(ctx, p, within)
	if err != nil {
		return err
	}
	for _, seq := range changed {
		found = append(found, DerivedRow{Table: "evidence", Shard: shard, Seq: seq, Lacks: 1, Extra: 1})
	}
	if err := markTextless(ctx, p, within, found); err != nil {
		return err
	}
	for _, d := range found {
		if err := fn(d); err != nil {
			return err
		}
	}
	return nil
}

// changedCopies lists the rows of evidence with columns that differ from the text. It compares
// only the columns that a verification does not read.
func changedCopies(ctx context.Context, p *conn.Pool, within string) ([]uint64, error) {
	// NULL counts as a difference: a changed table may have other column types.
	seqs, err := conn.Column[uint64](ctx, p, `SELECT seq FROM evidence WHERE `+within+` AND NOT coalesce(record = ''
			OR ifNull(toInt64(session_index), -1) = ifNull(JSONExtract(record, 'session_index', 'Nullable(Int64)'), -1)
				AND redacted = (position(record, '"redactions":[{') > 0) AND expiry = 0, false) ORDER BY seq`)
	if err != nil {
		return nil, fmt.Errorf("comparing the columns of table evidence: %w", err)
	}
	return seqs, nil
}

// markTextless sets NoText in the differences.
func markTextless(ctx context.Context, p *conn.Pool, within string, found []DerivedRow) error {
	if len(found) == 0 {
		return nil
	}
	textless, err := conn.Column[uint64](ctx, p, `SELECT seq FROM evidence WHERE `+within+` AND record = '' ORDER BY seq`)
	for i := range found {
		_, found[i].NoText = slices.BinarySearch(textless, found[i].Seq)
	}
	return err
}

// inComparison is true of the rows that Compare can see in a full comparison of every
// shard. It is false of a row with a shard or sequence that is NULL or no number.
const inComparison = "coalesce(toString(shard) IN (SELECT DISTINCT toString(shard) FROM evidence) AND seq BETWEEN 0 AND 18446744073709551615, false)"

// Stray lists the rows that auditors read and Compare cannot see: by table or view, the
// shards that evidence has no rows of, and rows without a valid shard or sequence.
func Stray(ctx context.Context, p *conn.Pool) (list []DerivedRow, err error) {
	for _, name := range auditedNames {
		err := p.EachRow(ctx, `SELECT coalesce(toString(shard), '') AS s, toUInt64(coalesce(min(seq), 0)), count() FROM `+name+` WHERE NOT `+inComparison+` GROUP BY s ORDER BY s`,
			func(r driver.Rows) error {
				d := DerivedRow{Table: name}
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
