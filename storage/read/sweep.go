package read

import (
	"context"
	"errors"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Range is a range of a shard's sequences that has rows.
type Range struct {
	From, To uint64 // both included
	Rows     uint64 // number of rows; more than To-From+1 if sequences are repeated
}

// Ranges splits the sequences of a shard between two (both included) into ranges of size
// sequences, in order, and omits those without rows. ScanReusingRow over all ranges finds the
// same rows as Scan over the whole. size must not be 0.
func (r *Reader) Ranges(ctx context.Context, shard string, from, to, size uint64) (list []Range, err error) {
	err = r.pool.EachRow(ctx, `SELECT intDiv(seq, {size:UInt64}) AS n, min(seq), max(seq), count() FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} GROUP BY n ORDER BY n`,
		func(rows driver.Rows) error {
			var n uint64
			var r Range
			err := rows.Scan(&n, &r.From, &r.To, &r.Rows)
			list = append(list, r)
			return err
		}, conn.Param("shard", shard), conn.Param("from", from), conn.Param("to", to), conn.Param("size", size))
	return list, err
}

// SequencesBetween returns the first and the last sequence of a shard with a broker time not
// before since and before until; a zero time sets no bound. Both are 0 if there is none.
func (r *Reader) SequencesBetween(ctx context.Context, shard string, since, until time.Time) (first, last uint64, err error) {
	bound := func(t, instead time.Time) int64 {
		if t.IsZero() {
			t = instead
		}
		if t.Before(conn.MinTime) {
			t = conn.MinTime
		}
		if t.After(conn.MaxTime) {
			t = conn.MaxTime
		}
		return t.UnixNano()
	}
	err = r.pool.EachRow(ctx, `SELECT min(seq), max(seq) FROM evidence
		WHERE shard = {shard:String} AND broker_time >= fromUnixTimestamp64Nano({since:Int64}) AND broker_time < fromUnixTimestamp64Nano({until:Int64})`,
		func(rows driver.Rows) error { return rows.Scan(&first, &last) },
		conn.Param("shard", shard), conn.Param("since", bound(since, conn.MinTime)), conn.Param("until", bound(until, conn.MaxTime)))
	return first, last, err
}

// ScanReusingRow is Scan for large ranges: fn gets the same row each time, with other contents.
// Shard, Tenant, Session and Kind may be kept; the other strings are valid until fn returns.
// SessionIndex is not read. It uses a connection of its own, without compression if the
// server is on this machine: compressing would cost the server as much as reading.
func (r *Reader) ScanReusingRow(ctx context.Context, shard string, from, to uint64, fn func(*storage.EvidenceRow) error) error {
	if err := r.scanNative(ctx, shard, from, to, fn); !errors.Is(err, conn.ErrNotPlain) {
		return err
	}
	return r.scanReusingRow(ctx, shard, from, to, fn)
}

// scanReusingRow is ScanReusingRow through clickhouse-go.
func (r *Reader) scanReusingRow(ctx context.Context, shard string, from, to uint64, fn func(*storage.EvidenceRow) error) (err error) {
	own, err := r.pool.OpenSingle()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	var e storage.EvidenceRow
	var hash string
	into := []any{&e.Shard, &e.Seq, &e.Tenant, &e.Session, &e.Kind, &e.Subject, &e.BrokerTime, &e.BodyDigest, &e.Record, &hash, &e.Expiry}
	return own.EachRow(ctx, `SELECT shard, seq, tenant, session, kind, subject, broker_time, body_digest, record, record_hash, expiry FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} ORDER BY shard, seq`,
		func(rows driver.Rows) error {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			e.RecordHash = [32]byte{}
			copy(e.RecordHash[:], hash)
			return fn(&e)
		}, conn.Param("shard", shard), conn.Param("from", from), conn.Param("to", to))
}

// FirstOfNewest returns the least sequence among the newest n rows of some kinds in a shard,
// or storage.AllSequences if there is none.
func (r *Reader) FirstOfNewest(ctx context.Context, shard string, kinds []string, n int) (least uint64, err error) {
	least = storage.AllSequences
	err = r.pool.EachRow(ctx, `SELECT seq FROM evidence WHERE shard = {shard:String} AND has({kinds:Array(String)}, kind) ORDER BY shard DESC, seq DESC LIMIT {n:Int64}`,
		func(rows driver.Rows) error { return rows.Scan(&least) }, conn.Param("shard", shard), conn.Param("kinds", kinds), conn.Param("n", int64(n)))
	return least, err
}
