package storage

import (
	"errors"
	"fmt"
)

// Errors of the engine.
var (
	// ErrPlatform: there is no embedded engine for this operating system,
	// processor or C library.
	ErrPlatform = errors.New("the embedded ClickHouse engine needs linux/amd64 with glibc")
	// ErrFetch: the engine's library is not cached and could not be fetched.
	ErrFetch = errors.New("the embedded ClickHouse engine could not be fetched")
	// ErrNotFetched says that the embedded engine is not there.
	ErrNotFetched = errors.New("the embedded ClickHouse engine is not there: run `countersign engine fetch`, or install the clickhouse program")
	// ErrDigest: a file or download is not the pinned engine library.
	ErrDigest = errors.New("not the pinned ClickHouse engine")
	// ErrDataDirInUse: another engine works on the data directory.
	ErrDataDirInUse = errors.New("the data directory is in use by another engine")
	// ErrPortBusy: another process listens on the requested port.
	ErrPortBusy = errors.New("the engine's port is in use")
	// ErrEngineDied: the engine's process ended without Stop.
	ErrEngineDied = errors.New("the ClickHouse engine died")
)

// Errors of the database.
var (
	// ErrAmbiguous: an insert failed and it is unknown whether its rows are stored. The
	// caller must call VerifyStored before it writes again.
	ErrAmbiguous = errors.New("it is unknown whether the rows were stored")
	// ErrBatch: the rows given to a writer do not form a batch (see InsertEvidence).
	ErrBatch = errors.New("not a valid batch")
	// ErrEarlierBuild: the database has the tables of a build from before the first
	// release, which this one does not read.
	ErrEarlierBuild = errors.New("the tables were made by an earlier build, from before the first release, and are not read")
	// ErrNotFound: nothing in the database matches.
	ErrNotFound = errors.New("not found")
)

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

// clickHouseUnavailable ends every message about an engine that is not available.
const clickHouseUnavailable = "or use a ClickHouse of your own with --clickhouse clickhouse://user:password@host:9000/countersign"
