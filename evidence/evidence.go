// Package evidence is the record format of the tamper-evident Merkle tree: Record, its row and its kinds,
// and the names and keys of sessions.
//
// Every log message becomes exactly one Record: a redacted copy in RFC 8785 form, chained to the
// record before it in its session, hashed, and appended as one leaf to an RFC 6962 Merkle tree.
// Checkpoints sign the root of the tree (docs/evidence-format.md has every byte). Package build
// makes the records, package tree is the Merkle tree, package verify checks a whole shard (Verifier), a
// session with inclusion proofs (Session) and the records between two times (RangeVerifier).
// compliance/bundle writes the files in which evidence is handed out.
//
// The package and those below it are pure: keys, nonces, stored hashes and rows come in; records,
// proofs and reports go out. They read no clock, no randomness and no files. Begin
// reading with Record.
package evidence

import (
	"errors"
)

// Errors that callers decide on.
var (
	// ErrKeys says that a key that redaction needs is missing or too short.
	ErrKeys = errors.New("evidence: a digest or session key is missing")
	// ErrRecord says that a text is not an evidence record in canonical form.
	ErrRecord = errors.New("evidence: not a canonical evidence record")
	// ErrUnwrap says that a wrapped session key is damaged or was wrapped for
	// another tenant or session.
	ErrUnwrap = errors.New("evidence: the wrapped session key does not open")
)
