package storage

import "context"

// changeExpression is the expression of the index by_change on evidence, to the letter, and
// what it gives for a control record that is neither a cursor nor a tick.
const changeExpression = "multiIf(kind != 'control', 0, endsWith(subject, '.cursor'), 1, endsWith(subject, '.tick'), 2, 3) = 3"

// ScanSubject gives fn the control records of a shard that came on one subject, in
// the order of the sequences; those of cursors and ticks, of which there are many, it
// does not find.
func (db *DB) ScanSubject(ctx context.Context, shard, subject string, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND subject = {subject:String} AND `+changeExpression+` ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("subject", subject))
}
