// Package verify checks records, sessions and whole shards against signed checkpoints. Examiner.Examine judges one row;
// Verifier joins the rows of a shard, and Session and RangeVerifier those of a part of it. Begin with Verifier.
package verify

import "errors"

// ErrProof says that a text is not a readable proof.
var ErrProof = errors.New("evidence: not a readable proof")
