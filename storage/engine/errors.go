package engine

import "errors"

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
	// ErrOlderEngine: a newer engine has written the data directory; ClickHouse cannot go back.
	ErrOlderEngine = errors.New("a newer ClickHouse has written the data directory")
	// ErrPortBusy: another process listens on the requested port.
	ErrPortBusy = errors.New("the engine's port is in use")
	// ErrEngineDied: the engine's process ended without Stop.
	ErrEngineDied = errors.New("the ClickHouse engine died")
)

// clickHouseUnavailable ends every message about an engine that is not available.
const clickHouseUnavailable = "or use a ClickHouse of your own with --clickhouse clickhouse://user:password@host:9000/countersign"
