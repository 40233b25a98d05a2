// Package rows reads rows of the table evidence.
package rows

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Columns lists the columns that scan reads.
const Columns = "shard, seq, tenant, session, session_index, kind, subject, broker_time, body_digest, record, record_hash, expiry"

func scan(rows driver.Rows) (r storage.EvidenceRow, err error) {
	var hash string
	err = rows.Scan(&r.Shard, &r.Seq, &r.Tenant, &r.Session, &r.SessionIndex, &r.Kind, &r.Subject, &r.BrokerTime, &r.BodyDigest, &r.Record, &hash, &r.Expiry)
	copy(r.RecordHash[:], hash)
	r.BrokerTime = r.BrokerTime.UTC()
	return r, err
}

// Each makes of fn a function for EachRow, for a query of Columns.
func Each(fn func(storage.EvidenceRow) error) func(driver.Rows) error {
	return func(rows driver.Rows) error {
		r, err := scan(rows)
		if err != nil {
			return err
		}
		return fn(r)
	}
}

// Hashes calls fn for the sequences and record hashes of a shard from one sequence to another
// (both included), in the order of the sequences.
func Hashes(ctx context.Context, p *conn.Pool, shard string, from, to uint64, fn func(uint64, [32]byte) error) error {
	return p.EachRow(ctx, `SELECT seq, record_hash FROM evidence
		WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} ORDER BY shard, seq`,
		func(rows driver.Rows) error {
			var seq uint64
			var text string
			var hash [32]byte
			if err := rows.Scan(&seq, &text); err != nil {
				return err
			}
			copy(hash[:], text)
			return fn(seq, hash)
		}, conn.Param("shard", shard), conn.Param("from", from), conn.Param("to", to))
}

// Only every TileHeight-th level of the tree is stored. Level 0, the hashes of records, is in
// evidence already. A hash between two stored levels is computed from hashes of the lower one
// in one tile: TileWidth adjacent hashes, which are read together.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight
)
