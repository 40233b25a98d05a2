package mandate

import (
	"errors"
	"slices"
)

// Bounds of an Account.
const (
	// MaxOpen is how many reservations may be open under one mandate; more are
	// denied until some of them are settled or released.
	MaxOpen = 1024
	// maxClosed is how many closed entries are kept for what may still be said of
	// their calls.
	maxClosed = 256
	// Retention is how long, in seconds, a closed entry is kept at least, counted
	// from when it was closed and from when its receipt expired.
	Retention = 60 * 60
	// maxAttempts is how many decisions one entry remembers.
	maxAttempts = 4
	// maxMoney is the largest number of minor units that is counted to; it is more
	// than any budget that can be written down.
	maxMoney = 1<<53 - 1
)

// Errors of Account.Reserve.
var (
	ErrOverBudget = errors.New("mandate: the budget does not have that much left")
	ErrLedgerFull = errors.New("mandate: too many reservations are open")
)

// EntryState is what became of reserved money.
type EntryState string

// The states. Reserved and lapsed money counts against the budget as reserved.
const (
	EntryReserved EntryState = "reserved" // nothing is known yet
	EntryLapsed   EntryState = "lapsed"   // the call was given up; released once its receipt has expired
	EntrySettled  EntryState = "settled"  // spent, or to be taken for spent
	EntryReleased EntryState = "released" // not spent
)

// Entry is the money of one proposal.
type Entry struct {
	Proposal  string     `json:"proposal"`  // Proposal.Key
	Call      string     `json:"call"`      // CallKey
	Session   string     `json:"session"`   // its subject token
	Decisions []string   `json:"decisions"` // that allowed it, oldest first; the last few
	Amount    int64      `json:"amount"`
	State     EntryState `json:"state"`
	After     uint64     `json:"after"`             // its decisions are behind this sequence of the log
	At        int64      `json:"at"`                // Unix seconds: when it was reserved last, or closed
	Expires   int64      `json:"expires"`           // Unix seconds: when the last receipt does
	Seen      uint64     `json:"seen,omitempty"`    // the newest call record that changed it
	Orphans   int        `json:"orphans,omitempty"` // the last occurrence that ran beside it and was counted
}

// open reports whether an entry's outcome is not known yet.
func (e Entry) open() bool { return e.State == EntryReserved || e.State == EntryLapsed }

// Counts reports whether call records can still change an entry.
func (e Entry) Counts(now int64) bool { return e.open() || now < max(e.At, e.Expires)+Retention }

// Account is what was spent under one mandate in one currency: the document that
// the ledger keeps. It is a value; its methods give a changed copy and leave the
// receiver as it is.
type Account struct {
	V       int     `json:"v"`       // AccountVersion
	Settled int64   `json:"settled"` // spent beside the entries, in minor units
	Entries []Entry `json:"entries"` // in the order in which they were reserved
}

// AccountVersion is the version of the document.
const AccountVersion = 1

// Ticket is one admission that reserves money.
type Ticket struct {
	Reservation
	Key, Call, Session string // Proposal.Key, CallKey, subject token of the session
	Decision           string // the decision's id, a UUIDv7
	After              uint64 // a sequence of the log that is surely before the decision
	Now, Expires       int64  // Unix seconds
}

// Spend is what counts against a budget, without what is reserved for the
// proposal with the given key ("" for one that is like no other).
func (a Account) Spend(proposal string) Spend {
	s := Spend{Settled: a.Settled}
	open := 0
	for _, e := range a.Entries {
		switch {
		case e.open() && e.Proposal == proposal && proposal != "":
			open = -MaxOpen // asking again needs no further entry
		case e.open():
			s.Reserved = plus(s.Reserved, e.Amount)
			open++
		case e.State == EntrySettled:
			s.Settled = plus(s.Settled, e.Amount)
		}
	}
	s.Full = proposal != "" && open >= MaxOpen
	return s
}

// Reserve takes an admission's money. What has no tool call id cannot be linked
// with an outcome and counts as spent at once, for good.
func (a Account) Reserve(t Ticket) (Account, error) {
	a = a.Tidied(t.Now)
	spend := a.Spend(t.Key)
	switch {
	case spend.Full:
		return a, ErrLedgerFull
	case plus(plus(spend.Reserved, spend.Settled), t.Amount) > t.Budget:
		return a, ErrOverBudget
	case t.Key == "":
		a.Settled = plus(a.Settled, t.Amount)
		return a, nil
	}
	a.Entries = slices.Clone(a.Entries)
	i := slices.IndexFunc(a.Entries, func(e Entry) bool { return e.Proposal == t.Key && e.open() })
	if i < 0 {
		a.Entries = append(a.Entries, Entry{
			Proposal: t.Key, Call: t.Call, Session: t.Session, Amount: t.Amount, After: t.After, Decisions: []string{t.Decision},
			State: EntryReserved, At: t.Now, Expires: t.Expires,
		})
		return a, nil
	}
	e := &a.Entries[i]
	e.Decisions = append(slices.Clone(e.Decisions[max(0, len(e.Decisions)+1-maxAttempts):]), t.Decision)
	e.Amount, e.At, e.Expires = max(e.Amount, t.Amount), t.Now, max(e.Expires, t.Expires)
	e.State = EntryReserved // if it had lapsed: there is a receipt for it again
	return a, nil
}

// GiveBack undoes the Reserve of an admission that was certainly never answered.
// What another admission of the same proposal reserved stays.
func (a Account) GiveBack(t Ticket) Account {
	if t.Key == "" {
		a.Settled = max(0, a.Settled-t.Amount)
		return a
	}
	a.Entries = slices.Clone(a.Entries)
	for i, e := range a.Entries {
		at := slices.Index(e.Decisions, t.Decision)
		if e.State != EntryReserved || e.Proposal != t.Key || at < 0 {
			continue
		}
		if len(e.Decisions) == 1 {
			a.Entries = slices.Delete(a.Entries, i, i+1)
		} else {
			a.Entries[i].Decisions = slices.Delete(slices.Clone(e.Decisions), at, at+1)
		}
		break
	}
	return a
}

// Drop takes the entry of a proposal away none of whose decisions was ever
// recorded. It changes nothing if the entry is another by now.
func (a Account) Drop(gone Entry) Account {
	a.Entries = slices.DeleteFunc(slices.Clone(a.Entries), func(e Entry) bool {
		return e.State == EntryReserved && e.Proposal == gone.Proposal && slices.Equal(e.Decisions, gone.Decisions)
	})
	return a
}

// Tidied releases what has lapsed and forgets closed entries that are too old, or
// too many: the oldest ones. What was settled goes on counting.
func (a Account) Tidied(now int64) Account {
	closed := 0
	kept := make([]Entry, 0, len(a.Entries)+1)
	for _, e := range slices.Backward(a.Entries) {
		if e.State == EntryLapsed && e.Expires < now {
			e.State, e.At = EntryReleased, now
		}
		if !e.open() {
			closed++
		}
		switch {
		case e.open() || e.Counts(now) && closed <= maxClosed:
			kept = append(kept, e)
		case e.State == EntrySettled:
			a.Settled = plus(a.Settled, e.Amount)
		}
	}
	slices.Reverse(kept)
	a.Entries = kept
	return a
}

// plus adds without wrapping around.
func plus(a, b int64) int64 { return min(maxMoney, max(0, a)+min(maxMoney, max(0, b))) }
