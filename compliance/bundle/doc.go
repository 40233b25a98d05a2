// Package bundle writes and verifies the files in which evidence leaves the
// installation: the bundle of a session, and that of everything of a tenant between
// two times. Beside the records and their proofs a bundle holds what people read: a
// report, an index of the controls that the evidence bears on, a table, what decided,
// and a signed statement over the whole.
//
// Everything but what decided and the statement follows from the records alone, so a
// verifier makes it again and compares. A bundle verifies with nothing but the file
// and the checkpoint key. docs/evidence-format.md, section 5, is the format.
package bundle

import "errors"

var (
	// ErrInvalid says that a file is not an export bundle that can be read, or that
	// what was to be written is none.
	ErrInvalid = errors.New("evidence: not a readable export bundle")
	// ErrEmpty says that a range has no record.
	ErrEmpty = errors.New("evidence: no record in this range")
)
