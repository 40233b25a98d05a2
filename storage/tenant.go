package storage

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ofTenant selects the rows of one tenant in a shard that were stored from one time on and
// before another.
const ofTenant = ` FROM evidence WHERE shard = {shard:String} AND tenant = {tenant:String}
	AND broker_time >= fromUnixTimestamp64Nano({from:Int64}) AND broker_time < fromUnixTimestamp64Nano({to:Int64})`

// ScanTenant calls fn for the rows of a tenant in a shard with a broker time not before from
// and before to, in the order of the sequences. It holds one block of rows at a time. fn may
// query db.
func (db *DB) ScanTenant(ctx context.Context, shard, tenant string, from, to time.Time, fn func(EvidenceRow) error) error {
	return db.eachRow(ctx, `SELECT `+evidenceColumnList+ofTenant+` ORDER BY shard, seq`,
		eachEvidence(fn), queryParam("shard", shard), queryParam("tenant", tenant), queryParam("from", from.UnixNano()), queryParam("to", to.UnixNano()))
}

// CountTenant counts the rows that ScanTenant finds.
func (db *DB) CountTenant(ctx context.Context, shard, tenant string, from, to time.Time) (n uint64, err error) {
	err = db.eachRow(ctx, `SELECT count()`+ofTenant, func(rows driver.Rows) error { return rows.Scan(&n) },
		queryParam("shard", shard), queryParam("tenant", tenant), queryParam("from", from.UnixNano()), queryParam("to", to.UnixNano()))
	return n, err
}
