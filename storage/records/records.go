// Package records reads the typed tables that materialized views fill from evidence: decisions,
// calls, findings and approvals, and which records a replay begins with. The tables are
// indexes: a user with write access can change them, and a verification compares them with
// the evidence. Begin with Reader.
package records

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/conn"
)

// Reader reads the typed tables. Its methods are safe for concurrent use.
type Reader struct{ pool *conn.Pool }

// New makes a reader over connections that the caller closes.
func New(pool *conn.Pool) *Reader { return &Reader{pool} }

// Place is where a record is.
type Place struct {
	Shard string `ch:"shard"`
	Seq   uint64 `ch:"seq"`
}

// DecisionPlaces returns where the decision with an id is, in any session, in log order. More than one place
// means that one is forged. It returns storage.ErrNotFound if there is none.
func (r *Reader) DecisionPlaces(ctx context.Context, tenant, id string) (places []Place, err error) {
	err = r.pool.Select(ctx, &places, "SELECT shard, seq FROM decisions WHERE tenant = {tenant:String} AND decision_id = {id:String} ORDER BY shard, seq",
		conn.Param("tenant", tenant), conn.Param("id", id))
	if err == nil && len(places) == 0 {
		err = fmt.Errorf("decision %.64q of tenant %.64q: %w", id, tenant, storage.ErrNotFound)
	}
	return places, err
}
