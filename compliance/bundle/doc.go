// Package bundle writes and verifies the files in which evidence leaves the installation: a tenant's
// records of one session, or all between two times. The export command writes them (Write); Verify
// checks them with only the file and the checkpoint key.
//
// Besides the records and the cover that proves them a bundle holds members for readers: a report, an index of
// the controls that the evidence bears on, a table, the policies and mandates that decided or were
// in force, and a signed statement over all members. Everything except the policies, the mandates
// and the statement follows from the records, so Verify makes it again and compares. The package does not
// read the database: its callers supply rows and tree hashes. Begin with Write and Verify;
// docs/evidence-format.md, section 5, is the format.
package bundle

import "errors"

var (
	// ErrInvalid says that a file is not a readable bundle, or that the input of a writer is
	// not valid.
	ErrInvalid = errors.New("evidence: not a readable export bundle")
	// ErrEmpty says that a bundle would have no record.
	ErrEmpty = errors.New("evidence: no record to write")
)
