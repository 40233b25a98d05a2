package write

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/schema"
)

// insertChanges inserts the rows of the table changes for a batch that evidence has. Most batches
// have none, and cost nothing. An error wraps ErrAmbiguous: CommitEvidence then repairs the table.
//
// The token keeps the rows of a competitor out that had the same token for its batch. It inserts nothing if evidence has rows behind the batch: another writer has followed this one
// and has repaired the table already, or will. What this statement inserts before the other
// writer's first rows, and after its Repair, is removed by that writer's repairAfterCommit.
func (w *Writer) insertChanges(ctx context.Context, token string, rows []storage.EvidenceRow) error {
	if !slices.ContainsFunc(rows, schema.ChangesHas) {
		return nil
	}
	shard, last := conn.QuoteString(rows[0].Shard), rows[len(rows)-1].Seq
	ctx = clickhouse.Context(ctx, clickhouse.WithQueryID(evidenceQueries(rows[0].Shard)+randomToken()))
	err := w.insertChangesWhere(ctx, token, fmt.Sprintf("shard = %s AND seq BETWEEN %d AND %d AND (SELECT count() FROM evidence WHERE shard = %[1]s AND seq > %[3]d) = 0",
		shard, rows[0].Seq, last))
	if err != nil {
		return fmt.Errorf("%w in table %s: %w", ErrAmbiguous, schema.Changes.Name, err)
	}
	return nil
}

// insertChangesWhere inserts the rows of the table changes that evidence gives within a condition.
func (w *Writer) insertChangesWhere(ctx context.Context, token, where string) error {
	query, columns, err := schema.Changes.Definition()
	if err != nil {
		return err
	}
	list := "`" + strings.Join(columns, "`, `") + "`"
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(insertSettings(token)))
	return w.pool.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %[2]s FROM (%s) WHERE %s", schema.Changes.Name, list, query, where))
}
