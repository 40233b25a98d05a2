package verify

import "errors"

// ErrProof says that a text is not a readable proof.
var ErrProof = errors.New("evidence: not a readable proof")
