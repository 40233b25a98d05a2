package read

import (
	"context"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

// changeExpression is exactly the expression of the index by_change on evidence. It is true of
// control records that are neither cursors nor ticks.
const changeExpression = "multiIf(kind != 'control', 0, endsWith(subject, '.cursor'), 1, endsWith(subject, '.tick'), 2, 3) = 3"

// ScanSubject calls fn for the control records of a shard on one subject, in the order of the
// sequences. It does not find cursors and ticks, which are numerous.
func (r *Reader) ScanSubject(ctx context.Context, shard, subject string, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence
		WHERE shard = {shard:String} AND subject = {subject:String} AND `+changeExpression+` ORDER BY shard, seq`,
		rows.Each(fn), conn.Param("shard", shard), conn.Param("subject", subject))
}
