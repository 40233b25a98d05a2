package tree

import "errors"

// Errors that callers decide on.
var (
	// ErrCheckpoint says that a note is not a checkpoint of this log, or not
	// signed by a known key.
	ErrCheckpoint = errors.New("evidence: not a valid checkpoint")
	// ErrTree says that stored tree hashes do not fit the size of the tree.
	ErrTree = errors.New("evidence: the tree hashes do not fit the tree size")
	// ErrWitnessKey says that a text is not a witness's key.
	ErrWitnessKey = errors.New("evidence: not a witness key (name+hash+key with type byte 4)")
	// ErrRollback says that the witness has already signed a larger tree of the log.
	ErrRollback = errors.New("evidence: the log has become shorter")
	// ErrFork says that a checkpoint does not extend the one that the witness signed before.
	ErrFork = errors.New("evidence: the log has another history than the one that was signed")
)
