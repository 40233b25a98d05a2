package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Kinds of the control records of retention.
const (
	ControlErasure   = "erasure"   // events.Erasure
	ControlRetention = "retention" // events.RetentionChange
)

// States of an erasure.
const (
	ErasureBegun = "begun" // before the first deletion: from here on the named sequences may be missing
	ErasureDone  = "done"  // everything named is deleted
)

// Causes of an erasure.
const (
	CauseOrder  = "order" // of a person
	CausePolicy = "ttl"   // the tenant's retention policy
)

// Span is a range of log sequences, both ends included.
type Span [2]uint64

// Erasure records that some messages are deleted from the log, and by whom, when and why. It
// never contains their content. A record of state begun is in the log before the first of its
// messages is deleted, so that every gap in the log is explained by a later record, or is a
// sign of tampering.
//
// Vouch is a signed note of the checkpoint key over VouchText: only the signer of the evidence
// can explain a gap in the log.
type Erasure struct {
	ErasureID string   `json:"erasure_id"` // the same in all records of one erasure
	Shard     string   `json:"shard"`      // the log's incarnation
	State     string   `json:"state"`      // begun or done
	Part      int      `json:"part"`       // of Parts, from 1: one erasure can take several records
	Parts     int      `json:"parts"`      // number of records of this state
	Tenant    string   `json:"tenant"`     // whose data it is
	Sessions  []string `json:"sessions"`   // with destroyed keys
	// SubjectDigest is keyed under the tenant's key; for an erasure by data subject.
	SubjectDigest string `json:"subject_digest,omitempty"`
	Cause         string `json:"cause"`     // order, or ttl: the tenant's retention policy
	Sequences     []Span `json:"sequences"` // in order, without overlaps
	Messages      uint64 `json:"messages"`  // number of sequences in the spans

	Reason    string `json:"reason"`     // as it was ordered
	OrderedBy string `json:"ordered_by"` // unverified
	OrderedAt Time   `json:"ordered_at"` // when it was ordered
	At        Time   `json:"at"`         // when the record was made
	Writer    string `json:"writer"`     // the auditor's process

	// Deleted in addition to the messages, for state done. Of an erasure that was interrupted, this is what its last
	// attempt still found.
	Keys        int `json:"keys"`
	Quarantined int `json:"quarantined"` // messages of the quarantine
	Approvals   int `json:"approvals"`   // approval workflows

	Vouch string `json:"vouch,omitempty"` // signed note of the checkpoint key
}

// VouchText is the text that the checkpoint key signs. It covers all of e but Vouch; its first
// line differs from that of every other text signed by that key.
func (e Erasure) VouchText() (string, error) {
	e.Vouch = ""
	return vouchText(ControlErasure, e)
}

// vouchText is the text that the checkpoint key signs for a control record with a Vouch that is
// empty.
func vouchText(kind string, record any) (string, error) {
	b, err := Encode(record)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "countersign/" + kind + "/v1\n" + hex.EncodeToString(sum[:]) + "\n", nil
}

// countSequences counts the sequences in spans; ok is false unless the spans are in order and
// do not overlap.
func countSequences(spans []Span) (n uint64, ok bool) {
	last := uint64(0)
	for _, s := range spans {
		if s[0] <= last || s[1] < s[0] {
			return 0, false
		}
		last, n = s[1], n+s[1]-s[0]+1
	}
	return n, true
}

// Covers reports whether a span of e contains a sequence.
func (e Erasure) Covers(seq uint64) bool {
	for _, s := range e.Sequences {
		if s[0] <= seq && seq <= s[1] {
			return true
		}
	}
	return false
}

// Check returns an error if e is not well-formed.
func (e Erasure) Check() error {
	if e.ErasureID == "" || e.Shard == "" || e.State != ErasureBegun && e.State != ErasureDone || e.Part < 1 || e.Part > e.Parts {
		return fmt.Errorf("an erasure record without id, shard, state or part")
	}
	switch n, ok := countSequences(e.Sequences); {
	case !ok:
		return fmt.Errorf("the sequences of erasure %.60q are not in order", e.ErasureID)
	case n != e.Messages:
		return fmt.Errorf("erasure %.60q names %d sequences and says %d", e.ErasureID, n, e.Messages)
	}
	return nil
}

// RetentionChange records one revision of a tenant's retention bucket: its policy, its legal
// holds and the ordered erasures.
type RetentionChange struct {
	Writer   string `json:"writer"`            // the auditor's process
	Store    string `json:"store"`             // the incarnation of the bucket
	Revision uint64 `json:"revision"`          // of the bucket
	Tenant   string `json:"tenant"`            // whose bucket entry changed
	What     string `json:"what"`              // policy, policy_removed, hold, release, order, begin, refuse, finish, quarantine, unreadable
	ID       string `json:"id,omitempty"`      // of the hold or the order; of a policy its name and digest
	Session  string `json:"session,omitempty"` // of a hold or an order for one session
	By       string `json:"by,omitempty"`      // unverified
	Reason   string `json:"reason,omitempty"`  // as it was given; unverified
	At       Time   `json:"at,omitzero"`       // when it was ordered
	Error    string `json:"error,omitempty"`   // why it cannot be used or carried out
	// Quarantined are the quarantine sequences that the policy ID no longer keeps (What is
	// quarantine).
	Quarantined []Span `json:"quarantined,omitempty"`
}
