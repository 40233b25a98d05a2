package storage

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
)

// EvidenceToken is the de-duplication token of a batch: whoever stores a batch of
// a shard that starts at first uses it, so of two writers only one gets through.
// The engine remembers the last 10000 tokens of a table, over all shards.
func EvidenceToken(shard string, first uint64) string {
	return shard + "/" + strconv.FormatUint(first, 10)
}

const insertEvidence = `INSERT INTO evidence
(shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash)`

// InsertEvidence stores a batch in one block: rows of one shard, their sequences
// rising, at most MaxBatchRows and MaxBatchBytes (ErrBatch otherwise). When it
// returns nil the block is on disk (fsync) and in every table derived from it, or
// an earlier block with the same token was: then these rows are dropped without a
// word, so a writer that may have a rival asks Confirm (CommitEvidence does).
//
// ErrAmbiguous means that the rows may or may not have been stored, or in part of
// the derived tables only. Any other error means that nothing was.
func (db *DB) InsertEvidence(ctx context.Context, token string, rows []EvidenceRow) error {
	if err := checkBatch(rows); err != nil {
		return err
	}
	if token == "" {
		return fmt.Errorf("%w: it has no de-duplication token", ErrBatch)
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithQueryID(evidenceQueries(rows[0].Shard)+randomToken()))
	return db.insertColumns(ctx, insertEvidence, token, evidenceColumns(rows)...)
}

// InsertCopy stores rows of any shards that were read and proved elsewhere, in
// a database that nothing else writes to. DropTextless must follow the last one.
func (db *DB) InsertCopy(ctx context.Context, rows []EvidenceRow) error {
	expiry := make([]uint64, len(rows))
	for i, r := range rows {
		if err := checkRow(r); err != nil {
			return fmt.Errorf("%w: row %d (seq %d): %w", ErrBatch, i, r.Seq, err)
		}
		expiry[i] = r.Expiry
	}
	return db.insertColumns(ctx, strings.TrimSuffix(insertEvidence, ")")+", expiry)", randomToken(), append(evidenceColumns(rows), expiry)...)
}

// DropTextless deletes what views made of copied rows without a text. Only the chain
// has a row of those.
func (db *DB) DropTextless(ctx context.Context) error {
	if n, err := db.countWhere(ctx, "evidence", "record = ''"); n == 0 || err != nil {
		return err
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 1}))
	for _, table := range expiryTables {
		if err := db.conn.Exec(ctx, "ALTER TABLE "+table+" DELETE WHERE (shard, seq) IN (SELECT shard, seq FROM evidence WHERE record = '')"); err != nil {
			return db.queryError(err)
		}
	}
	return nil
}

// evidenceQueries is how the ids of a shard's evidence inserts begin; quiesce
// finds them by it.
func evidenceQueries(shard string) string { return "countersign/evidence/" + shard + "/" }

// evidenceColumns turns rows into the columns of insertEvidence.
func evidenceColumns(rows []EvidenceRow) []any {
	n := len(rows)
	shard, tenant, session := make([]string, n), make([]string, n), make([]string, n)
	kind, subject, digest, record := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	seq, index := make([]uint64, n), make([]*uint64, n)
	at := make([]time.Time, n)
	hash := make([]string, n)
	for i, r := range rows {
		shard[i], tenant[i], session[i] = r.Shard, r.Tenant, r.Session
		kind[i], subject[i], digest[i], record[i] = r.Kind, r.Subject, r.BodyDigest, r.Record
		seq[i], index[i], at[i] = r.Seq, r.SessionIndex, r.BrokerTime.UTC()
		hash[i] = string(r.RecordHash[:])
	}
	return []any{shard, seq, tenant, session, index, kind, subject, at, digest, record, hash}
}

// insertSettings makes an insert synchronous, whole and de-duplicated, whatever
// the server's defaults are.
func insertSettings(token string) clickhouse.Settings {
	return clickhouse.Settings{
		"async_insert":               0,
		"insert_deduplicate":         1,
		"insert_deduplication_token": token,
		"deduplicate_blocks_in_dependent_materialized_views": 1,
		"materialized_views_ignore_errors":                   0,
		"max_insert_threads":                                 1,
		"max_threads":                                        1, // one block: more threads cost a third more time and save none
	}
}

// insertColumns stores columns as one block.
func (db *DB) insertColumns(ctx context.Context, statement, token string, columns ...any) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(insertSettings(token)))
	batch, err := db.conn.PrepareBatch(ctx, statement)
	if err != nil {
		return fmt.Errorf("inserting into %s: %w", db.serverName(), err)
	}
	defer batch.Close()
	for i, c := range columns {
		if err := reserveColumn(batch.Columns()[i], c); err != nil {
			return fmt.Errorf("inserting into %s: column %d: %w", db.serverName(), i, err)
		}
		if err := batch.Column(i).Append(c); err != nil {
			return fmt.Errorf("inserting into %s: column %d: %w", db.serverName(), i, err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("inserting into %s: %w: %w", db.serverName(), ErrAmbiguous, err)
	}
	return nil
}

// reserveColumn makes room in a column of long texts. A column that grows as it is
// filled copies what it holds a dozen times: three times the work and the memory.
func reserveColumn(col column.Interface, values any) error {
	texts, ok := values.([]string)
	if !ok || col.Type() != "String" {
		return nil
	}
	total := 0
	for _, s := range texts {
		total += len(s)
	}
	if total < 1<<20 {
		return nil
	}
	defer col.Reset() // keeps the room
	return col.AppendRow(make([]byte, total))
}

// Checkpoint is one signed tree head of a shard.
type Checkpoint struct {
	Shard   string
	Size    uint64 // leaves
	Root    [32]byte
	Note    string // the signed note (golang.org/x/mod/sumdb/note)
	Created time.Time
}

// InsertCheckpoint stores a checkpoint durably; the same one twice is one.
func (db *DB) InsertCheckpoint(ctx context.Context, c Checkpoint) error {
	if c.Shard == "" || c.Note == "" || !c.Created.After(minTime) || !c.Created.Before(maxTime) {
		return fmt.Errorf("%w: a checkpoint needs a shard, a note and a time", ErrBatch)
	}
	token := fmt.Sprintf("%s/%d/%s/%d", c.Shard, c.Size, hex.EncodeToString(c.Root[:]), c.Created.UnixNano())
	return db.insertColumns(ctx, "INSERT INTO checkpoints (shard, size, root, note, created)", token,
		[]string{c.Shard}, []uint64{c.Size}, []string{string(c.Root[:])}, []string{c.Note}, []time.Time{c.Created.UTC()})
}
