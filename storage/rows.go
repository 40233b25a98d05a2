// Package storage names what is stored in ClickHouse: the rows of evidence, the nodes of the
// Merkle tree and the checkpoints, and the errors that its readers and writers share. It knows
// no policy and does not interpret records.
//
// The work is in the folders below:
//
//   - engine runs or finds a ClickHouse; conn connects to it; schema makes the tables.
//   - write is what the auditor alone does: it commits batches exactly once, repairs the
//     derived tables, lets texts expire.
//   - read is what auditors, exports and verifications read: evidence, checkpoints, trees.
//   - records reads the typed tables, expiry finds what may expire, questions answers
//     the questions of auditors.
//
// Begin with engine.Start, conn.Open, schema.Migrate and Writer.CommitEvidence of write;
// docs/operating.md describes how to run it.
package storage

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// TenantDatabase begins the name of the database with the views of an auditor of one tenant.
const TenantDatabase = "audit_"

// Kinds of evidence records.
const (
	KindRequest     = "request"
	KindEvent       = "event"
	KindDecision    = "decision"
	KindCall        = "call"
	KindFinding     = "finding"
	KindApproval    = "approval"
	KindControl     = "control"
	KindUnparseable = "unparseable"
)

// Kinds lists every kind of evidence record.
var Kinds = []string{KindRequest, KindEvent, KindDecision, KindCall, KindFinding, KindApproval, KindControl, KindUnparseable}

// EvidenceRow is one row of the table evidence. Record contains what the other fields hold,
// and Record is what was hashed; if they differ, the row was tampered with.
type EvidenceRow struct {
	Shard      string    // the log stream's incarnation
	Seq        uint64    // from 1
	Tenant     string    // from the subject
	Session    string    // empty where there is none
	Kind       string    // one of Kinds
	Subject    string    // the log subject
	BrokerTime time.Time // UTC, nanoseconds
	BodyDigest string
	Record     string // the canonical text
	RecordHash [32]byte
	// Expiry is the sequence of the control record that explains why Record is empty, 0 if
	// Record is not empty. Queries set it; inserts ignore it, except InsertCopy.
	Expiry       uint64
	SessionIndex *uint64 // index in the session's chain; nil if there is none
}

// AllSequences is the upper end of an unbounded range.
const AllSequences uint64 = math.MaxUint64

// Checkpoint is one signed tree head of a shard.
type Checkpoint struct {
	Shard   string
	Size    uint64 // leaves
	Root    [32]byte
	Note    string // the signed note (golang.org/x/mod/sumdb/note)
	Created time.Time
}

// TreeNode is one hash of a shard's Merkle tree.
type TreeNode struct {
	Index uint64 // tlog.StoredHashIndex
	Hash  [32]byte
}

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
