package storage

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// eachRow runs a query and hands every row to fn. An error of fn ends the query and
// is returned as it is.
func (db *DB) eachRow(ctx context.Context, query string, fn func(driver.Rows) error, args ...any) (err error) {
	rows, err := db.conn.Query(queryContext(ctx), query, args...)
	if err != nil {
		return db.queryError(err)
	}
	defer func() {
		if closed := db.queryError(rows.Close()); err == nil { // else it says the same once more
			err = closed
		}
	}()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return db.queryError(rows.Err())
}

// ErrDamaged says that ClickHouse could not read what it had stored.
var ErrDamaged = errors.New("stored rows are damaged on ClickHouse's disk: copy its data directory as it is, then restore a backup (docs/operating.md)")

// damageCodes are the codes of ClickHouse's errors about files of its own, with what
// they say.
var damageCodes = map[int32]string{
	40: "a checksum does not match", 246: "corrupted data", 271: "a block cannot be decompressed", 228: "a file has an unexpected size",
	107: "a file is missing", 27: "a file cannot be parsed", 33: "a file ends too early",
}

// queryError says where a query failed. Of a damaged file it names the table and not
// the block.
func (db *DB) queryError(err error) error {
	if err == nil {
		return nil
	}
	var refused *clickhouse.Exception
	if errors.As(err, &refused) && damageCodes[refused.Code] != "" {
		return fmt.Errorf("querying %s: %s in %s: %w", db.serverName(), damageCodes[refused.Code], tableIn(refused.Message), ErrDamaged)
	}
	return fmt.Errorf("querying %s: %w", db.serverName(), err)
}

var tableName = regexp.MustCompile(`\bin table ([A-Za-z0-9_.]{1,128})`)

// tableIn is the table that an error of ClickHouse's is about.
func tableIn(message string) string {
	if m := tableName.FindStringSubmatch(message); m != nil {
		return "table " + m[1]
	}
	return "a table"
}

// evidenceColumnList is what scanEvidence reads.
const evidenceColumnList = "shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash, expiry"

func scanEvidence(rows driver.Rows) (r EvidenceRow, err error) {
	var hash string
	err = rows.Scan(&r.Shard, &r.Seq, &r.Tenant, &r.Session, &r.SessionIndex, &r.Kind, &r.Subject, &r.BrokerTime, &r.BodyDigest, &r.Record, &hash, &r.Expiry)
	copy(r.RecordHash[:], hash)
	r.BrokerTime = r.BrokerTime.UTC()
	return r, err
}

// Position gives the last sequence of a shard and its record's hash, zeroes when
// there is none.
func (db *DB) Position(ctx context.Context, shard string) (lastSeq uint64, lastHash [32]byte, err error) {
	err = db.eachRow(ctx, `SELECT seq, record_hash FROM evidence WHERE shard = {shard:String} ORDER BY seq DESC LIMIT 1`, func(r driver.Rows) error {
		var hash string
		err := r.Scan(&lastSeq, &hash)
		copy(lastHash[:], hash)
		return err
	}, queryParam("shard", shard))
	return lastSeq, lastHash, err
}

// Shards lists the shards that have evidence, in order of their names, which for
// the incarnations of one stream is the order of their creation.
func (db *DB) Shards(ctx context.Context) (shards []string, err error) {
	err = db.eachRow(ctx, `SELECT DISTINCT shard FROM evidence ORDER BY shard`, func(r driver.Rows) error {
		var s string
		err := r.Scan(&s)
		shards = append(shards, s)
		return err
	})
	return shards, err
}

// Scan gives fn the rows of a shard from one sequence to another (both included;
// AllSequences for no end), in the order of the sequences. It hides nothing: a
// sequence that is there twice comes twice. fn may query db.
func (db *DB) Scan(ctx context.Context, shard string, from, to uint64, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("from", from), queryParam("to", to))
}

// Chain gives fn the rows of a session in order, over all shards it has been in.
func (db *DB) Chain(ctx context.Context, tenant, session string, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+` FROM evidence
		WHERE (shard, seq) IN (SELECT shard, seq FROM evidence_chain WHERE tenant = {tenant:String} AND session = {session:String})
		ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("tenant", tenant), queryParam("session", session))
}

func eachEvidence(fn func(EvidenceRow) error) func(driver.Rows) error {
	return func(rows driver.Rows) error {
		r, err := scanEvidence(rows)
		if err != nil {
			return err
		}
		return fn(r)
	}
}

// RecordHashes gives fn the sequences and record hashes of a range, like Scan.
func (db *DB) RecordHashes(ctx context.Context, shard string, from, to uint64, fn func(seq uint64, hash [32]byte) error) error {
	return db.scanHashes(ctx, shard, from, to, fn)
}

func (db *DB) scanHashes(ctx context.Context, shard string, from, to uint64, fn func(uint64, [32]byte) error) error {
	return db.eachRow(ctx, `SELECT seq, record_hash FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} ORDER BY shard, seq`,
		func(rows driver.Rows) error {
			var seq uint64
			var text string
			var hash [32]byte
			if err := rows.Scan(&seq, &text); err != nil {
				return err
			}
			copy(hash[:], text)
			return fn(seq, hash)
		}, queryParam("shard", shard), queryParam("from", from), queryParam("to", to))
}

// Count is what CountEvidence finds. A shard is dense when Distinct, Rows and
// Last-First+1 are the same.
type Count struct {
	Rows, Distinct uint64
	First, Last    uint64 // sequences; zero when there is no row
}

// CountEvidence counts the rows and the sequences of a shard.
func (db *DB) CountEvidence(ctx context.Context, shard string) (c Count, err error) {
	err = db.eachRow(ctx, `SELECT count(), uniqExact(seq), min(seq), max(seq) FROM evidence WHERE shard = {shard:String}`,
		func(r driver.Rows) error { return r.Scan(&c.Rows, &c.Distinct, &c.First, &c.Last) }, queryParam("shard", shard))
	return c, err
}

// SessionID names one session.
type SessionID struct{ Tenant, Session string }

// Head is the last record of a session's chain in one shard.
type Head struct {
	Index uint64
	Hash  [32]byte
}

// SessionHeads gives the heads of those of the sessions that have records in a
// shard. It is right after Repair.
func (db *DB) SessionHeads(ctx context.Context, shard string, keys []SessionID) (map[SessionID]Head, error) {
	heads := make(map[SessionID]Head, len(keys))
	if len(keys) == 0 {
		return heads, nil
	}
	table, err := ext.NewTable("keys", ext.Column("t", "String"), ext.Column("s", "String"))
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if err := table.Append(k.Tenant, k.Session); err != nil {
			return nil, err
		}
	}
	ctx = clickhouse.Context(queryContext(ctx), clickhouse.WithExternalTable(table))
	err = db.eachRow(ctx, `SELECT tenant, session, assumeNotNull(session_index), record_hash FROM evidence WHERE shard = {shard:String} AND seq IN (
			SELECT max(seq) FROM evidence_chain
			WHERE (tenant, session) IN (SELECT t, s FROM keys) AND shard = {shard:String} AND session_index IS NOT NULL
			GROUP BY tenant, session)`,
		func(r driver.Rows) error {
			var key SessionID
			var head Head
			var hash string
			if err := r.Scan(&key.Tenant, &key.Session, &head.Index, &hash); err != nil {
				return err
			}
			copy(head.Hash[:], hash)
			heads[key] = head
			return nil
		}, queryParam("shard", shard))
	return heads, err
}
