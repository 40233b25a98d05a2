// Package write is what the writer of a shard alone does: it stores batches of evidence exactly once,
// tree hashes and checkpoints, repairs the derived tables, and lets texts expire. Readers that prove rows write, too, but
// into a database of their own (InsertCopy). Begin with Writer and CommitEvidence.
package write

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
	"github.com/countersign-dev/countersign/storage/schema"
)

// Writer stores evidence. Its methods are safe for concurrent use. A process has one Writer for
// a database: it knows which shards need a repair, and keeps repairs and expiry apart.
type Writer struct {
	pool      *conn.Pool
	repairs   repairStates
	derivedMu sync.Mutex // held while derived tables are compared with evidence, or while texts expire
}

// New makes a writer over connections that the caller closes.
func New(pool *conn.Pool) *Writer { return &Writer{pool: pool} }

// Errors of a writer.
var (
	// ErrAmbiguous: an insert failed and it is unknown whether its rows are stored. The
	// caller must call VerifyStored before it writes again.
	ErrAmbiguous = errors.New("it is unknown whether the rows were stored")
	// ErrBatch: the rows given to a writer do not form a batch (see InsertEvidence).
	ErrBatch = errors.New("not a valid batch")
)

// EvidenceToken is the de-duplication token of a batch of a shard that starts at first. All
// writers of a shard use it, so only one of two competing writers can store such a batch. The
// engine remembers the last 10000 tokens of a table, over all shards.
func EvidenceToken(shard string, first uint64) string {
	return shard + "/" + strconv.FormatUint(first, 10)
}

const insertEvidence = `INSERT INTO evidence
(shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash)`

// InsertEvidence stores a batch in one block: rows of one shard with rising sequences, at most
// MaxBatchRows and MaxBatchBytes (ErrBatch otherwise), behind all rows of the shard. When it returns nil, the block is on disk
// (fsync) and in every derived table, or an earlier block with the same token was. In the second
// case these rows are dropped silently, so a writer that may have a competitor must call
// VerifyStored (CommitEvidence does).
//
// ErrAmbiguous means that the rows may or may not be stored, or stored only in some of the
// derived tables. Any other error means that nothing was stored.
func (w *Writer) InsertEvidence(ctx context.Context, token string, rows []storage.EvidenceRow) error {
	if err := checkBatch(rows); err != nil {
		return err
	}
	if token == "" {
		return fmt.Errorf("%w: it has no de-duplication token", ErrBatch)
	}
	own := clickhouse.Context(ctx, clickhouse.WithQueryID(evidenceQueries(rows[0].Shard)+randomToken()))
	return w.insertColumns(own, insertEvidence, token, evidenceColumns(rows)...)
}

// InsertCopy stores rows of any shards that were read and proved elsewhere, in a database that
// has no other writer. The caller must call FinishCopy after the last one.
func (w *Writer) InsertCopy(ctx context.Context, rows []storage.EvidenceRow) error {
	expiry := make([]uint64, len(rows))
	for i, r := range rows {
		if err := checkRow(r); err != nil {
			return fmt.Errorf("%w: row %d (seq %d): %w", ErrBatch, i, r.Seq, err)
		}
		expiry[i] = r.Expiry
	}
	return w.insertColumns(ctx, strings.TrimSuffix(insertEvidence, ")")+", expiry)", randomToken(), append(evidenceColumns(rows), expiry)...)
}

// FinishCopy deletes the derived rows of copied rows without a text. Only evidence_chain has rows
// of those.
func (w *Writer) FinishCopy(ctx context.Context) error {
	if n, err := w.countWhere(ctx, "evidence", "record = ''"); n == 0 || err != nil {
		return err
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"mutations_sync": 1}))
	if err := w.pool.Exec(ctx, "ALTER TABLE "+schema.RecordFields.Name+" DELETE WHERE (shard, seq) IN (SELECT shard, seq FROM evidence WHERE record = '')"); err != nil {
		return w.pool.QueryError(err)
	}
	return nil
}

// evidenceQueries is the prefix of the query ids of a shard's evidence inserts; endInserts
// finds them by it.
func evidenceQueries(shard string) string { return "countersign/evidence/" + shard + "/" }

// evidenceColumns converts rows to the columns of insertEvidence.
func evidenceColumns(rows []storage.EvidenceRow) []any {
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

// indexedRows is the number of rows from which on an insert makes skip indexes. It is a granule of
// the indexes: a smaller part could only be skipped whole. Each index of a part is two files more,
// and merges make the indexes of what small inserts brought. 20 rows with all derived tables cost
// a tenth less without.
const indexedRows = 8192

// insertSettings makes an insert synchronous, atomic and de-duplicated, independent of the
// server's defaults.
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

// insertColumns stores columns as one block. An error after the send wraps ErrAmbiguous.
func (w *Writer) insertColumns(ctx context.Context, statement, token string, columns ...any) error {
	settings := insertSettings(token)
	if rowsOf(columns) < indexedRows {
		settings["materialize_skip_indexes_on_insert"] = 0
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings))
	batch, err := w.pool.PrepareBatch(ctx, statement)
	if err != nil {
		return fmt.Errorf("inserting into %s: %w", w.pool.ServerName(), err)
	}
	defer batch.Close()
	for i, c := range columns {
		if err := reserveColumn(batch.Columns()[i], c); err != nil {
			return fmt.Errorf("inserting into %s: column %d: %w", w.pool.ServerName(), i, err)
		}
		if err := batch.Column(i).Append(c); err != nil {
			return fmt.Errorf("inserting into %s: column %d: %w", w.pool.ServerName(), i, err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("inserting into %s: %w: %w", w.pool.ServerName(), ErrAmbiguous, err)
	}
	return nil
}

// rowsOf is the length of the first column, which is one of strings.
func rowsOf(columns []any) int {
	first, _ := columns[0].([]string)
	return len(first)
}

// reserveColumn reserves memory in a column of long strings. A column that grows while it is
// filled copies its content a dozen times: three times the work and the memory.
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
	defer col.Reset() // keeps the memory
	return col.AppendRow(make([]byte, total))
}

// randomToken returns a new de-duplication token.
func randomToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// InsertTreeNodes stores hashes durably. It omits those that read.Reader.TreeNodes computes from others,
// which are all but one in 510. Storing a hash again does no harm, also with another value: readers
// compute such a hash from the records.
func (w *Writer) InsertTreeNodes(ctx context.Context, shard string, nodes []storage.TreeNode) error {
	if shard == "" {
		return fmt.Errorf("%w: it has no shard", ErrBatch)
	}
	var shards, hash []string
	var levels []uint8
	var tiles, at []uint64
	for _, node := range nodes {
		level, n := tlog.SplitStoredHashIndex(int64(node.Index))
		if level == 0 || level%rows.TileHeight != 0 {
			continue
		}
		shards, hash = append(shards, shard), append(hash, string(node.Hash[:]))
		levels, tiles, at = append(levels, uint8(level)), append(tiles, uint64(n)/rows.TileWidth), append(at, uint64(n))
	}
	if len(at) == 0 {
		return nil
	}
	return w.insertColumns(ctx, "INSERT INTO tree_hashes (shard, level, tile, n, hash)", randomToken(), shards, levels, tiles, at, hash)
}

// InsertCheckpoint stores a checkpoint durably; storing the same one again has no effect.
func (w *Writer) InsertCheckpoint(ctx context.Context, c storage.Checkpoint) error {
	if c.Shard == "" || c.Note == "" || !c.Created.After(conn.MinTime) || !c.Created.Before(conn.MaxTime) {
		return fmt.Errorf("%w: a checkpoint needs a shard, a note and a time", ErrBatch)
	}
	token := fmt.Sprintf("%s/%d/%s/%d", c.Shard, c.Size, hex.EncodeToString(c.Root[:]), c.Created.UnixNano())
	return w.insertColumns(ctx, "INSERT INTO checkpoints (shard, size, root, note, created)", token,
		[]string{c.Shard}, []uint64{c.Size}, []string{string(c.Root[:])}, []string{c.Note}, []time.Time{c.Created.UTC()})
}
