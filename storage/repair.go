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
	// condition is the condition of the view: which rows of evidence have a row here.
	condition string
	// version is the number that the view writes into the column form; rows with a
	// lower one were made by an earlier view and are made anew. 0 means that the
	// table has no such column.
	version uint8
}

// derivedTables lists the tables that materialized views fill from evidence. What the
// conditions say is also in the views; TestViewsAndConditionsAgree.
var derivedTables = []derivedTable{
	{name: "evidence_chain", view: "evidence_chain_mv2", condition: "session != '' OR session_index IS NOT NULL"},
	{name: "decisions", view: "decisions_mv2", condition: "kind = 'decision'", version: 2},
	{name: "calls", view: "calls_mv3", condition: "kind = 'call'", version: 3},
	{name: "findings", view: "findings_mv2", condition: "kind = 'finding'", version: 2},
	{name: "approvals", view: "approvals_mv2", condition: "kind = 'approval'", version: 2},
	{name: "changes", view: "changes_mv", condition: "kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick'))", version: 2},
	{name: "redactions", view: "redactions_mv", condition: "redacted OR kind = 'unparseable'", version: 2},
}

// Repair makes the derived tables hold exactly what evidence of a shard says: it
// adds rows that are missing, takes out rows that are there twice or that evidence
// lacks, and makes those anew that a view of an earlier version made. It gives the
// number of rows added. It costs a scan of the shard's narrow columns. Inserts
// into evidence of the shard that are still under way are ended first, so only
// the shard's one writer may call it; it should before it asks for Position and
// SessionHeads.
func (db *DB) Repair(ctx context.Context, shard string) (added uint64, err error) {
	if err := db.checkRestart(ctx); err != nil {
		return 0, err
	}
	if added, err = db.repairFrom(ctx, shard, 0); err == nil {
		db.repairs.markRepaired(shard)
	}
	return added, err
}

// repairFrom is Repair of the sequences from one on.
func (db *DB) repairFrom(ctx context.Context, shard string, from uint64) (added uint64, err error) {
	if err := db.endInserts(ctx, shard); err != nil {
		return 0, err
	}
	db.derivedMu.Lock()
	defer db.derivedMu.Unlock()
	differing, err := db.differingWindows(ctx, shard, from)
	if err != nil {
		return 0, fmt.Errorf("comparing the derived tables of %s with the evidence: %w", db.serverName(), err)
	}
	for _, table := range derivedTables {
		if len(differing[table.name]) == 0 {
			continue
		}
		n, err := db.repairTable(ctx, table, shard, from, differing[table.name])
		if err != nil {
			return added, fmt.Errorf("repairing table %s of %s: %w", table.name, db.serverName(), err)
		}
		added += n
	}
	return added, nil
}

// repairWindow is how many sequences of a shard are compared, and where they
// differ looked at closely, at a time: what has to be held in memory does not grow
// with the shard.
const repairWindow = 1 << 20

// differingWindows compares sums over windows of a shard, of all derived tables in one
// query: an auditor that starts waits for it, and so does its first commit. It
// gives the windows in which a table is not what the evidence says.
func (db *DB) differingWindows(ctx context.Context, shard string, from uint64) (map[string][]uint64, error) {
	var sums []string
	for _, table := range derivedTables {
		of, form, rows := table.condition, "0", "0"
		if slices.Contains(expiryTables, table.name) { // what is expired is not missing
			of = "(" + of + ") AND expiry = 0"
		}
		if table.version > 0 {
			form, rows = strconv.Itoa(int(table.version)), "form"
		}
		for _, half := range [][3]string{{table.name, rows, "true"}, {"evidence", form, of}} {
			sums = append(sums, fmt.Sprintf("SELECT '%s' AS t, intDiv(seq, %d) AS w, sum(cityHash64(seq, toUInt8(%s))) AS sum, count() AS n FROM %s WHERE shard = {shard:String} AND seq >= %d AND (%s) GROUP BY w",
				table.name, repairWindow, half[1], half[0], from, half[2]))
		}
	}
	query := "SELECT t, arraySort(groupUniqArray(w)) FROM (SELECT t, w FROM (" + strings.Join(sums, " UNION ALL ") +
		") GROUP BY t, w HAVING count() != 2 OR min(sum) != max(sum) OR min(n) != max(n)) GROUP BY t"
	windows := map[string][]uint64{}
	err := db.eachRow(ctx, query, func(r driver.Rows) error {
		var table string
		var list []uint64
		err := r.Scan(&table, &list)
		windows[table] = list
		return err
	}, queryParam("shard", shard))
	return windows, err
}

// repairTable mends the windows in which a table differs.
func (db *DB) repairTable(ctx context.Context, table derivedTable, shard string, from uint64, windows []uint64) (added uint64, err error) {
	r := tableRepair{db: db, table: table, shard: shard, versionCondition: "0"}
	if slices.Contains(expiryTables, table.name) { // what is expired must not be made anew
		r.settings = db.hideExpired()
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(r.settings))
	if table.version > 0 {
		r.versionCondition = "form"
	}
	if r.view, r.columns, err = db.viewDefinition(ctx, table); err != nil {
		return 0, err
	}
	for _, w := range windows {
		n, err := r.repairRange(ctx, max(from, w*repairWindow), (w+1)*repairWindow-1)
		if err != nil {
			return added, err
		}
		added += n
	}
	return added, nil
}

// tableRepair is the repair of one table.
type tableRepair struct {
	db               *DB
	table            derivedTable
	shard            string
	view             string   // the query that fills the table
	columns          []string // of the table
	versionCondition string   // what tells rows of an earlier view
	// settings are those under which evidence is read.
	settings clickhouse.Settings
}

// repairRange makes a window of a table what evidence says.
func (r tableRepair) repairRange(ctx context.Context, first, last uint64) (added uint64, err error) {
	if err := r.deleteWrongRows(ctx, first, last); err != nil {
		return 0, err
	}
	within := fmt.Sprintf("shard = {shard:String} AND seq BETWEEN %d AND %d", first, last)
	missing := fmt.Sprintf("FROM (%s) WHERE %s AND seq NOT IN (SELECT seq FROM %s WHERE %s)", r.view, within, r.table.name, within)
	if err := r.db.conn.QueryRow(ctx, "SELECT count() "+missing, queryParam("shard", r.shard)).Scan(&added); err != nil || added == 0 {
		return 0, err
	}
	list := "`" + strings.Join(r.columns, "`, `") + "`"
	settings := insertSettings(randomToken())
	maps.Copy(settings, r.settings)
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings))
	return added, r.db.conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s %s", r.table.name, list, list, missing), queryParam("shard", r.shard))
}

// deleteWrongRows removes the rows of a stretch of the window in which some are wrong:
// there more often than evidence says, or made by an earlier view. Those that are
// right come back with what is missing.
func (r tableRepair) deleteWrongRows(ctx context.Context, first, last uint64) error {
	rows := func(have int, from string) string {
		return fmt.Sprintf("SELECT seq, %s AS form, %d AS have FROM %s WHERE shard = {shard:String} AND seq BETWEEN %d AND %d", r.versionCondition, have, from, first, last)
	}
	wrong := fmt.Sprintf("SELECT seq FROM (%s UNION ALL %s) GROUP BY seq, form HAVING sum(have) > 0", rows(1, r.table.name), rows(-1, "("+r.view+")"))
	var n, from, to uint64
	if err := r.db.conn.QueryRow(ctx, "SELECT count(), min(seq), max(seq) FROM ("+wrong+")", queryParam("shard", r.shard)).Scan(&n, &from, &to); err != nil || n == 0 {
		return err
	}
	statement := fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND seq BETWEEN %d AND %d", r.table.name, sqlString(r.shard), from, to)
	return r.db.conn.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 2})), statement)
}

// viewDefinition gives the query of a table's view, as the migrations have it, and the
// table's columns.
func (db *DB) viewDefinition(ctx context.Context, table derivedTable) (query string, columns []string, err error) {
	queries, err := viewQueries()
	if err == nil {
		query = queries[table.view]
		err = db.conn.QueryRow(ctx, `SELECT groupArray(name) FROM (SELECT name FROM system.columns
			WHERE database = currentDatabase() AND table = {table:String} ORDER BY position)`, queryParam("table", table.name)).Scan(&columns)
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
			return changed, fmt.Errorf("repairing the derived tables of %s: %w", db.serverName(), err)
		}
	}
	return changed, nil
}

// tableNames lists the derived tables.
func tableNames() (names []string) {
	for _, table := range derivedTables {
		names = append(names, table.name)
	}
	return names
}

func (db *DB) repairContents(ctx context.Context, shard string, from, to uint64) (changed uint64, err error) {
	db.derivedMu.Lock()
	defer db.derivedMu.Unlock()
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
	for _, table := range derivedTables {
		if len(wrong[table.name]) > 0 {
			statement := fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND seq IN (%s)", table.name, sqlString(shard), numberList(wrong[table.name]))
			if err := db.conn.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 2}), statement); err != nil {
				return 0, err
			}
		}
		if !differs[table.name] {
			continue
		}
		r := tableRepair{db: db, table: table, shard: shard, versionCondition: "0"}
		if slices.Contains(expiryTables, table.name) {
			r.settings = db.hideExpired()
		}
		if table.version > 0 {
			r.versionCondition = "form"
		}
		if r.view, r.columns, err = db.viewDefinition(ctx, table); err != nil {
			return 0, err
		}
		if _, err := r.repairRange(clickhouse.Context(ctx, clickhouse.WithSettings(r.settings)), from, to); err != nil {
			return 0, err
		}
	}
	return changed, nil
}
