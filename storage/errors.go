package storage

import (
	"errors"
	"fmt"
)

// ErrNotFound says that nothing in the database matches.
var ErrNotFound = errors.New("not found")

// ConflictError says that the table evidence holds other rows than this writer stored: another
// writer is at work on the shard, or rows were changed. The writer must stop.
type ConflictError struct {
	Shard string
	Seq   uint64 // the first sequence that differs
	What  string // what differs there
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("evidence of shard %s, sequence %d: %s: another writer is at work, or rows were changed", e.Shard, e.Seq, e.What)
}
