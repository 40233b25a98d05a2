package storage

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ofTenant is the rows of one tenant in a shard, stored from one time on and
// before another.
const ofTenant = ` FROM evidence WHERE shard = {shard:String} AND tenant = {tenant:String}
	AND broker_time >= fromUnixTimestamp64Nano({from:Int64}) AND broker_time < fromUnixTimestamp64Nano({to:Int64})`

// ScanTenant gives fn the rows of a tenant in a shard whose broker time is not
// before from and before to, in the order of the sequences. It holds a block of
// them at a time, however many there are. fn may query db.
func (db *DB) ScanTenant(ctx context.Context, shard, tenant string, from, to time.Time, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+ofTenant+` ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("tenant", tenant), queryParam("from", from.UnixNano()), queryParam("to", to.UnixNano()))
}

// CountTenant counts what ScanTenant gives.
func (db *DB) CountTenant(ctx context.Context, shard, tenant string, from, to time.Time) (n uint64, err error) {
	err = db.eachRow(ctx, `SELECT count()`+ofTenant, func(rows driver.Rows) error { return rows.Scan(&n) },
		queryParam("shard", shard), queryParam("tenant", tenant), queryParam("from", from.UnixNano()), queryParam("to", to.UnixNano()))
	return n, err
}
