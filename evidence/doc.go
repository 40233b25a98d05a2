// Package evidence turns the messages of a shard's log into tamper-evident
// records and checks them again.
//
// Every log message becomes exactly one Record: a redacted copy in RFC 8785
// form, chained to the record before it in its session, hashed, and appended as
// one leaf to an RFC 6962 Merkle tree whose root is signed in checkpoints
// (architecture section 6; docs/evidence-format.md has every byte). Builder
// makes records, Tree and Checkpoint the log, Verifier checks a whole shard,
// VerifySession a session with inclusion proofs, RangeVerifier the records between
// two times. compliance/bundle makes the files in which evidence is handed out.
//
// The package is pure: keys, nonces, stored hashes and rows come in, records,
// proofs and reports go out. It reads no clock, no randomness and no files.
package evidence
