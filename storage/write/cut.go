package write

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/schema"
)

// DeleteAfter deletes the rows of a shard after a sequence from the evidence, the derived
// tables and the tree, so that the writer can make them again. It also clears ClickHouse's
// de-duplication windows, which would otherwise drop the new inserts as repetitions. The
// caller must be the owner of the database, and no writer of the shard may run.
func (w *Writer) DeleteAfter(ctx context.Context, shard string, seq uint64) error {
	type part struct{ table, condition string }
	// The last leaf below a stored hash is the record of sequence (n + 1) * 2^level. If that is
	// after seq, the hash is deleted, because the new rows can give another one.
	parts := []part{{"evidence", fmt.Sprintf("seq > %d", seq)}, {"tree_hashes", fmt.Sprintf("bitShiftLeft(n + 1, level) > %d", seq)}}
	for _, t := range schema.DerivedTables {
		parts = append(parts, part{t.Name, fmt.Sprintf("seq > %d", seq)})
	}
	for _, p := range parts {
		for _, statement := range []string{
			fmt.Sprintf("ALTER TABLE %s DELETE WHERE shard = %s AND %s", p.table, conn.QuoteString(shard), p.condition),
			fmt.Sprintf("ALTER TABLE %s MODIFY SETTING non_replicated_deduplication_window = 0", p.table),
			fmt.Sprintf("ALTER TABLE %s MODIFY SETTING non_replicated_deduplication_window = 10000", p.table),
		} {
			if err := w.pool.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 2}), statement); err != nil {
				return fmt.Errorf("cutting table %s of %s: %w", p.table, w.pool.ServerName(), err)
			}
		}
	}
	return nil
}
