// Package retention holds what a tenant keeps and for how long: retention policies, legal holds and
// ordered erasures (docs/retention.md). Policy says how long logs and evidence are kept and which
// class limits evidence; State holds the legal holds and erasure orders of one tenant.
//
// The package is pure: states and policies in, states and policies out. It does not store or erase.
// The callers store a tenant's State under one key of a bucket and change it by compare-and-set,
// so that of a concurrent hold and erasure the later one sees the other. Begin with Parse for
// policies and with State.
package retention

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Errors of this package.
var (
	ErrState   = errors.New("not a tenant's retention state")
	ErrHeld    = errors.New("a legal hold stands")
	ErrUnknown = errors.New("no such hold or erasure")
	ErrBegun   = errors.New("the erasure has begun and cannot be taken back")
	ErrInvalid = errors.New("a hold or an erasure needs an id (at most 512 bytes), the name of the requester (at most 200) and a reason (at most 1000)")
	ErrFull    = errors.New("too many holds or open erasures")
)

// Limits of a state.
const (
	MaxHolds  = 500
	MaxBatch  = 1000 // greatest number of sessions in one order of a policy
	maxOrders = 200  // among ended orders the oldest are dropped: the log has them
	maxBy     = 200
	maxReason = 1000
	maxName   = 512
)

// Scope is the subject of a hold or an erasure: one session, one data subject, or, if all fields are
// empty, the tenant. An erasure can also name messages without a session by their sequences (see
// ParseSeqs).
type Scope struct {
	Session string `json:"session,omitempty"`
	Subject string `json:"subject,omitempty"`
	Seqs    string `json:"seqs,omitempty"`
}

func (s Scope) String() string {
	switch {
	case s.Session != "":
		return fmt.Sprintf("session %q", s.Session)
	case s.Subject != "":
		return fmt.Sprintf("subject %q", s.Subject)
	case s.Seqs != "":
		return "sequences " + s.Seqs
	}
	return "the whole tenant"
}

// Unnamed is String without the name of the data subject.
func (s Scope) Unnamed() string {
	if s.Subject != "" {
		return "a data subject"
	}
	return s.String()
}

// Note records the person, time and reason of an action.
type Note struct {
	ID     string      `json:"id"`
	By     string      `json:"by"`
	Reason string      `json:"reason"`
	At     events.Time `json:"at"`
}

// Hold keeps everything in its scope, in spite of policies and orders.
type Hold struct {
	Scope
	Note
}

// Status is the state of an order.
type Status string

// The statuses of an order.
const (
	Ordered Status = "ordered" // nothing is destroyed yet
	Begun   Status = "begun"   // cannot be taken back
	Done    Status = "done"
	Refused Status = "refused"
)

// Open reports whether the order is still to be carried out.
func (s Status) Open() bool { return s == Ordered || s == Begun }

// Order is a requested erasure.
type Order struct {
	Scope
	Note
	// Sessions are the sessions that a retention policy no longer keeps; Scope is then empty.
	Sessions []string `json:"sessions,omitempty"`
	// SessionlessBefore is the time before which the log stored messages without a session
	// that a retention policy no longer keeps; Scope is then empty.
	SessionlessBefore events.Time `json:"loose_before,omitzero"`
	// Planned is what an order for a data subject covers, from its beginning to its end.
	Planned *Planned `json:"planned,omitempty"`
	// Expire is the id of the policy if the order is an expiry: the texts of the evidence of
	// Sessions are deleted, and nothing is deleted from the log.
	Expire string `json:"expire,omitempty"`
	// IdleSeconds is how many seconds a session must have been idle to be erased.
	IdleSeconds int64       `json:"quiet"`
	Status      Status      `json:"status"`
	Problem     string      `json:"problem,omitempty"` // why it was refused, or what it waits for
	EndedAt     events.Time `json:"ended_at,omitzero"`
	Result      *Result     `json:"result,omitempty"`
}

// Planned names what was checked against holds and idleness when an order began. What names the
// data subject later is not covered.
type Planned struct {
	Sessions []string `json:"sessions"`
	Through  uint64   `json:"through"` // the last sequence that was planned
}

// ByPolicy reports whether a retention policy ordered the erasure.
func (o Order) ByPolicy() bool { return len(o.Sessions) > 0 || !o.SessionlessBefore.IsZero() }

// Result is what an erasure destroyed. Keys, Quarantined and Approvals are those that its last attempt still found.
type Result struct {
	Sessions    int    `json:"sessions"`
	Messages    uint64 `json:"messages"` // on the log
	Keys        int    `json:"keys"`
	Quarantined int    `json:"quarantined"`
	Approvals   int    `json:"approvals"`
	Records     uint64 `json:"records,omitempty"` // evidence records with an expired text
}

// State is the value of a tenant's key in the bucket. Last is what its newest revision changed.
type State struct {
	V      int     `json:"v"`
	Holds  []Hold  `json:"holds"`
	Orders []Order `json:"orders"`
	Last   Change  `json:"last"`
}

// Change describes a revision. What is hold, release, order, begin, refuse or finish.
type Change struct {
	What string `json:"what"`
	Scope
	Note
}

const stateVersion = 1

// Decode decodes a state. An empty text is the state of a tenant without one.
func Decode(b []byte) (State, error) {
	s := State{V: stateVersion}
	if len(b) == 0 {
		return s, nil
	}
	if err := strictjson.Unmarshal(b, &s, strictjson.RejectUnknown); err != nil {
		return s, fmt.Errorf("%w: %w", ErrState, err)
	}
	if s.V != stateVersion {
		return s, fmt.Errorf("%w: version %d, this program knows %d", ErrState, s.V, stateVersion)
	}
	return s, nil
}

// Encode is the stored form.
func (s State) Encode() ([]byte, error) { return json.Marshal(s) }

func (n Note) validate() error {
	if n.ID == "" || n.By == "" || n.Reason == "" || len(n.ID) > maxName || len(n.By) > maxBy || len(n.Reason) > maxReason || n.At.IsZero() {
		return ErrInvalid
	}
	return nil
}

func (s Scope) validate() error {
	set := 0
	for _, v := range [...]string{s.Session, s.Subject, s.Seqs} {
		if v != "" {
			set++
		}
	}
	if s.Seqs != "" {
		if _, err := ParseSeqs(s.Seqs); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if len(s.Session) > maxName || len(s.Subject) > maxName || set > 1 {
		return fmt.Errorf("%w: about one session, one subject or the tenant, of at most %d bytes", ErrInvalid, maxName)
	}
	return nil
}
