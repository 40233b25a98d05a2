package events

import "fmt"

// ControlExpiry is the kind of control records that are an Expiry.
const ControlExpiry = "expiry" // events.Expiry

// Expiry records that the texts of some evidence records are deleted because the
// tenant's retention policy does not keep them longer. Their hashes stay, and with
// them every proof. A record of state begun stands in the log, and in the evidence,
// before the first of its texts goes, so that every missing text is explained by a
// record behind it, or is a sign of tampering. States are those of an Erasure.
//
// Vouch is a signed note of the checkpoint key over VouchText.
type Expiry struct {
	ExpiryID string           `json:"expiry_id"`
	Shard    string           `json:"shard"` // the log's incarnation
	State    string           `json:"state"`
	Part     int              `json:"part"` // of Parts, from 1: one expiry can take several records
	Parts    int              `json:"parts"`
	Tenant   string           `json:"tenant"`
	Policy   string           `json:"policy"`   // id of the retention policy
	Sessions []ExpiredSession `json:"sessions"` // of state done: none
	Records  uint64           `json:"records"`  // how many sequences the spans name
	At       Time             `json:"at"`
	Writer   string           `json:"writer"`

	Vouch string `json:"vouch,omitempty"`
}

// ExpiredSession names the records of one session, as evidence names it, that go.
// They follow each other in the session: the first has the index Index.
type ExpiredSession struct {
	Session   string `json:"session"`
	Index     uint64 `json:"index"`
	Sequences []Span `json:"sequences"` // in order, without overlaps
}

// VouchText is the text that the checkpoint key signs. It covers all of e but
// Vouch; its first line is another than that of every other text that key signs.
func (e Expiry) VouchText() (string, error) {
	e.Vouch = ""
	return vouchText(ControlExpiry, e)
}

// LastSequence is the greatest sequence that e names, 0 if it names none.
func (e Expiry) LastSequence() (last uint64) {
	for _, s := range e.Sessions {
		if n := len(s.Sequences); n > 0 {
			last = max(last, s.Sequences[n-1][1])
		}
	}
	return last
}

// Check reports what is wrong with the form of e.
func (e Expiry) Check() error {
	switch {
	case e.ExpiryID == "" || e.Shard == "" || e.Tenant == "" || e.Policy == "" || e.Part < 1 || e.Part > e.Parts:
		return fmt.Errorf("an expiry record without id, shard, tenant, policy or part")
	case e.State != ErasureBegun && e.State != ErasureDone:
		return fmt.Errorf("expiry %.60q has no state", e.ExpiryID)
	}
	n := uint64(0)
	for _, s := range e.Sessions {
		if s.Session == "" || s.Index == 0 || len(s.Sequences) == 0 {
			return fmt.Errorf("expiry %.60q names a session without records", e.ExpiryID)
		}
		named, ok := countSequences(s.Sequences)
		if !ok {
			return fmt.Errorf("the sequences of expiry %.60q are not in order", e.ExpiryID)
		}
		n += named
	}
	if e.State == ErasureBegun && n != e.Records {
		return fmt.Errorf("expiry %.60q names %d sequences and says %d", e.ExpiryID, n, e.Records)
	}
	return nil
}
