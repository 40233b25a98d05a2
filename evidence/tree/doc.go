// Package tree holds the Merkle tree over the records of a shard (RFC 6962), the proofs of
// inclusion and consistency, the checkpoints that sign the root of the tree, the intents that
// announce a checkpoint, and the cosignatures of witnesses.
//
// It knows a record as a hash and its sequence alone. Leaf seq-1 is the record of log
// sequence seq. The package is pure: it reads no clock, no randomness and no files.
package tree
