// Package verify checks records, sessions and whole shards against signed checkpoints. Begin with Verifier.
package verify

import "errors"

// ErrProof says that a text is not a readable proof.
var ErrProof = errors.New("evidence: not a readable proof")
