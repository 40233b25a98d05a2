package storage

import (
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// derived lists the tables that materialized views fill from evidence; the view
// of table T is T_mv.
var derived = []string{"evidence_chain", "decisions", "calls", "findings", "approvals"}

// Repair adds to the derived tables what evidence of a shard holds and they do
// not, and gives the number of rows added. It costs a scan of the shard's narrow
// columns. Inserts into evidence of the shard that are still under way are ended
// first, so only the shard's one writer may call it; it should before it asks
// for Position and SessionHeads.
func (db *DB) Repair(ctx context.Context, shard string) (added uint64, err error) {
	if err := db.quiesce(ctx, shard); err != nil {
		return 0, err
	}
	for _, table := range derived {
		n, err := db.repairTable(ctx, table, shard)
		if err != nil {
			return added, fmt.Errorf("repairing table %s of %s: %w", table, db.where(), err)
		}
		added += n
	}
	return added, nil
}

func (db *DB) repairTable(ctx context.Context, table, shard string) (uint64, error) {
	var definition string
	if err := db.conn.QueryRow(ctx, `SELECT as_select FROM system.tables WHERE database = currentDatabase() AND name = {view:String}`,
		arg("view", table+"_mv")).Scan(&definition); err != nil {
		return 0, err
	}
	var columns []string
	if err := db.conn.QueryRow(ctx, `SELECT groupArray(name) FROM (SELECT name FROM system.columns
		WHERE database = currentDatabase() AND table = {table:String} ORDER BY position)`, arg("table", table)).Scan(&columns); err != nil {
		return 0, err
	}
	missing := fmt.Sprintf("FROM (%s) WHERE shard = {shard:String} AND seq NOT IN (SELECT seq FROM %s WHERE shard = {shard:String})", definition, table)
	var n uint64
	if err := db.conn.QueryRow(ctx, "SELECT count() "+missing, arg("shard", shard)).Scan(&n); err != nil || n == 0 {
		return 0, err
	}
	list := "`" + strings.Join(columns, "`, `") + "`"
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(insertSettings(randomToken())))
	return n, db.conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s %s", table, list, list, missing), arg("shard", shard))
}
