// Package expiry finds what may lose its text: sessions that are idle, and records that name
// something. Package write deletes the texts (Writer.Expire). Begin with Reader.
package expiry

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

// Reader finds the records with texts that may be deleted. Its methods are safe for concurrent use.
type Reader struct{ pool *conn.Pool }

// New makes a reader over connections that the caller closes.
func New(pool *conn.Pool) *Reader { return &Reader{pool} }

// SessionsContaining lists the sessions of a tenant in one shard that have a record containing
// text; "" stands for records without a session. A JSON string in its canonical form, quotes
// included, finds the records that have exactly this value. It reads all of the tenant's
// records.
func (r *Reader) SessionsContaining(ctx context.Context, shard, tenant, text string) (sessions []string, err error) {
	return conn.Column[string](ctx, r.pool, `SELECT DISTINCT session FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND position(record, {text:String}) > 0 ORDER BY session`,
		conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("text", text))
}

// RecordsContaining calls fn for the records, in any session or none, that SessionsContaining finds, in order.
func (r *Reader) RecordsContaining(ctx context.Context, shard, tenant, text string, fn func(session string, seq uint64) error) error {
	return r.pool.EachRow(ctx, `SELECT session, seq FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND position(record, {text:String}) > 0 ORDER BY shard, seq`,
		func(row driver.Rows) error {
			var session string
			var seq uint64
			if err := row.Scan(&session, &seq); err != nil {
				return err
			}
			return fn(session, seq)
		}, conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("text", text))
}

// SessionlessContaining lists the sequences of a tenant's records without a session that
// contain text, in order.
func (r *Reader) SessionlessContaining(ctx context.Context, shard, tenant, text string) (seqs []uint64, err error) {
	return conn.Column[uint64](ctx, r.pool, `SELECT DISTINCT seq FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND session = '' AND position(record, {text:String}) > 0 ORDER BY seq`,
		conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("text", text))
}

// SessionlessRecord is a record without a session or without a body.
type SessionlessRecord struct {
	Seq           uint64
	Session, Kind string
	Time          time.Time
	Record        string
}

// ofTenantOrBelow selects the records of a tenant. It includes records with foreign subjects
// below the tenant's own: those have no tenant.
const ofTenantOrBelow = `shard = {shard:String} AND (tenant = {tenant:String} OR tenant = '' AND kind = 'unparseable' AND startsWith(subject, {below:String}))`

// SessionlessRecords calls fn for the records of a tenant without a session from a sequence on that were
// stored before a time and contain text, in order. below is the prefix of the subjects of the tenant's events.
func (r *Reader) SessionlessRecords(ctx context.Context, shard, tenant, below, text string, from uint64, before time.Time, fn func(SessionlessRecord) error) error {
	return r.scanSessionless(ctx, `SELECT seq, session, kind, broker_time, record FROM evidence WHERE `+ofTenantOrBelow+`
		AND session = '' AND seq >= {from:UInt64} AND broker_time < {before:DateTime64(9, 'UTC')} AND position(record, {text:String}) > 0 ORDER BY seq`,
		fn, conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("below", below), conn.Param("text", text),
		clickhouse.DateNamed("before", before.UTC(), clickhouse.NanoSeconds), conn.Param("from", from))
}

// RecordsWithoutBody calls fn for the records of a tenant that have no body, in any session.
// The bytes of such a body are only on the log and in quarantine.
func (r *Reader) RecordsWithoutBody(ctx context.Context, shard, tenant, below string, fn func(SessionlessRecord) error) error {
	return r.scanSessionless(ctx, `SELECT seq, session, kind, broker_time, record FROM evidence WHERE `+ofTenantOrBelow+`
		AND startsWith(record, '{"body":null,') ORDER BY seq`,
		fn, conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("below", below))
}

func (r *Reader) scanSessionless(ctx context.Context, query string, fn func(SessionlessRecord) error, args ...any) error {
	return r.pool.EachRow(ctx, query, func(row driver.Rows) error {
		var l SessionlessRecord
		if err := row.Scan(&l.Seq, &l.Session, &l.Kind, &l.Time, &l.Record); err != nil {
			return err
		}
		l.Time = l.Time.UTC()
		return fn(l)
	}, args...)
}

// IdleSessions calls fn for the sessions of a tenant in one shard that have no record since
// before, the longest idle first, with sequence and time of their newest record. withText leaves out those of which
// every record has lost its text.
func (r *Reader) IdleSessions(ctx context.Context, shard, tenant string, before time.Time, withText bool, fn func(session string, newest uint64, at time.Time) error) error {
	further := ""
	if withText {
		further = "AND countIf(expiry = 0) > 0"
	}
	return r.pool.EachRow(ctx, `SELECT session, max(seq), max(broker_time) AS newest FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND session != ''
		GROUP BY session HAVING newest < {before:DateTime64(9, 'UTC')} `+further+` ORDER BY newest, session`,
		func(row driver.Rows) error {
			var session string
			var seq uint64
			var at time.Time
			if err := row.Scan(&session, &seq, &at); err != nil {
				return err
			}
			return fn(session, seq, at.UTC())
		}, conn.Param("shard", shard), conn.Param("tenant", tenant), clickhouse.DateNamed("before", before.UTC(), clickhouse.NanoSeconds))
}

// RecordsWithText calls fn for the rows of a session in one shard that have their text, in order.
func (r *Reader) RecordsWithText(ctx context.Context, shard, tenant, session string, fn func(storage.EvidenceRow) error) error {
	return r.pool.EachRow(ctx, `SELECT `+rows.Columns+` FROM evidence
		WHERE shard = {shard:String} AND expiry = 0 AND seq IN (
			SELECT seq FROM evidence_chain WHERE tenant = {tenant:String} AND session = {session:String} AND shard = {shard:String} AND session_index IS NOT NULL)
		ORDER BY seq`,
		rows.Each(fn), conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("session", session))
}
