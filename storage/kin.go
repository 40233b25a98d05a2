package storage

import (
	"context"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// SessionParent is a session and what it belongs to, as the newest of its call records
// says.
type SessionParent struct {
	Session string
	Seq     uint64 // of that record
	Parent  events.CallParent
}

// SessionParents gives the sessions of a tenant that say in a range of sequences of a shard
// what they belong to, in the order of their last word on it, at most so many; 0 is
// all. It reads the call records of the range, so the range should be bounded.
func (db *DB) SessionParents(ctx context.Context, shard, tenant string, from, to uint64, most int) (list []SessionParent, err error) {
	err = db.eachRow(ctx, `SELECT session, last, tupleElement(p, 'session'), tupleElement(p, 'source'), tupleElement(p, 'call_id'), tupleElement(p, 'by')
		FROM (SELECT session, max(seq) AS last, argMax(parent, seq) AS p FROM (
			SELECT session, seq, JSONExtract(record, 'body', 'parent', 'Tuple(session String, source String, call_id String, by String)') AS parent
			FROM evidence
			WHERE shard = {shard:String} AND seq BETWEEN {from:UInt64} AND {to:UInt64} AND kind = 'call' AND tenant = {tenant:String}
				AND position(record, '"parent":{') > 0
		) WHERE tupleElement(parent, 'session') != '' AND session != ''
		GROUP BY session) ORDER BY last`+limitClause(most),
		func(r driver.Rows) error {
			var k SessionParent
			err := r.Scan(&k.Session, &k.Seq, &k.Parent.Session, &k.Parent.Source, &k.Parent.CallID, &k.Parent.By)
			k.Parent.Session = subject.TokenValue(k.Parent.Session)
			list = append(list, k)
			return err
		}, queryParam("shard", shard), queryParam("tenant", tenant), queryParam("from", from), queryParam("to", to))
	return list, err
}
