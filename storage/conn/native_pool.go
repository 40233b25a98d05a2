package conn

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
)

// A short query through clickhouse-go costs the server and this process a third more than one
// on a plain connection, so single look-ups use plain connections.

// lookupBufferSize is the size of the read buffer of a connection for short answers.
const lookupBufferSize = 64 << 10

// maxIdle bounds the number of kept plain connections.
const maxIdle = 4

// idleConns are the plain connections that are not in use.
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

// put keeps a connection on which no answer is outstanding, or closes it.
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

// lookupSettings make a look-up cheaper for the server: planning is most of its cost, and one
// thread is enough. A read-only user may not set them, and a later server may not know them;
// QueryNative then goes without.
var lookupSettings = []proto.Setting{{Key: "max_threads", Value: "1"}, {Key: "enable_analyzer", Value: "0"}}

// QueryNative runs a read-only query on a plain connection and calls fn for each block of the
// answer. It returns ErrNotPlain if there is no plain connection. If a kept connection was
// closed meanwhile, by a restart of the server for instance, it dials again.
func (p *Pool) QueryNative(ctx context.Context, query string, into proto.Results, fn func(rows int) error) error {
	if !p.noSettings.Load() {
		err := p.queryNativeWith(ctx, query, lookupSettings, into, fn)
		if refused := (*clickhouse.Exception)(nil); !errors.As(err, &refused) || !slices.Contains(settingsRefused, refused.Code) {
			return err
		}
		p.noSettings.Store(true)
	}
	return p.queryNativeWith(ctx, query, nil, into, fn)
}

// settingsRefused are the server's codes for lookupSettings that it does not take: UNKNOWN_SETTING,
// READONLY, SETTING_CONSTRAINT_VIOLATION. Any other error concerns one query.
var settingsRefused = []int32{115, 164, 452}

func (p *Pool) queryNativeWith(ctx context.Context, query string, settings []proto.Setting, into proto.Results, fn func(rows int) error) error {
	for {
		conn := p.idle.get()
		kept := conn != nil
		if !kept {
			var err error
			if conn, err = p.dialNative(ctx, lookupBufferSize); err != nil {
				return err
			}
		}
		answered := false
		err := conn.runQuery(ctx, query, settings, into, func(rows int) error { answered = true; return fn(rows) })
		if err == nil {
			p.idle.put(conn)
			return nil
		}
		_ = conn.Close()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused := (*clickhouse.Exception)(nil); !kept || answered || errors.As(err, &refused) {
			return p.QueryError(err)
		}
	}
}

// runQuery runs a query. If ctx ends, it closes the connection.
func (c *nativeConn) runQuery(ctx context.Context, query string, settings []proto.Setting, into proto.Results, fn func(rows int) error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	err := c.sendQuery(query, settings)
	if err == nil {
		err = c.readBlocks(into, fn)
	}
	if !stop() { // the connection may be closed, so the caller must not keep it
		return errors.Join(ctx.Err(), err)
	}
	return err
}
