// Package evidence turns the messages of a shard's log into tamper-evident
// records and verifies them.
//
// Every log message becomes exactly one Record: a redacted copy in RFC 8785
// form, chained to the record before it in its session, hashed, and appended as
// one leaf to an RFC 6962 Merkle tree. Checkpoints sign the root of the tree
// (architecture section 6; docs/evidence-format.md has every byte). Builder
// makes records, package tree makes the log, Verifier checks a whole shard,
// Session checks a session with inclusion proofs, RangeVerifier checks the
// records between two times. compliance/bundle writes the files in which evidence
// is handed out.
//
// The package is pure: keys, nonces, stored hashes and rows come in; records,
// proofs and reports go out. It reads no clock, no randomness and no files.
package evidence
