package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// derivedTable is a table that a materialized view fills from evidence.
type derivedTable struct {
	name, view string
	// of is the condition of the view: which rows of evidence have a row here.
	of string
	// form is the number that the view writes into the column form; rows with a
	// lower one were made by an earlier view and are made anew. 0 means that the
	// table has no such column.
	form uint8
}

// derived lists the tables that materialized views fill from evidence. What the
// conditions say is also in the views; TestViewsAndConditionsAgree.
var derived = []derivedTable{
	{name: "evidence_chain", view: "evidence_chain_mv2", of: "session != '' OR session_index IS NOT NULL"},
	{name: "decisions", view: "decisions_mv2", of: "kind = 'decision'", form: 2},
	{name: "calls", view: "calls_mv3", of: "kind = 'call'", form: 3},
	{name: "findings", view: "findings_mv2", of: "kind = 'finding'", form: 2},
	{name: "approvals", view: "approvals_mv2", of: "kind = 'approval'", form: 2},
	{name: "changes", view: "changes_mv", of: "kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick'))", form: 2},
	{name: "redactions", view: "redactions_mv", of: "redacted OR kind = 'unparseable'", form: 2},
}

// Repair makes the derived tables hold exactly what evidence of a shard says: it
// adds rows that are missing, takes out rows that are there twice or that evidence
// lacks, and makes those anew that a view of an earlier version made. It gives the
// number of rows added. It costs a scan of the shard's narrow columns. Inserts
// into evidence of the shard that are still under way are ended first, so only
// the shard's one writer may call it; it should before it asks for Position and
// SessionHeads.
func (db *DB) Repair(ctx context.Context, shard string) (added uint64, err error) {
	if err := db.sameServer(ctx); err != nil {
		return 0, err
	}
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
	db.deriving.Lock()
	defer db.deriving.Unlock()
	differing, err := db.differing(ctx, shard, from)
	if err != nil {
		return 0, fmt.Errorf("comparing the derived tables of %s with the evidence: %w", db.where(), err)
	}
	for _, table := range derived {
		if len(differing[table.name]) == 0 {
			continue
		}
		n, err := db.repairTable(ctx, table, shard, from, differing[table.name])
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

// differing compares sums over windows of a shard, of all derived tables in one
// query: an auditor that starts waits for it, and so does its first commit. It
// gives the windows in which a table is not what the evidence says.
func (db *DB) differing(ctx context.Context, shard string, from uint64) (map[string][]uint64, error) {
	var sums []string
	for _, table := range derived {
		of, form, rows := table.of, "0", "0"
		if slices.Contains(expiringTables, table.name) { // what is expired is not missing
			of = "(" + of + ") AND expiry = 0"
		}
		if table.form > 0 {
			form, rows = strconv.Itoa(int(table.form)), "form"
		}
		for _, half := range [][3]string{{table.name, rows, "true"}, {"evidence", form, of}} {
			sums = append(sums, fmt.Sprintf("SELECT '%s' AS t, intDiv(seq, %d) AS w, sum(cityHash64(seq, toUInt8(%s))) AS sum, count() AS n FROM %s WHERE shard = {shard:String} AND seq >= %d AND (%s) GROUP BY w",
				table.name, repairWindow, half[1], half[0], from, half[2]))
		}
	}
	query := "SELECT t, arraySort(groupUniqArray(w)) FROM (SELECT t, w FROM (" + strings.Join(sums, " UNION ALL ") +
		") GROUP BY t, w HAVING count() != 2 OR min(sum) != max(sum) OR min(n) != max(n)) GROUP BY t"
	windows := map[string][]uint64{}
	err := db.each(ctx, query, func(r driver.Rows) error {
		var table string
		var list []uint64
		err := r.Scan(&table, &list)
		windows[table] = list
		return err
	}, arg("shard", shard))
	return windows, err
}

// repairTable mends the windows in which a table differs.
func (db *DB) repairTable(ctx context.Context, table derivedTable, shard string, from uint64, windows []uint64) (added uint64, err error) {
	r := tableRepair{db: db, table: table, shard: shard, form: "0"}
	if slices.Contains(expiringTables, table.name) { // what is expired must not be made anew
		r.settings = db.unexpired()
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(r.settings))
	if table.form > 0 {
		r.form = "form"
	}
	if r.view, r.columns, err = db.definition(ctx, table); err != nil {
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
	// settings are those under which evidence is read.
	settings clickhouse.Settings
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
	settings := insertSettings(randomToken())
	maps.Copy(settings, r.settings)
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings))
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

// definition gives the query of a table's view, as the migrations have it, and the
// table's columns.
func (db *DB) definition(ctx context.Context, table derivedTable) (query string, columns []string, err error) {
	queries, err := viewQueries()
	if err == nil {
		query = queries[table.view]
		err = db.conn.QueryRow(ctx, `SELECT groupArray(name) FROM (SELECT name FROM system.columns
			WHERE database = currentDatabase() AND table = {table:String} ORDER BY position)`, arg("table", table.name)).Scan(&columns)
	}
	return query, columns, err
}

// contentWindow is how many sequences RepairContents compares at a time.
const contentWindow = 1 << 15

// RepairContents makes the rows of the derived tables anew that say other than the
// texts of evidence, which Repair does not notice, up to a sequence. It gives their
// number. It reads every text, with one thread of the server, and is for beside the
// writing: up to that sequence all inserts must have been acknowledged.
func (db *DB) RepairContents(ctx context.Context, shard string, to uint64) (changed uint64, err error) {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_threads": 1}))
	for from := uint64(0); from <= to; from += contentWindow {
		n, err := db.repairContents(ctx, shard, from, min(to, from+contentWindow-1))
		if changed += n; err != nil {
			return changed, fmt.Errorf("repairing the derived tables of %s: %w", db.where(), err)
		}
	}
	return changed, nil
}

// tableNames lists the derived tables.
func tableNames() (names []string) {
	for _, table := range derived {
		names = append(names, table.name)
	}
	return names
}

func (db *DB) repairContents(ctx context.Context, shard string, from, to uint64) (changed uint64, err error) {
	db.deriving.Lock()
	defer db.deriving.Unlock()
	wrong, differs := map[string][]uint64{}, map[string]bool{}
	err = db.CompareDerived(ctx, shard, from, to, tableNames(), func(d DerivedRow) error {
		changed++
		if differs[d.Table] = true; d.Extra > 0 {
			wrong[d.Table] = append(wrong[d.Table], d.Seq)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, table := range derived {
		if len(wrong[table.name]) > 0 {
			statement := fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND seq IN (%s)", table.name, sqlString(shard), numbers(wrong[table.name]))
			if err := db.conn.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 2}), statement); err != nil {
				return 0, err
			}
		}
		if !differs[table.name] {
			continue
		}
		r := tableRepair{db: db, table: table, shard: shard, form: "0"}
		if slices.Contains(expiringTables, table.name) {
			r.settings = db.unexpired()
		}
		if table.form > 0 {
			r.form = "form"
		}
		if r.view, r.columns, err = db.definition(ctx, table); err != nil {
			return 0, err
		}
		if _, err := r.mend(clickhouse.Context(ctx, clickhouse.WithSettings(r.settings)), from, to); err != nil {
			return 0, err
		}
	}
	return changed, nil
}
