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
// caller must be the owner of the database, and no writer of the shard may run. If it fails, it
// can be called again: the evidence is deleted last.
func (w *Writer) DeleteAfter(ctx context.Context, shard string, seq uint64) error {
	for _, p := range partsAfter(shard, seq) {
		for _, statement := range p.deletion() {
			if err := w.pool.Exec(longQuery(ctx, clickhouse.Settings{"mutations_sync": 2}), statement); err != nil {
				return fmt.Errorf("cutting table %s of %s: %w", p.table, w.pool.ServerName(), err)
			}
		}
	}
	return nil
}

// tablePart is the rows of a table that meet a condition.
type tablePart struct{ table, condition string }

// partsAfter lists what a shard has after a sequence. The evidence comes last, because its last
// row is the position of the shard: as long as it is after seq, no auditor starts there.
func partsAfter(shard string, seq uint64) []tablePart {
	ofShard := "shard = " + conn.QuoteString(shard)
	rows := fmt.Sprintf("%s AND seq > %d", ofShard, seq)
	// The last leaf below a stored hash is the record of sequence (n + 1) * 2^level. If that is
	// after seq, the hash is deleted, because the new rows can give another one.
	parts := []tablePart{{"tree_hashes", fmt.Sprintf("%s AND bitShiftLeft(n + 1, level) > %d", ofShard, seq)}}
	for _, t := range schema.DerivedTables {
		parts = append(parts, tablePart{t.Name, rows})
	}
	return append(parts, tablePart{"evidence", rows})
}

// deletion is the statements that clear the de-duplication window of the table and delete the rows.
func (p tablePart) deletion() []string {
	return []string{
		fmt.Sprintf("ALTER TABLE %s MODIFY SETTING non_replicated_deduplication_window = 0", p.table),
		fmt.Sprintf("ALTER TABLE %s MODIFY SETTING non_replicated_deduplication_window = 10000", p.table),
		fmt.Sprintf("ALTER TABLE %s DELETE WHERE %s", p.table, p.condition),
	}
}
