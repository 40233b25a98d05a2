package write

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/schema"
)

// Repair makes the derived tables of a shard agree with its evidence: it adds missing rows,
// removes repeated rows and rows that evidence lacks, and makes rows of an earlier view's
// version again. It returns the number of rows added. It costs a scan of the shard's narrow
// columns. It first ends the inserts into the shard's evidence that are still running, so
// only the shard's one writer may call it. The writer should call it before Position and
// SessionHeads.
func (w *Writer) Repair(ctx context.Context, shard string) (added uint64, err error) {
	if err := w.checkRestart(ctx); err != nil {
		return 0, err
	}
	if added, err = w.repairFrom(ctx, shard, 0); err == nil {
		w.repairs.markRepaired(shard)
	}
	return added, err
}

// repairFrom is Repair from a sequence on.
func (w *Writer) repairFrom(ctx context.Context, shard string, from uint64) (added uint64, err error) {
	if err := w.endInserts(ctx, shard); err != nil {
		return 0, err
	}
	w.derivedMu.Lock()
	defer w.derivedMu.Unlock()
	differing, err := w.differingWindows(ctx, shard, from)
	if err != nil {
		return 0, fmt.Errorf("comparing the derived tables of %s with the evidence: %w", w.pool.ServerName(), err)
	}
	for _, table := range schema.DerivedTables {
		if len(differing[table.Name]) == 0 {
			continue
		}
		n, err := w.repairTable(ctx, table, shard, from, differing[table.Name])
		if err != nil {
			return added, fmt.Errorf("repairing table %s of %s: %w", table.Name, w.pool.ServerName(), err)
		}
		added += n
	}
	return added, nil
}

// repairWindow is the number of sequences that are compared, and repaired, at a time. It bounds
// memory independently of the size of the shard.
const repairWindow = 1 << 20

// differingWindows returns, by table, the windows of a shard in which the table differs from
// the evidence. It compares sums over windows, for all derived tables in one query, because
// the start of an auditor and its first commit wait for it.
func (w *Writer) differingWindows(ctx context.Context, shard string, from uint64) (map[string][]uint64, error) {
	var sums []string
	for _, table := range schema.DerivedTables {
		of, form, rows := table.Condition, "0", "0"
		if table.Expires { // derived rows of expired records are not missing
			of = "(" + of + ") AND expiry = 0"
		}
		if table.Version > 0 {
			form, rows = strconv.Itoa(int(table.Version)), "form"
		}
		for _, half := range [][3]string{{table.Name, rows, "true"}, {"evidence", form, of}} {
			sums = append(sums, fmt.Sprintf("SELECT '%s' AS t, intDiv(seq, %d) AS w, sum(cityHash64(seq, toUInt8(%s))) AS sum, count() AS n FROM %s WHERE shard = {shard:String} AND seq >= %d AND (%s) GROUP BY w",
				table.Name, repairWindow, half[1], half[0], from, half[2]))
		}
	}
	query := "SELECT t, arraySort(groupUniqArray(w)) FROM (SELECT t, w FROM (" + strings.Join(sums, " UNION ALL ") +
		") GROUP BY t, w HAVING count() != 2 OR min(sum) != max(sum) OR min(n) != max(n)) GROUP BY t"
	windows := map[string][]uint64{}
	err := w.pool.EachRow(ctx, query, func(row driver.Rows) error {
		var table string
		var list []uint64
		err := row.Scan(&table, &list)
		windows[table] = list
		return err
	}, conn.Param("shard", shard))
	return windows, err
}

// repairTable repairs the windows in which a table differs.
func (w *Writer) repairTable(ctx context.Context, table schema.DerivedTable, shard string, from uint64, windows []uint64) (added uint64, err error) {
	r, err := w.newTableRepair(ctx, table, shard)
	if err != nil {
		return 0, err
	}
	for _, window := range windows {
		n, err := r.repairRange(ctx, max(from, window*repairWindow), (window+1)*repairWindow-1)
		if err != nil {
			return added, err
		}
		added += n
	}
	return added, nil
}

// tableRepair is the repair of one table.
type tableRepair struct {
	pool             *conn.Pool
	table            schema.DerivedTable
	shard            string
	view             string   // the query that fills the table
	columns          []string // of the table
	versionCondition string   // the column that tells rows of an earlier view's version
	// settings apply to reads of evidence.
	settings clickhouse.Settings
}

func (w *Writer) newTableRepair(ctx context.Context, table schema.DerivedTable, shard string) (r tableRepair, err error) {
	r = tableRepair{pool: w.pool, table: table, shard: shard, versionCondition: "0"}
	if table.Expires { // derived rows of expired records must not be made again
		r.settings = w.hideExpired()
	}
	if table.Version > 0 {
		r.versionCondition = "form"
	}
	r.view, r.columns, err = schema.ViewDefinition(ctx, w.pool, table)
	return r, err
}

// repairRange repairs the rows of a table in a window.
func (r tableRepair) repairRange(ctx context.Context, first, last uint64) (added uint64, err error) {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(r.settings))
	if err := r.deleteWrongRows(ctx, first, last); err != nil {
		return 0, err
	}
	within := fmt.Sprintf("shard = {shard:String} AND seq BETWEEN %d AND %d", first, last)
	missing := fmt.Sprintf("FROM (%s) WHERE %s AND seq NOT IN (SELECT seq FROM %s WHERE %s)", r.view, within, r.table.Name, within)
	if err := r.pool.QueryRow(ctx, "SELECT count() "+missing, conn.Param("shard", r.shard)).Scan(&added); err != nil || added == 0 {
		return 0, err
	}
	list := "`" + strings.Join(r.columns, "`, `") + "`"
	settings := insertSettings(randomToken())
	maps.Copy(settings, r.settings)
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings))
	return added, r.pool.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s %s", r.table.Name, list, list, missing), conn.Param("shard", r.shard))
}

// deleteWrongRows deletes the rows of a table between the first and the last wrong one of a
// window. A row is wrong if it is there more often than evidence says, or if an earlier view
// made it. repairRange inserts the right rows again, together with the missing ones.
func (r tableRepair) deleteWrongRows(ctx context.Context, first, last uint64) error {
	rows := func(have int, from string) string {
		return fmt.Sprintf("SELECT seq, %s AS form, %d AS have FROM %s WHERE shard = {shard:String} AND seq BETWEEN %d AND %d", r.versionCondition, have, from, first, last)
	}
	wrong := fmt.Sprintf("SELECT seq FROM (%s UNION ALL %s) GROUP BY seq, form HAVING sum(have) > 0", rows(1, r.table.Name), rows(-1, "("+r.view+")"))
	var n, from, to uint64
	if err := r.pool.QueryRow(ctx, "SELECT count(), min(seq), max(seq) FROM ("+wrong+")", conn.Param("shard", r.shard)).Scan(&n, &from, &to); err != nil || n == 0 {
		return err
	}
	statement := fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND seq BETWEEN %d AND %d", r.table.Name, conn.QuoteString(r.shard), from, to)
	return r.pool.Exec(clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 2})), statement)
}

// contentWindow is the number of sequences that RepairContents compares at a time.
const contentWindow = 1 << 15

// RepairContents makes the derived rows up to a sequence again that differ in content from the
// texts of evidence, which Repair does not notice, and the columns of evidence that are copies of
// something in the text. It returns their number, without the rows that it deletes because their
// text is gone. It reads every text with one thread of the server, and may run beside the writer:
// all inserts up to that sequence must have been acknowledged.
func (w *Writer) RepairContents(ctx context.Context, shard string, to uint64) (changed uint64, err error) {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_threads": 1}))
	for from := uint64(1); from <= to; from += contentWindow { // the log's sequences begin at 1
		n, err := w.repairContents(ctx, shard, from, min(to, from+contentWindow-1))
		if changed += n; err != nil {
			return changed, fmt.Errorf("repairing the derived tables of %s: %w", w.pool.ServerName(), err)
		}
	}
	return changed, nil
}

func (w *Writer) repairContents(ctx context.Context, shard string, from, to uint64) (changed uint64, err error) {
	w.derivedMu.Lock()
	defer w.derivedMu.Unlock()
	wrong, differs := map[string][]uint64{}, map[string]bool{}
	err = schema.Compare(ctx, w.pool, shard, from, to, schema.TableNames(), func(d schema.DerivedRow) error {
		if !d.NoText || d.Lacks > 0 { // otherwise an expiry may be under way: it deletes the text first
			changed++
		}
		if differs[d.Table] = true; d.Extra > 0 {
			wrong[d.Table] = append(wrong[d.Table], d.Seq)
		}
		return nil
	})
	if err == nil && len(wrong["evidence"]) > 0 { // before the derived rows, which are made from them
		err = w.restoreCopies(ctx, shard, wrong["evidence"])
	}
	if err != nil {
		return 0, err
	}
	for _, table := range schema.DerivedTables {
		if len(wrong[table.Name]) > 0 {
			statement := fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND seq IN (%s)", table.Name, conn.QuoteString(shard), conn.NumberList(wrong[table.Name]))
			if err := w.pool.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 2}), statement); err != nil {
				return 0, err
			}
		}
		if !differs[table.Name] {
			continue
		}
		r, err := w.newTableRepair(ctx, table, shard)
		if err != nil {
			return 0, err
		}
		if _, err := r.repairRange(ctx, from, to); err != nil {
			return 0, err
		}
	}
	return changed, nil
}

// restoreCopies sets the columns of evidence that are copies of something in the text (see
// schema.Compare). The server makes the column redacted again because record is among the columns.
func (w *Writer) restoreCopies(ctx context.Context, shard string, seqs []uint64) error {
	statement := fmt.Sprintf("ALTER TABLE evidence UPDATE record = record, session_index = JSONExtract(record, 'session_index', 'Nullable(UInt64)'), expiry = 0 WHERE shard = %s AND record != '' AND seq IN (%s)",
		conn.QuoteString(shard), conn.NumberList(seqs))
	return w.pool.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 2}), statement)
}
