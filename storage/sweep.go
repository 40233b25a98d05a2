package storage

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Range is a stretch of a shard's sequences that has rows.
type Range struct {
	From, To uint64 // both included
	Rows     uint64 // how many there are; more than To-From+1 if some are there twice
}

// Ranges cuts the sequences of a shard from one to another (both included) into
// stretches of size sequences, in order, and leaves out those without rows:
// together, what Sweep finds in them is what Scan finds in the whole. size must
// not be 0.
func (db *DB) Ranges(ctx context.Context, shard string, from, to, size uint64) (list []Range, err error) {
	err = db.eachRow(ctx, `SELECT intDiv(seq, {size:UInt64}) AS n, min(seq), max(seq), count() FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} GROUP BY n ORDER BY n`,
		func(rows driver.Rows) error {
			var n uint64
			var r Range
			err := rows.Scan(&n, &r.From, &r.To, &r.Rows)
			list = append(list, r)
			return err
		}, queryParam("shard", shard), queryParam("from", from), queryParam("to", to), queryParam("size", size))
	return list, err
}

// SequencesBetween gives the first and the last sequence of a shard whose broker time is
// not before since and before until; a zero time is no bound. Both are 0 when
// there is none.
func (db *DB) SequencesBetween(ctx context.Context, shard string, since, until time.Time) (first, last uint64, err error) {
	bound := func(t, instead time.Time) int64 {
		if t.IsZero() {
			t = instead
		}
		if t.Before(minTime) {
			t = minTime
		}
		if t.After(maxTime) {
			t = maxTime
		}
		return t.UnixNano()
	}
	err = db.eachRow(ctx, `SELECT min(seq), max(seq) FROM evidence
		WHERE shard = {shard:String} AND broker_time >= fromUnixTimestamp64Nano({since:Int64}) AND broker_time < fromUnixTimestamp64Nano({until:Int64})`,
		func(rows driver.Rows) error { return rows.Scan(&first, &last) },
		queryParam("shard", shard), queryParam("since", bound(since, minTime)), queryParam("until", bound(until, maxTime)))
	return first, last, err
}

// ScanReusingRow is Scan for who reads a lot: fn gets the same row again and again, with
// other contents. Shard, Tenant, Session and Kind stay, the other texts are good
// until fn returns. SessionIndex is not read. It has a connection of its own, on
// which nothing is compressed if the server is on this machine: that would cost
// the server as much as the reading does.
func (db *DB) ScanReusingRow(ctx context.Context, shard string, from, to uint64, fn func(*EvidenceRow) error) error {
	if err := db.scanNative(ctx, shard, from, to, fn); !errors.Is(err, errNative) {
		return err
	}
	return db.scanReusingRow(ctx, shard, from, to, fn)
}

// scanReusingRow is Sweep through clickhouse-go.
func (db *DB) scanReusingRow(ctx context.Context, shard string, from, to uint64, fn func(*EvidenceRow) error) (err error) {
	options := *db.options
	options.MaxOpenConns, options.MaxIdleConns = 1, 1
	if onlyLocal(options.Addr) {
		options.Compression = &clickhouse.Compression{Method: clickhouse.CompressionNone}
	}
	own := &DB{options: &options, database: db.database}
	if own.conn, err = clickhouse.Open(&options); err != nil {
		return db.queryError(err)
	}
	defer func() { err = errors.Join(err, own.conn.Close()) }()
	var r EvidenceRow
	var hash string
	into := []any{&r.Shard, &r.Seq, &r.Tenant, &r.Session, &r.Kind, &r.Subject, &r.BrokerTime, &r.BodyDigest, &r.Record, &hash, &r.Expiry}
	return own.eachRow(ctx, `SELECT shard, seq, tenant, session, kind, subject, broker_time, body_digest, record, record_hash, expiry FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} ORDER BY shard, seq`,
		func(rows driver.Rows) error {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			r.RecordHash = [32]byte{}
			copy(r.RecordHash[:], hash)
			return fn(&r)
		}, queryParam("shard", shard), queryParam("from", from), queryParam("to", to))
}

// onlyLocal reports whether all addresses are this machine's own.
func onlyLocal(addresses []string) bool {
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return len(addresses) > 0
}

// NewestSequences gives the least sequence among the newest n rows of some kinds in a
// shard, and AllSequences when there is none of them.
func (db *DB) NewestSequences(ctx context.Context, shard string, kinds []string, n int) (least uint64, err error) {
	least = AllSequences
	err = db.eachRow(ctx, `SELECT seq FROM evidence WHERE shard = {shard:String} AND has({kinds:Array(String)}, kind) ORDER BY shard DESC, seq DESC LIMIT {n:Int64}`,
		func(rows driver.Rows) error { return rows.Scan(&least) }, queryParam("shard", shard), queryParam("kinds", kinds), queryParam("n", int64(n)))
	return least, err
}
