package verify

// ProofHead is the first line of a proof.
const ProofHead = proofHead
