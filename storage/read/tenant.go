package read

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
	"github.com/countersign-dev/countersign/storage/internal/rows"
)

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
