package storage

import (
	"errors"
	"fmt"
)

// ErrNotFound says that nothing in the database matches.
var ErrNotFound = errors.New("not found")

// ConflictError says that the database holds other rows than this writer stored: another
// writer is at work on the shard, or rows were changed. The writer must stop.
type ConflictError struct {
	Shard string
	Table string // evidence or tree_hashes
	Seq   uint64 // the first sequence (or tree index) that differs
	What  string // what differs there
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("table %s, shard %s, at %d: %s: another writer is at work, or rows were changed", e.Table, e.Shard, e.Seq, e.What)
}
