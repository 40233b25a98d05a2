package records

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/storage/conn"
)

// SessionParent is a session and its parent, as its newest call record with a parent says.
type SessionParent struct {
	Session string
	Seq     uint64 // of that record
	Parent  events.CallParent
}

// SessionParents lists the sessions of a tenant with call records that name a parent, in a
// range of sequences of a shard, in the order of the newest such record. It reads the call records
// of the range, so the caller should bound the range.
func (r *Reader) SessionParents(ctx context.Context, shard, tenant string, from, to uint64) (list []SessionParent, err error) {
	err = r.pool.EachRow(ctx, `SELECT session, last, tupleElement(p, 'session'), tupleElement(p, 'source'), tupleElement(p, 'call_id'), tupleElement(p, 'by')
		FROM (SELECT session, max(seq) AS last, argMax(parent, seq) AS p FROM (
			SELECT session, seq, JSONExtract(record, 'body', 'parent', 'Tuple(session String, source String, call_id String, by String)') AS parent
			FROM evidence
			WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} AND kind = 'call' AND tenant = {tenant:String}
				AND position(record, '"parent":{') > 0
		) WHERE tupleElement(parent, 'session') != '' AND session != ''
		GROUP BY session) ORDER BY last`,
		func(row driver.Rows) error {
			var k SessionParent
			err := row.Scan(&k.Session, &k.Seq, &k.Parent.Session, &k.Parent.Source, &k.Parent.CallID, &k.Parent.By)
			k.Parent.Session = subject.TokenValue(k.Parent.Session)
			list = append(list, k)
			return err
		}, conn.Param("shard", shard), conn.Param("tenant", tenant), conn.Param("from", from), conn.Param("to", to))
	return list, err
}
