// Package retention is what a tenant keeps, for how long, and what must not go:
// retention policies, legal holds and the erasures that were ordered
// (docs/retention.md).
//
// The package is pure: states and policies in, states and policies out. What is
// in the bucket is changed by compare-and-set on one key of a tenant, so that of
// a hold and an erasure that come at the same time one sees the other.
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
	ErrInvalid = errors.New("a hold or an erasure needs an id, who and why, in at most 200 and 1000 characters")
	ErrFull    = errors.New("too many holds or open erasures")
)

// Limits of a state.
const (
	MaxHolds  = 500
	MaxBatch  = 1000 // sessions that go at once because of a policy
	maxOrders = 200  // of those that are over, the oldest are forgotten: the log has them
	maxBy     = 200
	maxReason = 1000
	maxName   = 512
)

// Scope is what a hold or an erasure is about: one session, one data subject, or,
// with neither, the tenant. Of an erasure also some messages without a session, by
// their sequences (see ParseSeqs).
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
	return "the tenant"
}

// Note says who did something, when and why.
type Note struct {
	ID     string      `json:"id"`
	By     string      `json:"by"`
	Reason string      `json:"reason"`
	At     events.Time `json:"at"`
}

// Hold keeps everything in its scope, whatever policies and orders say.
type Hold struct {
	Scope
	Note
}

// Status is where an order stands.
type Status string

// The statuses of an order.
const (
	Ordered Status = "ordered" // nothing is destroyed yet
	Begun   Status = "begun"   // cannot be taken back
	Done    Status = "done"
	Refused Status = "refused"
)

// Open reports whether something is still to be done.
func (s Status) Open() bool { return s == Ordered || s == Begun }

// Order is an erasure that somebody asked for.
type Order struct {
	Scope
	Note
	// Sessions are those that a retention policy lets go: then Scope is empty.
	Sessions []string `json:"sessions,omitempty"`
	// SessionlessBefore lets the messages without a session go that the log stored before,
	// because a retention policy does not keep them longer: then Scope is empty.
	SessionlessBefore events.Time `json:"loose_before,omitzero"`
	// Expire makes it an expiry: the texts of the evidence of Sessions go, because
	// this policy does not keep them longer. Nothing is taken off the log.
	Expire string `json:"expire,omitempty"`
	// IdleSeconds is how many seconds a session must have been silent to be erased.
	IdleSeconds int64       `json:"quiet"`
	Status      Status      `json:"status"`
	Problem     string      `json:"problem,omitempty"` // why it was refused, or what it waits for
	EndedAt     events.Time `json:"ended_at,omitzero"`
	Result      *Result     `json:"result,omitempty"`
}

// ByPolicy reports whether a retention policy ordered it.
func (o Order) ByPolicy() bool { return len(o.Sessions) > 0 || !o.SessionlessBefore.IsZero() }

// Result is what an erasure destroyed.
type Result struct {
	Sessions    int    `json:"sessions"`
	Messages    uint64 `json:"messages"` // on the log
	Keys        int    `json:"keys"`
	Quarantined int    `json:"quarantined"`
	Approvals   int    `json:"approvals"`
	Records     uint64 `json:"records,omitempty"` // of evidence whose texts expired
}

// State is what a tenant's key in the bucket holds. Last says what its newest
// revision changed.
type State struct {
	V      int     `json:"v"`
	Holds  []Hold  `json:"holds"`
	Orders []Order `json:"orders"`
	Last   Change  `json:"last"`
}

// Change says what a revision changed: What is hold, release, order, begin, refuse
// or finish.
type Change struct {
	What string `json:"what"`
	Scope
	Note
}

const stateVersion = 1

// Decode reads a state; no text is the state of a tenant that has none.
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
