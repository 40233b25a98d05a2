package storage

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// SessionsNaming lists the sessions of a tenant in one shard that have a record
// in which a text stands, the empty one for records without a session. A JSON
// string in its canonical form, quotes included, finds the records that have
// exactly this value somewhere. It reads all of the tenant's records.
func (db *DB) SessionsNaming(ctx context.Context, shard, tenant, text string) (sessions []string, err error) {
	err = db.each(ctx, `SELECT DISTINCT session FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND position(record, {text:String}) > 0 ORDER BY session`,
		func(r driver.Rows) error {
			var s string
			err := r.Scan(&s)
			sessions = append(sessions, s)
			return err
		}, arg("shard", shard), arg("tenant", tenant), arg("text", text))
	return sessions, err
}

// LooseNaming lists the records of a tenant that belong to no session and in
// which a text stands, by their sequences, in order.
func (db *DB) LooseNaming(ctx context.Context, shard, tenant, text string) (seqs []uint64, err error) {
	err = db.each(ctx, `SELECT DISTINCT seq FROM evidence
		WHERE shard = {shard:String} AND tenant = {tenant:String} AND session = '' AND position(record, {text:String}) > 0 ORDER BY seq`,
		func(r driver.Rows) error {
			var seq uint64
			err := r.Scan(&seq)
			seqs = append(seqs, seq)
			return err
		}, arg("shard", shard), arg("tenant", tenant), arg("text", text))
	return seqs, err
}

// SilentSince gives fn the sessions of a tenant in one shard whose newest record
// was stored before a time, with that record's sequence and time.
func (db *DB) SilentSince(ctx context.Context, shard, tenant string, before time.Time, fn func(session string, newest uint64, at time.Time) error) error {
	return db.silent(ctx, shard, tenant, before, "ORDER BY session", fn)
}

// silent is SilentSince; further is what else is asked of a session, and the order.
func (db *DB) silent(ctx context.Context, shard, tenant string, before time.Time, further string, fn func(session string, newest uint64, at time.Time) error) error {
	return db.each(ctx, `SELECT session, max(seq), max(broker_time) AS newest FROM evidence
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
		}, arg("shard", shard), arg("tenant", tenant), clickhouse.DateNamed("before", before.UTC(), clickhouse.NanoSeconds))
}
