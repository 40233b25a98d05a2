package read

import (
	"context"
	"strconv"
	"time"
	"unsafe"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// nativeColumns are the columns that scanNative reads.
type nativeColumns struct {
	shard, tenant, session, kind, subject, digest, record proto.ColStr
	seq, expiry                                           proto.ColUInt64
	at                                                    proto.ColInt64
	hash                                                  proto.ColFixedStr

	names map[string]string // interned names
}

const nativeScanQuery = `SELECT CAST(shard, 'String') AS shard_, seq, CAST(tenant, 'String') AS tenant_, session, CAST(kind, 'String') AS kind_, subject,
	toUnixTimestamp64Nano(broker_time) AS at_, body_digest, record, record_hash, expiry FROM evidence WHERE shard = `

// scanNative is ScanReusingRow over a plain connection. It returns conn.ErrNotPlain if there is
// none.
func (r *Reader) scanNative(ctx context.Context, shard string, from, to uint64, fn func(*storage.EvidenceRow) error) error {
	c := &nativeColumns{hash: proto.ColFixedStr{Size: len(storage.EvidenceRow{}.RecordHash)}, names: map[string]string{}}
	query := nativeScanQuery + conn.QuoteString(shard) + " AND seq BETWEEN " + strconv.FormatUint(from, 10) + " AND " + strconv.FormatUint(to, 10) + " ORDER BY shard, seq"
	return r.pool.StreamNative(ctx, query, c.protoResults(), func(rows int) error { return c.eachRow(rows, fn) })
}

func (c *nativeColumns) protoResults() proto.Results {
	return proto.Results{
		{Name: "shard_", Data: &c.shard}, {Name: "seq", Data: &c.seq}, {Name: "tenant_", Data: &c.tenant}, {Name: "session", Data: &c.session},
		{Name: "kind_", Data: &c.kind}, {Name: "subject", Data: &c.subject}, {Name: "at_", Data: &c.at}, {Name: "body_digest", Data: &c.digest},
		{Name: "record", Data: &c.record}, {Name: "record_hash", Data: &c.hash}, {Name: "expiry", Data: &c.expiry},
	}
}

func (c *nativeColumns) eachRow(rows int, fn func(*storage.EvidenceRow) error) error {
	var r storage.EvidenceRow
	for i := range rows {
		r = storage.EvidenceRow{
			Shard: c.internName(c.shard.RowBytes(i)), Seq: c.seq.Row(i), Tenant: c.internName(c.tenant.RowBytes(i)), Session: c.internName(c.session.RowBytes(i)),
			Kind: c.internName(c.kind.RowBytes(i)), Subject: unsafeString(c.subject.RowBytes(i)), BrokerTime: time.Unix(0, c.at.Row(i)).UTC(),
			BodyDigest: unsafeString(c.digest.RowBytes(i)), Record: unsafeString(c.record.RowBytes(i)), RecordHash: [32]byte(c.hash.Row(i)), Expiry: c.expiry.Row(i),
		}
		if err := fn(&r); err != nil {
			return err
		}
	}
	return nil
}

// maxNames bounds the number of interned names.
const maxNames = 4096

// internName returns a copy of a name that outlives the block; equal names share it.
func (c *nativeColumns) internName(b []byte) string {
	if known, ok := c.names[string(b)]; ok {
		return known
	}
	if len(c.names) >= maxNames {
		clear(c.names)
	}
	s := string(b)
	c.names[s] = s
	return s
}

// unsafeString views a part of a column as a string; it is valid as long as the column.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
