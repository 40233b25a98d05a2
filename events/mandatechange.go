package events

// MandateChange records that an admitter now decides under other mandates,
// revocations or signing keys. One without changes is what it began with.
type MandateChange struct {
	Writer   string        `json:"writer"`
	Revision uint64        `json:"revision"` // of the mandates bucket
	Digest   string        `json:"digest"`   // of everything that now decides; of the last one where there are several records of one revision
	Mandates int           `json:"mandates"` // in force
	Changes  []MandateStep `json:"changes"`
}

// MandateStep is one change. It names the mandate by id and hash and holds
// nothing of what is in it.
type MandateStep struct {
	Change     string `json:"change"` // put deleted revoked revocation_deleted keys
	Tenant     string `json:"tenant"` // as a token of the bucket's keys
	MandateID  string `json:"mandate_id,omitempty"`
	Hash       string `json:"hash,omitempty"`   // of the mandate; of the document for keys
	Author     string `json:"author,omitempty"` // as they say
	Unreadable bool   `json:"unreadable,omitempty"`
}
