package evidence

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
	// ErrKeys says that a key that redaction needs is missing or too short.
	ErrKeys = errors.New("evidence: a digest or session key is missing")
	// ErrRecord says that a text is not an evidence record in canonical form.
	ErrRecord = errors.New("evidence: not a canonical evidence record")
	// ErrCheckpoint says that a note is not a checkpoint of this log, or not
	// signed by a known key.
	ErrCheckpoint = errors.New("evidence: not a valid checkpoint")
	// ErrUnwrap says that a wrapped session key is damaged or was wrapped for
	// another tenant or session.
	ErrUnwrap = errors.New("evidence: the wrapped session key does not open")
	// ErrTree says that stored tree hashes do not fit the size of the tree.
	ErrTree = errors.New("evidence: the tree hashes do not fit the tree size")
	// ErrWitnessKey says that a text is not a witness's key.
	ErrWitnessKey = errors.New("evidence: not a witness key (name+hash+key with type byte 4)")
	// ErrRollback says that the witness has already signed a larger tree of the log.
	ErrRollback = errors.New("evidence: the log has become shorter")
	// ErrFork says that a checkpoint does not extend the one that the witness signed before.
	ErrFork = errors.New("evidence: the log has another history than the one that was signed")
	// ErrProof says that a text is not a readable proof.
	ErrProof = errors.New("evidence: not a readable proof")
)
