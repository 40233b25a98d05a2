package conn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
)

// Verification reads every text. clickhouse-go copies each text four to six times and
// allocates twice for it, which was half of the cost of verification. This file reads blocks
// of the native protocol and passes their columns on without a copy. It supports queries over
// plain TCP to this machine; everything else goes through clickhouse-go.

// nativeVersion is the protocol version to request: new enough for columns, and old enough to
// exclude what this reader does not need (sparse columns, profile events).
const nativeVersion = int(proto.FeatureDistributedDepth)

// nativeBufferSize is the size of a connection's read buffer.
const nativeBufferSize = 1 << 20

// ErrNotPlain says that there is no plain connection to this machine; nothing was read.
var ErrNotPlain = errors.New("no plain connection")

type nativeConn struct {
	net.Conn
	r       *proto.Reader
	version int
}

// dialNative connects and logs in.
func (p *Pool) dialNative(ctx context.Context) (*nativeConn, error) {
	o := p.options
	if o.TLS != nil || o.DialContext != nil || !onlyLocal(o.Addr) {
		return nil, ErrNotPlain
	}
	dialer := net.Dialer{Timeout: o.DialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", o.Addr[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPlain, err)
	}
	c := &nativeConn{Conn: conn, r: proto.NewReader(bufio.NewReaderSize(conn, nativeBufferSize)), version: nativeVersion}
	_ = conn.SetDeadline(time.Now().Add(max(o.DialTimeout, time.Second)))
	if err := c.sendHello(proto.ClientHello{Name: "countersign", Major: 1, ProtocolVersion: nativeVersion, Database: p.database, User: o.Auth.Username, Password: o.Auth.Password}); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNotPlain, err), conn.Close())
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

// unexpectedPacket turns an unexpected packet into an error.
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
func (c *nativeConn) sendQuery(query string) error {
	var b proto.Buffer
	proto.Query{Body: query, Stage: proto.StageComplete, Compression: proto.CompressionDisabled, Info: proto.ClientInfo{
		ProtocolVersion: c.version, Major: 1, Interface: proto.InterfaceTCP, Query: proto.ClientQueryInitial, InitialAddress: c.LocalAddr().String(), ClientName: "countersign",
	}}.EncodeAware(&b, c.version)
	proto.ClientCodeData.Encode(&b)
	proto.ClientData{}.EncodeAware(&b, c.version)
	proto.Block{}.EncodeAware(&b, c.version)
	_, err := c.Write(b.Buf)
	return err
}

// readBlocks calls fn for each block of the answer. The columns of into hold the block and
// are valid until fn returns.
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
	if _, err := c.r.Str(); err != nil { // the name of an external table
		return 0, err
	}
	var b proto.Block
	if err := b.DecodeBlock(c.r, c.version, into); err != nil {
		return 0, err
	}
	return b.Rows, nil
}

// StreamNative runs a query for a long answer on a plain connection of its own and calls fn for
// each block of it. The columns of into hold the block and are valid until fn returns. An
// error of fn is returned unchanged. It returns ErrNotPlain if there is no plain connection.
func (p *Pool) StreamNative(ctx context.Context, query string, into proto.Results, fn func(rows int) error) error {
	conn, err := p.dialNative(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() { stop(); _ = conn.Close() }()
	if err := conn.sendQuery(query); err != nil {
		return errors.Join(ctx.Err(), p.QueryError(err))
	}
	var mine error // the error of fn, returned unchanged
	err = conn.readBlocks(into, func(rows int) error {
		mine = fn(rows)
		return mine
	})
	switch {
	case mine != nil:
		return mine
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return p.QueryError(err)
}
