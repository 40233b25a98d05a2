package events

// MandateChange records that an admitter decides under other mandates, revocations or signing
// keys. One without changes records the initial state.
type MandateChange struct {
	Writer   string        `json:"writer"`   // the admitter's process
	Revision uint64        `json:"revision"` // of the mandates bucket
	Digest   string        `json:"digest"`   // of the complete state; that after the last record, if one revision has several records
	Mandates int           `json:"mandates"` // in force
	Changes  []MandateStep `json:"changes"`  // what changed; empty for the initial state
}

// MandateStep is one change. It names the mandate by id and hash and holds none of its content.
type MandateStep struct {
	Change     string `json:"change"`               // put deleted revoked revocation_deleted keys
	Tenant     string `json:"tenant"`               // as a token of the bucket's keys
	MandateID  string `json:"mandate_id,omitempty"` // of the mandate; absent for keys
	Hash       string `json:"hash,omitempty"`       // of the mandate; of the document for keys
	Author     string `json:"author,omitempty"`     // unverified
	By         string `json:"by,omitempty"`         // of a revocation: operator or principal, as the server permits the key to be written
	Unreadable bool   `json:"unreadable,omitempty"` // what was put cannot be used
}
