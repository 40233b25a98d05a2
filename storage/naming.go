package storage

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// SessionsContaining lists the sessions of a tenant in one shard that have a record
// in which a text stands, the empty one for records without a session. A JSON
// string in its canonical form, quotes included, finds the records that have
// exactly this value somewhere. It reads all of the tenant's records.
func (db *DB) SessionsContaining(ctx context.Context, shard, tenant, text string) (sessions []string, err error) {
	err = db.eachRow(ctx, `SELECT DISTINCT session FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND position(record, {text:String}) > 0 ORDER BY session`,
		func(r driver.Rows) error {
			var s string
			err := r.Scan(&s)
			sessions = append(sessions, s)
			return err
		}, queryParam("shard", shard), queryParam("tenant", tenant), queryParam("text", text))
	return sessions, err
}

// SessionlessContaining lists the records of a tenant that belong to no session and in
// which a text stands, by their sequences, in order.
func (db *DB) SessionlessContaining(ctx context.Context, shard, tenant, text string) (seqs []uint64, err error) {
	err = db.eachRow(ctx, `SELECT DISTINCT seq FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND session = '' AND position(record, {text:String}) > 0 ORDER BY seq`,
		func(r driver.Rows) error {
			var seq uint64
			err := r.Scan(&seq)
			seqs = append(seqs, seq)
			return err
		}, queryParam("shard", shard), queryParam("tenant", tenant), queryParam("text", text))
	return seqs, err
}

// SessionlessRecord is a record that belongs to no session, or one without a body.
type SessionlessRecord struct {
	Seq           uint64
	Session, Kind string
	Time          time.Time
	Record        string
}

// ofTenantOrBelow are the records of a tenant, those included whose subject is none of the
// log's: they have no tenant, and stand below the tenant's own subjects.
const ofTenantOrBelow = `shard = {shard:String} AND (tenant = {tenant:String} OR tenant = '' AND kind = 'unparseable' AND startsWith(subject, {below:String}))`

// SessionlessRecords gives fn the records of a tenant without a session that were stored before a
// time and in which a text stands, in order, limit at most. below is what the
// subjects of the tenant's events begin with.
func (db *DB) SessionlessRecords(ctx context.Context, shard, tenant, below, text string, before time.Time, limit int, fn func(SessionlessRecord) error) error {
	return db.scanSessionless(ctx, `SELECT seq, session, kind, broker_time, record FROM evidence WHERE `+ofTenantOrBelow+`
		AND session = '' AND broker_time < {before:DateTime64(9, 'UTC')} AND position(record, {text:String}) > 0 ORDER BY seq LIMIT {limit:UInt32}`,
		fn, queryParam("shard", shard), queryParam("tenant", tenant), queryParam("below", below), queryParam("text", text),
		clickhouse.DateNamed("before", before.UTC(), clickhouse.NanoSeconds), queryParam("limit", uint32(limit)))
}

// RecordsWithoutBody gives fn the records of a tenant that have no body, of whatever session:
// its bytes are on the log and in quarantine only.
func (db *DB) RecordsWithoutBody(ctx context.Context, shard, tenant, below string, fn func(SessionlessRecord) error) error {
	return db.scanSessionless(ctx, `SELECT seq, session, kind, broker_time, record FROM evidence WHERE `+ofTenantOrBelow+`
		AND startsWith(record, '{"body":null,') ORDER BY seq`,
		fn, queryParam("shard", shard), queryParam("tenant", tenant), queryParam("below", below))
}

func (db *DB) scanSessionless(ctx context.Context, query string, fn func(SessionlessRecord) error, args ...any) error {
	return db.eachRow(ctx, query, func(r driver.Rows) error {
		var l SessionlessRecord
		if err := r.Scan(&l.Seq, &l.Session, &l.Kind, &l.Time, &l.Record); err != nil {
			return err
		}
		l.Time = l.Time.UTC()
		return fn(l)
	}, args...)
}

// IdleSessions gives fn the sessions of a tenant in one shard whose newest record
// was stored before a time, with that record's sequence and time.
func (db *DB) IdleSessions(ctx context.Context, shard, tenant string, before time.Time, fn func(session string, newest uint64, at time.Time) error) error {
	return db.queryIdleSessions(ctx, shard, tenant, before, "ORDER BY session", fn)
}

// queryIdleSessions is SilentSince; further is what else is asked of a session, and the order.
func (db *DB) queryIdleSessions(ctx context.Context, shard, tenant string, before time.Time, further string, fn func(session string, newest uint64, at time.Time) error) error {
	return db.eachRow(ctx, `SELECT session, max(seq), max(broker_time) AS newest FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND session != ''
		GROUP BY session HAVING newest < {before:DateTime64(9, 'UTC')} `+further,
		func(r driver.Rows) error {
			var session string
			var seq uint64
			var at time.Time
			if err := r.Scan(&session, &seq, &at); err != nil {
				return err
			}
			return fn(session, seq, at.UTC())
		}, queryParam("shard", shard), queryParam("tenant", tenant), clickhouse.DateNamed("before", before.UTC(), clickhouse.NanoSeconds))
}
