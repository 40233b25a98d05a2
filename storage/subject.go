package storage

import "context"

// ScanSubject gives fn the rows of a shard that came on one subject, in the
// order of the sequences. There is no index on subjects: it reads the column,
// and is meant for the few control records.
func (db *DB) ScanSubject(ctx context.Context, shard, subject string, fn func(EvidenceRow) error) error {
	return db.each(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND subject = {subject:String} AND kind = 'control' ORDER BY shard, seq`,
		eachEvidence(fn), arg("shard", shard), arg("subject", subject))
}
