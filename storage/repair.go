package storage

import (
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// derivedTable is a table that a materialized view fills from evidence.
type derivedTable struct {
	name, view string
	// form is the number that the view writes into the column form; rows with a
	// lower one were made by an earlier view and are made anew. 0 means that the
	// table has no such column.
	form uint8
}

// derived lists the tables that materialized views fill from evidence.
var derived = []derivedTable{
	{name: "evidence_chain", view: "evidence_chain_mv2"},
	{name: "decisions", view: "decisions_mv2", form: 2},
	{name: "calls", view: "calls_mv2", form: 2},
	{name: "findings", view: "findings_mv2", form: 2},
	{name: "approvals", view: "approvals_mv2", form: 2},
	{name: "changes", view: "changes_mv", form: 2},
	{name: "redactions", view: "redactions_mv", form: 2},
}

// Repair makes the derived tables hold exactly what evidence of a shard says: it
// adds rows that are missing, takes out rows that are there twice or that evidence
// lacks, and makes those anew that a view of an earlier version made. It gives the
// number of rows added. It costs a scan of the shard's narrow columns. Inserts
// into evidence of the shard that are still under way are ended first, so only
// the shard's one writer may call it; it should before it asks for Position and
// SessionHeads.
func (db *DB) Repair(ctx context.Context, shard string) (added uint64, err error) {
	if added, err = db.repairFrom(ctx, shard, 0); err == nil {
		db.settled.repaired(shard)
	}
	return added, err
}

// repairFrom is Repair of the sequences from one on.
func (db *DB) repairFrom(ctx context.Context, shard string, from uint64) (added uint64, err error) {
	if err := db.quiesce(ctx, shard); err != nil {
		return 0, err
	}
	for _, table := range derived {
		n, err := db.repairTable(ctx, table, shard, from)
		if err != nil {
			return added, fmt.Errorf("repairing table %s of %s: %w", table.name, db.where(), err)
		}
		added += n
	}
	return added, nil
}

// repairWindow is how many sequences of a shard are compared, and where they
// differ looked at closely, at a time: what has to be held in memory does not grow
// with the shard.
const repairWindow = 1 << 20

// repairTable compares sums over windows of a shard, and mends the windows in
// which they differ.
func (db *DB) repairTable(ctx context.Context, table derivedTable, shard string, from uint64) (added uint64, err error) {
	r := tableRepair{db: db, table: table, shard: shard, form: "0"}
	if table.form > 0 {
		r.form = "form"
	}
	if r.view, r.columns, err = db.definition(ctx, table); err != nil {
		return 0, err
	}
	sums := func(source string) string {
		return fmt.Sprintf("SELECT intDiv(seq, %d) AS w, sum(cityHash64(seq, %s)) AS sum, count() AS n FROM %s WHERE shard = {shard:String} AND seq >= %d GROUP BY w", repairWindow, r.form, source, from)
	}
	var windows []uint64
	if err := db.conn.QueryRow(ctx, fmt.Sprintf("SELECT arraySort(groupUniqArray(w)) FROM (SELECT w FROM (%s UNION ALL %s) GROUP BY w HAVING count() != 2 OR min(sum) != max(sum) OR min(n) != max(n))",
		sums(table.name), sums("("+r.view+")")), arg("shard", shard)).Scan(&windows); err != nil {
		return 0, err
	}
	for _, w := range windows {
		n, err := r.mend(ctx, max(from, w*repairWindow), (w+1)*repairWindow-1)
		if err != nil {
			return added, err
		}
		added += n
	}
	return added, nil
}

// tableRepair is the repair of one table.
type tableRepair struct {
	db      *DB
	table   derivedTable
	shard   string
	view    string   // the query that fills the table
	columns []string // of the table
	form    string   // what tells rows of an earlier view
}

// mend makes a window of a table what evidence says.
func (r tableRepair) mend(ctx context.Context, first, last uint64) (added uint64, err error) {
	if err := r.takeOut(ctx, first, last); err != nil {
		return 0, err
	}
	within := fmt.Sprintf("shard = {shard:String} AND seq BETWEEN %d AND %d", first, last)
	missing := fmt.Sprintf("FROM (%s) WHERE %s AND seq NOT IN (SELECT seq FROM %s WHERE %s)", r.view, within, r.table.name, within)
	if err := r.db.conn.QueryRow(ctx, "SELECT count() "+missing, arg("shard", r.shard)).Scan(&added); err != nil || added == 0 {
		return 0, err
	}
	list := "`" + strings.Join(r.columns, "`, `") + "`"
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(insertSettings(randomToken())))
	return added, r.db.conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s %s", r.table.name, list, list, missing), arg("shard", r.shard))
}

// takeOut removes the rows of a stretch of the window in which some are wrong:
// there more often than evidence says, or made by an earlier view. Those that are
// right come back with what is missing.
func (r tableRepair) takeOut(ctx context.Context, first, last uint64) error {
	rows := func(have int, from string) string {
		return fmt.Sprintf("SELECT seq, %s AS form, %d AS have FROM %s WHERE shard = {shard:String} AND seq BETWEEN %d AND %d", r.form, have, from, first, last)
	}
	wrong := fmt.Sprintf("SELECT seq FROM (%s UNION ALL %s) GROUP BY seq, form HAVING sum(have) > 0", rows(1, r.table.name), rows(-1, "("+r.view+")"))
	var n, from, to uint64
	if err := r.db.conn.QueryRow(ctx, "SELECT count(), min(seq), max(seq) FROM ("+wrong+")", arg("shard", r.shard)).Scan(&n, &from, &to); err != nil || n == 0 {
		return err
	}
	statement := fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND seq BETWEEN %d AND %d", r.table.name, sqlString(r.shard), from, to)
	return r.db.conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 2})), statement)
}

// definition gives the query of a table's view, and the table's columns.
func (db *DB) definition(ctx context.Context, table derivedTable) (query string, columns []string, err error) {
	err = db.conn.QueryRow(ctx, `SELECT as_select FROM system.tables WHERE database = currentDatabase() AND name = {view:String}`,
		arg("view", table.view)).Scan(&query)
	if err == nil {
		err = db.conn.QueryRow(ctx, `SELECT groupArray(name) FROM (SELECT name FROM system.columns
			WHERE database = currentDatabase() AND table = {table:String} ORDER BY position)`, arg("table", table.name)).Scan(&columns)
	}
	return query, columns, err
}
