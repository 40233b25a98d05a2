package storage

import "context"

// changeExpression is exactly the expression of the index by_change on evidence. It is true of
// control records that are neither cursors nor ticks.
const changeExpression = "multiIf(kind != 'control', 0, endsWith(subject, '.cursor'), 1, endsWith(subject, '.tick'), 2, 3) = 3"

// ScanSubject calls fn for the control records of a shard on one subject, in the order of the
// sequences. It does not find cursors and ticks, which are numerous.
func (db *DB) ScanSubject(ctx context.Context, shard, subject string, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND subject = {subject:String} AND `+changeExpression+` ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("subject", subject))
}
