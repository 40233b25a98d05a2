package read

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

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
