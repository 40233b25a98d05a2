// Package read reads what proves: the rows of evidence, the checkpoints and the hashes of the
// Merkle tree. Auditors, exports, verifications and the auditor service use it; a user with
// SELECT on the database, or an auditor of one tenant, can run every query. Begin with Open.
package read

import (
	"context"
	"sync/atomic"

	"github.com/countersign-dev/countersign/storage/conn"
)

// Reader reads evidence, checkpoints and tree hashes. Its methods are safe for concurrent use.
type Reader struct {
	pool     *conn.Pool
	hasViews atomic.Bool // evidence is a view (an auditor's database)
}

// New makes a reader over connections that the caller closes.
func New(pool *conn.Pool) *Reader { return &Reader{pool: pool} }

// Open connects as conn.Open does; Close closes the connections.
func Open(ctx context.Context, dsn string) (*Reader, error) {
	pool, err := conn.Open(ctx, dsn)
	if err != nil {
		return nil, err
	}
	return New(pool), nil
}

// Pool holds the reader's connections, for other readers of the same database.
func (r *Reader) Pool() *conn.Pool { return r.pool }

// Close closes the connections.
func (r *Reader) Close() error { return r.pool.Close() }
