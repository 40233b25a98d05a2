package storage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
	"unsafe"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
)

// Verification reads every text there is. clickhouse-go copies each four to six
// times and allocates twice for it, which was half of what verification cost;
// this reads blocks of the native protocol and shows their columns as they lie
// there. It knows one query, over plain TCP to this machine; everything else goes
// through clickhouse-go.

// nativeVersion is the protocol that is asked for: enough to read columns, and
// nothing that a reader of columns has no use for (sparse columns, events of
// profiling).
const nativeVersion = int(proto.FeatureDistributedDepth)

// nativeBufferSize is how much is read at a time from a connection for long answers.
const nativeBufferSize = 1 << 20

// errNative says that the short way cannot be taken; nothing was read.
var errNative = errors.New("no plain connection")

type nativeConn struct {
	net.Conn
	r       *proto.Reader
	version int
}

// dialNative connects and logs in; room is how much is read at a time.
func (db *DB) dialNative(ctx context.Context, room int) (*nativeConn, error) {
	o := db.options
	if o.TLS != nil || o.DialContext != nil || !onlyLocal(o.Addr) {
		return nil, errNative
	}
	dialer := net.Dialer{Timeout: o.DialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", o.Addr[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNative, err)
	}
	c := &nativeConn{Conn: conn, r: proto.NewReader(bufio.NewReaderSize(conn, room)), version: nativeVersion}
	_ = conn.SetDeadline(time.Now().Add(max(o.DialTimeout, time.Second)))
	if err := c.sendHello(proto.ClientHello{Name: "countersign", Major: 1, ProtocolVersion: nativeVersion, Database: db.database, User: o.Auth.Username, Password: o.Auth.Password}); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errNative, err), conn.Close())
	}
	return c, conn.SetDeadline(time.Time{})
}

func (c *nativeConn) sendHello(h proto.ClientHello) error {
	var b proto.Buffer
	h.Encode(&b)
	if _, err := c.Write(b.Buf); err != nil {
		return err
	}
	code, err := c.readCode()
	if err != nil {
		return err
	}
	if code != proto.ServerCodeHello {
		return c.unexpectedPacket(code)
	}
	var server proto.ServerHello
	if err := server.DecodeAware(c.r, nativeVersion); err != nil {
		return err
	}
	c.version = min(c.version, server.Revision)
	return nil
}

func (c *nativeConn) readCode() (proto.ServerCode, error) {
	n, err := c.r.UVarInt()
	return proto.ServerCode(n), err
}

// unexpectedPacket turns what came instead of what was wanted into an error.
func (c *nativeConn) unexpectedPacket(code proto.ServerCode) error {
	if code != proto.ServerCodeException {
		return fmt.Errorf("the server sent packet %d", code)
	}
	var e proto.Exception
	if err := e.DecodeAware(c.r, c.version); err != nil {
		return err
	}
	return &clickhouse.Exception{Code: int32(e.Code), Name: e.Name, Message: e.Message}
}

// sendQuery sends a query.
func (c *nativeConn) sendQuery(query string, settings []proto.Setting) error {
	var b proto.Buffer
	proto.Query{Body: query, Stage: proto.StageComplete, Compression: proto.CompressionDisabled, Settings: settings, Info: proto.ClientInfo{
		ProtocolVersion: c.version, Major: 1, Interface: proto.InterfaceTCP, Query: proto.ClientQueryInitial, InitialAddress: c.LocalAddr().String(), ClientName: "countersign",
	}}.EncodeAware(&b, c.version)
	proto.ClientCodeData.Encode(&b)
	proto.ClientData{}.EncodeAware(&b, c.version)
	proto.Block{}.EncodeAware(&b, c.version)
	_, err := c.Write(b.Buf)
	return err
}

// readBlocks hands over the blocks of the answer. Their columns are those of into, and
// belong to fn until it returns.
func (c *nativeConn) readBlocks(into proto.Results, fn func(rows int) error) error {
	for {
		code, err := c.readCode()
		if err != nil {
			return err
		}
		switch code {
		case proto.ServerCodeData:
			rows, err := c.readBlock(into)
			if err == nil && rows > 0 {
				err = fn(rows)
			}
			if err != nil {
				return err
			}
		case proto.ServerCodeProgress:
			err = new(proto.Progress).DecodeAware(c.r, c.version)
		case proto.ServerCodeProfile:
			err = new(proto.Profile).DecodeAware(c.r, c.version)
		case proto.ServerCodeEndOfStream:
			return nil
		default:
			return c.unexpectedPacket(code)
		}
		if err != nil {
			return err
		}
	}
}

func (c *nativeConn) readBlock(into proto.Results) (rows int, err error) {
	if _, err := c.r.Str(); err != nil { // the name of a table that is sent along
		return 0, err
	}
	var b proto.Block
	if err := b.DecodeBlock(c.r, c.version, into); err != nil {
		return 0, err
	}
	return b.Rows, nil
}

// nativeColumns are the columns of a sweep.
type nativeColumns struct {
	shard, tenant, session, kind, subject, digest, record proto.ColStr
	seq, expiry                                           proto.ColUInt64
	at                                                    proto.ColInt64
	hash                                                  proto.ColFixedStr

	names map[string]string // those that come again and again
}

const nativeScanQuery = `SELECT CAST(shard, 'String') AS shard_, seq, CAST(tenant, 'String') AS tenant_, session, CAST(kind, 'String') AS kind_, subject,
	toUnixTimestamp64Nano(broker_time) AS at_, body_digest, record, record_hash, expiry FROM evidence WHERE shard = `

// scanNative is Sweep over a plain connection; errNative if there is none.
func (db *DB) scanNative(ctx context.Context, shard string, from, to uint64, fn func(*EvidenceRow) error) error {
	conn, err := db.dialNative(ctx, nativeBufferSize)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() { stop(); _ = conn.Close() }()
	if err := conn.sendQuery(nativeScanQuery+sqlString(shard)+" AND seq BETWEEN "+strconv.FormatUint(from, 10)+" AND "+strconv.FormatUint(to, 10)+" ORDER BY shard, seq", nil); err != nil {
		return errors.Join(ctx.Err(), db.queryError(err))
	}
	c := &nativeColumns{hash: proto.ColFixedStr{Size: len(EvidenceRow{}.RecordHash)}, names: map[string]string{}}
	var mine error // of fn: returned as it is
	err = conn.readBlocks(c.protoResults(), func(rows int) error {
		mine = c.eachRow(rows, fn)
		return mine
	})
	switch {
	case mine != nil:
		return mine
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return db.queryError(err)
}

func (c *nativeColumns) protoResults() proto.Results {
	return proto.Results{
		{Name: "shard_", Data: &c.shard}, {Name: "seq", Data: &c.seq}, {Name: "tenant_", Data: &c.tenant}, {Name: "session", Data: &c.session},
		{Name: "kind_", Data: &c.kind}, {Name: "subject", Data: &c.subject}, {Name: "at_", Data: &c.at}, {Name: "body_digest", Data: &c.digest},
		{Name: "record", Data: &c.record}, {Name: "record_hash", Data: &c.hash}, {Name: "expiry", Data: &c.expiry},
	}
}

func (c *nativeColumns) eachRow(rows int, fn func(*EvidenceRow) error) error {
	var r EvidenceRow
	for i := range rows {
		r = EvidenceRow{
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

// maxNames bounds how many names a sweep remembers.
const maxNames = 4096

// internName gives a name that stays.
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

// unsafeString is a part of a column as a text; it goes with the column.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
