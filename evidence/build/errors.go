// Package build makes the records of a shard: Builder redacts and chains the messages of the log.
// Begin reading with Builder.BuildParts.
package build

import "errors"

// Errors that callers decide on.
var (
	// ErrShard says that a shard name is not valid in records.
	ErrShard = errors.New("evidence: a shard name is 1 to 200 printable characters without blanks or +")
	// ErrMessage says that a log message cannot come from a broker: it has no
	// sequence, a sequence beyond 2^53, or no time.
	ErrMessage = errors.New("evidence: not a message of a log")
	// ErrOrder says that messages were not given in sequence order, each exactly once.
	ErrOrder = errors.New("evidence: log messages are not consecutive")
)
