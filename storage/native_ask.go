package storage

import (
	"context"
	"errors"
	"sync"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
)

// A short query through clickhouse-go costs the server and this process a third
// more than one on a plain connection: what is looked up one at a time takes those.

// lookupBufferSize is how much is read at a time from a connection for short answers.
const lookupBufferSize = 64 << 10

// maxIdle bounds the plain connections that are kept.
const maxIdle = 4

// idleConns are the plain connections that nobody uses.
type idleConns struct {
	mu     sync.Mutex
	list   []*nativeConn
	closed bool
}

func (i *idleConns) get() *nativeConn {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.list) == 0 {
		return nil
	}
	c := i.list[len(i.list)-1]
	i.list = i.list[:len(i.list)-1]
	return c
}

// put takes a connection that has nothing left to say.
func (i *idleConns) put(c *nativeConn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || len(i.list) >= maxIdle {
		_ = c.Close()
		return
	}
	i.list = append(i.list, c)
}

func (i *idleConns) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	for _, c := range i.list {
		_ = c.Close()
	}
	i.list = nil
}

// lookupSettings make a look-up cheaper for the server: planning is most of what it
// does, and one thread all that it needs. Who may only read may not set them, and a
// later server may not know them: then it goes without.
var lookupSettings = []proto.Setting{{Key: "max_threads", Value: "1"}, {Key: "enable_analyzer", Value: "0"}}

// queryNative runs a query that changes nothing on a plain connection and hands over
// the blocks of the answer; errNative if there is no such connection. A connection
// that was kept and has ended meanwhile, with the server perhaps, is not an error.
func (db *DB) queryNative(ctx context.Context, query string, into proto.Results, fn func(rows int) error) error {
	if !db.noSettings.Load() {
		err := db.queryNativeWith(ctx, query, lookupSettings, into, fn)
		if refused := (*clickhouse.Exception)(nil); !errors.As(err, &refused) {
			return err
		}
	}
	err := db.queryNativeWith(ctx, query, nil, into, fn)
	if err == nil {
		db.noSettings.Store(true)
	}
	return err
}

func (db *DB) queryNativeWith(ctx context.Context, query string, settings []proto.Setting, into proto.Results, fn func(rows int) error) error {
	for {
		conn := db.idle.get()
		kept := conn != nil
		if !kept {
			var err error
			if conn, err = db.dialNative(ctx, lookupBufferSize); err != nil {
				return err
			}
		}
		answered := false
		err := conn.runQuery(ctx, query, settings, into, func(rows int) error { answered = true; return fn(rows) })
		if err == nil {
			db.idle.put(conn)
			return nil
		}
		_ = conn.Close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused := (*clickhouse.Exception)(nil); !kept || answered || errors.As(err, &refused) {
			return db.queryError(err)
		}
	}
}

// runQuery runs a query unless ctx ends, which closes the connection.
func (c *nativeConn) runQuery(ctx context.Context, query string, settings []proto.Setting, into proto.Results, fn func(rows int) error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	err := c.sendQuery(query, settings)
	if err == nil {
		err = c.readBlocks(into, fn)
	}
	if !stop() { // it may be closed: not to be kept
		return errors.Join(ctx.Err(), err)
	}
	return err
}
