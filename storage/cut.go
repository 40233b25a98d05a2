package storage

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/mod/sumdb/tlog"
)

// DeleteAfter takes away the rows of a shard behind a sequence, from the evidence, the
// derived tables and the tree, so that its writer can make them again. ClickHouse
// forgets with them which inserts it has seen: it would drop the new ones as
// repetitions. The caller must be the owner of the database, and no writer of the
// shard may run.
func (db *DB) DeleteAfter(ctx context.Context, shard string, seq uint64) error {
	type part struct{ table, condition string }
	parts := []part{{"evidence", fmt.Sprintf("seq > %d", seq)}, {"tree_nodes", fmt.Sprintf("idx >= %d", tlog.StoredHashCount(int64(seq)))}}
	for _, t := range derivedTables {
		parts = append(parts, part{t.name, fmt.Sprintf("seq > %d", seq)})
	}
	for _, p := range parts {
		for _, statement := range []string{
			fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND %s", p.table, sqlString(shard), p.condition),
			fmt.Sprintf("ALTER TABLE %s MODIFY SETTING non_replicated_deduplication_window = 0", p.table),
			fmt.Sprintf("ALTER TABLE %s MODIFY SETTING non_replicated_deduplication_window = 10000", p.table),
		} {
			if err := db.conn.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 2}), statement); err != nil {
				return fmt.Errorf("cutting table %s of %s: %w", p.table, db.serverName(), err)
			}
		}
	}
	return nil
}
