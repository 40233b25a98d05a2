package read

import (
	"context"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

// Position returns the last sequence of a shard and the hash of its record, or zeros if there
// is none.
func (r *Reader) Position(ctx context.Context, shard string) (lastSeq uint64, lastHash [32]byte, err error) {
	err = r.pool.EachRow(ctx, `SELECT seq, record_hash FROM evidence WHERE shard = {shard:String} ORDER BY seq DESC LIMIT 1`, func(row driver.Rows) error {
		var hash string
		err := row.Scan(&lastSeq, &hash)
		copy(lastHash[:], hash)
		return err
	}, conn.Param("shard", shard))
	return lastSeq, lastHash, err
}

// Shards lists the shards that have evidence, in the order of their names. For the
// incarnations of one stream this is the order of their creation.
func (r *Reader) Shards(ctx context.Context) ([]string, error) {
	return conn.Column[string](ctx, r.pool, `SELECT DISTINCT shard FROM evidence ORDER BY shard`)
}

// Scan calls fn for the rows of a shard from one sequence to another (both included;
// storage.AllSequences for no end), in the order of the sequences. It hides nothing: fn sees every
// row of a repeated sequence. fn may query r.
func (r *Reader) Scan(ctx context.Context, shard string, from, to uint64, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} ORDER BY shard, seq`,
		rows.Each(fn), conn.Param("shard", shard), conn.Param("from", from), conn.Param("to", to))
}

// Chain calls fn for the rows of a session in order, over all its shards.
func (r *Reader) Chain(ctx context.Context, tenant, session string, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence
		WHERE (shard, seq) IN (SELECT shard, seq FROM evidence_chain WHERE tenant = {tenant:String} AND session = {session:String})
		ORDER BY shard, seq`,
		rows.Each(fn), conn.Param("tenant", tenant), conn.Param("session", session))
}

// RecordHashes calls fn for the sequences and record hashes of a range, like Scan.
func (r *Reader) RecordHashes(ctx context.Context, shard string, from, to uint64, fn func(seq uint64, hash [32]byte) error) error {
	return rows.Hashes(ctx, r.pool, shard, from, to, fn)
}

// Count is the result of CountEvidence. A shard is complete and without repetitions if
// Distinct, Rows and Last-First+1 are equal.
type Count struct {
	Rows, Distinct uint64
	First, Last    uint64 // sequences; zero when there is no row
}

// CountEvidence counts the rows and the sequences of a shard.
func (r *Reader) CountEvidence(ctx context.Context, shard string) (c Count, err error) {
	err = r.pool.EachRow(ctx, `SELECT count(), uniqExact(seq), min(seq), max(seq) FROM evidence WHERE shard = {shard:String}`,
		func(row driver.Rows) error { return row.Scan(&c.Rows, &c.Distinct, &c.First, &c.Last) }, conn.Param("shard", shard))
	return c, err
}

// SessionHeads calls fn for the last record in a shard of each session of keys that has one. The
// result is reliable after Repair.
func (r *Reader) SessionHeads(ctx context.Context, shard string, keys []events.SessionID, fn func(storage.EvidenceRow) error) error {
	if len(keys) == 0 {
		return nil
	}
	table, err := ext.NewTable("keys", ext.Column("t", "String"), ext.Column("s", "String"))
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := table.Append(k.Tenant, k.Session); err != nil {
			return err
		}
	}
	ctx = clickhouse.Context(conn.QueryContext(ctx), clickhouse.WithExternalTable(table))
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence WHERE shard = {shard:String} AND seq IN (
			SELECT max(seq) FROM evidence_chain
			WHERE (tenant, session) IN (SELECT t, s FROM keys) AND shard = {shard:String} AND session_index IS NOT NULL
			GROUP BY tenant, session)`,
		rows.Each(fn), conn.Param("shard", shard))
}

// IsTenantView reports whether this database shows the rows of one tenant only. For an
// auditor of one tenant, evidence is a view, in a database that the caller's DSN names. A view in
// any other database is no reason to prove less: a user that may alter tables may have put it there.
func (r *Reader) IsTenantView(ctx context.Context) (bool, error) {
	if !strings.HasPrefix(r.pool.Database(), storage.TenantDatabase) {
		return false, nil
	}
	var engine string
	err := r.pool.QueryRow(ctx, "SELECT any(engine) FROM system.tables WHERE database = currentDatabase() AND name = 'evidence'").Scan(&engine)
	if err != nil {
		return false, r.pool.QueryError(err)
	}
	return strings.HasSuffix(engine, "View"), nil
}

// ExpiredTotals counts the evidence of a tenant that has no text any more.
type ExpiredTotals struct {
	Records, Sessions uint64
	Shard             string // of the newest expiry
	Expiry            uint64 // the sequence of its record
}

// CountExpired counts the expired records of a tenant, or of one session of it.
func (r *Reader) CountExpired(ctx context.Context, tenant, session string) (g ExpiredTotals, err error) {
	err = r.pool.EachRow(ctx, `SELECT count(), uniqExact(session), argMax(shard, (shard, expiry)), argMax(expiry, (shard, expiry)) FROM evidence
		WHERE expiry > 0 AND tenant = {tenant:String} AND ({session:String} = '' OR session = {session:String})`,
		func(row driver.Rows) error { return row.Scan(&g.Records, &g.Sessions, &g.Shard, &g.Expiry) }, conn.Param("tenant", tenant), conn.Param("session", session))
	return g, err
}

// ShardExtent returns the last sequence of a shard's evidence and its number of rows. The number
// of rows is that of sequences unless a sequence is repeated.
func (r *Reader) ShardExtent(ctx context.Context, shard string) (last, sequences uint64, err error) {
	err = r.pool.EachRow(ctx, `SELECT max(seq), count() FROM evidence WHERE shard = {shard:String}`,
		func(row driver.Rows) error { return row.Scan(&last, &sequences) }, conn.Param("shard", shard))
	return last, sequences, err
}

// ofTenant selects the rows of one tenant in a shard that were stored from one time on and
// before another.
const ofTenant = ` FROM evidence WHERE shard = {shard:String} AND tenant = {tenant:String}
	AND broker_time >= fromUnixTimestamp64Nano({from:Int64}) AND broker_time < fromUnixTimestamp64Nano({to:Int64})`

// ScanTenant calls fn for the rows of a tenant in a shard with a broker time not before from
// and before to, in the order of the sequences. It holds one block of rows at a time. fn may
// query r.
func (r *Reader) ScanTenant(ctx context.Context, shard, tenant string, from, to time.Time, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+ofTenant+` ORDER BY shard, seq`,
		rows.Each(fn), conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("from", from.UnixNano()), conn.Param("to", to.UnixNano()))
}

// CountTenant counts the rows that ScanTenant finds.
func (r *Reader) CountTenant(ctx context.Context, shard, tenant string, from, to time.Time) (n uint64, err error) {
	err = r.pool.EachRow(ctx, `SELECT count()`+ofTenant, func(rows driver.Rows) error { return rows.Scan(&n) },
		conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("from", from.UnixNano()), conn.Param("to", to.UnixNano()))
	return n, err
}

// ControlRecords calls fn for a shard's control records up to a sequence, except cursors, in
// order.
func (r *Reader) ControlRecords(ctx context.Context, shard string, to uint64, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence
		WHERE shard = {shard:String} AND seq <= {to:UInt64} AND kind = 'control' AND NOT endsWith(subject, '.cursor') ORDER BY shard, seq`,
		rows.Each(fn), conn.Param("shard", shard), conn.Param("to", to))
}

// EventsOf calls fn for the events of a tenant up to a sequence with a subject that ends in a
// type, in order.
func (r *Reader) EventsOf(ctx context.Context, shard, tenant, typ string, to uint64, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence
		WHERE shard = {shard:String} AND seq <= {to:UInt64} AND kind = 'event' AND tenant = {tenant:String}
			AND endsWith(subject, {ending:String}) ORDER BY shard, seq`,
		rows.Each(fn), conn.Param("shard", shard), conn.Param("to", to), conn.Param("tenant", tenant), conn.Param("ending", "."+typ))
}

// FirstInput returns the first message after a sequence that was stored at a time or later and
// that no correlator wrote. seq is 0 if there is none.
func (r *Reader) FirstInput(ctx context.Context, shard string, after uint64, at time.Time) (seq uint64, stored time.Time, err error) {
	err = r.pool.EachRow(ctx, `SELECT seq, broker_time FROM evidence
		WHERE shard = {shard:String} AND seq > {after:UInt64} AND broker_time >= {since:DateTime64(9, 'UTC')}
			AND kind NOT IN ('call', 'finding') AND NOT (kind = 'control' AND endsWith(subject, '.cursor'))
		ORDER BY shard, seq LIMIT 1`,
		func(row driver.Rows) error { return row.Scan(&seq, &stored) }, conn.Param("shard", shard), conn.Param("after", after), conn.TimeParam("since", at))
	return seq, stored.UTC(), err
}

// LastCursor calls fn for the newest record of the correlator's position, if there is one.
func (r *Reader) LastCursor(ctx context.Context, shard string, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence
		WHERE shard = {shard:String} AND kind = 'control' AND endsWith(subject, '.cursor') ORDER BY shard DESC, seq DESC LIMIT 1`,
		rows.Each(fn), conn.Param("shard", shard))
}
