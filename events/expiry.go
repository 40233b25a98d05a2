package events

import "fmt"

// ControlExpiry is the kind of control records that are an Expiry.
const ControlExpiry = "expiry" // events.Expiry

// Expiry records that the texts of some evidence records are deleted because the tenant's
// retention policy no longer keeps them. Their hashes stay, and so do all proofs. A record of
// state begun is in the log, and in the evidence, before the first of its texts is deleted, so
// that every missing text is explained by a later record, or is a sign of tampering. States are
// those of an Erasure.
//
// Vouch is a signed note of the checkpoint key over VouchText.
type Expiry struct {
	ExpiryID string           `json:"expiry_id"` // the same in all records of one expiry
	Shard    string           `json:"shard"`     // the log's incarnation
	State    string           `json:"state"`     // begun or done
	Part     int              `json:"part"`      // of Parts, from 1: one expiry can take several records
	Parts    int              `json:"parts"`     // number of records of this state
	Tenant   string           `json:"tenant"`    // whose data it is
	Policy   string           `json:"policy"`    // id of the retention policy
	Sessions []ExpiredSession `json:"sessions"`  // empty for state done
	Records  uint64           `json:"records"`   // number of sequences in the spans
	At       Time             `json:"at"`        // when the record was made
	Writer   string           `json:"writer"`    // the auditor's process

	Vouch string `json:"vouch,omitempty"` // signed note of the checkpoint key
}

// ExpiredSession names the expired records of one session, as evidence names it. They are
// consecutive in the session: the first has the index Index.
type ExpiredSession struct {
	Session   string `json:"session"`   // its name in the evidence
	Index     uint64 `json:"index"`     // place of the first record in the session, from 1
	Sequences []Span `json:"sequences"` // in order, without overlaps
}

// VouchText is the text that the checkpoint key signs. It covers all of e but Vouch; its first
// line differs from that of every other text signed by that key.
func (e Expiry) VouchText() (string, error) {
	e.Vouch = ""
	return vouchText(ControlExpiry, e)
}

// LastSequence is the greatest sequence in e, 0 without any.
func (e Expiry) LastSequence() (last uint64) {
	for _, s := range e.Sessions {
		if n := len(s.Sequences); n > 0 {
			last = max(last, s.Sequences[n-1][1])
		}
	}
	return last
}

// PlaceOf is the session of the record with a sequence and the record's place there, if e names that record.
func (e Expiry) PlaceOf(seq uint64) (session string, index uint64, named bool) {
	for _, s := range e.Sessions {
		index = s.Index
		for _, span := range s.Sequences {
			if span[0] <= seq && seq <= span[1] {
				return s.Session, index + seq - span[0], true
			}
			index += span[1] - span[0] + 1
		}
	}
	return "", 0, false
}

// Check returns an error if e is not well-formed.
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
