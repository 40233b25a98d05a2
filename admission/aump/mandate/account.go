package mandate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
)

// Bounds of an Account. Durations are in milliseconds.
const (
	// MaxOpen is the maximum number of open reservations under one mandate; further ones are
	// denied until some are settled or released.
	MaxOpen = 1024
	// MaxDecisions is the maximum number of decisions in the allowances of an account. Each
	// repeated request adds one; beyond the bound it is denied.
	MaxDecisions = 4096
	// MaxOpenOfPublisher and MaxOpenOfSession bound the open reservations of one publisher and of
	// one of its sessions; MaxDecisionsOfPublisher bounds its decisions. Unfinished calls of one
	// publisher must not block the others under the mandate.
	MaxOpenOfPublisher      = MaxOpen / 2
	MaxOpenOfSession        = MaxOpen / 4
	MaxDecisionsOfPublisher = MaxDecisions / 2
	// maxClosed is the number of closed allowances kept for later records of their calls, those that ended
	// last. A record of another one is not counted.
	maxClosed = 256
	// maxRuns is the number of executions that an allowance distinguishes; more only add to the
	// sum.
	maxRuns = 64
	// maxMoney is the largest counted number of minor units, more than any budget that can be
	// written down.
	maxMoney = 1<<53 - 1

	// Retention is the minimum time for which a closed allowance is kept, from when it was closed
	// and from when its last receipt expired, unless maxClosed newer ones are closed as well.
	Retention = int64(time.Hour / time.Millisecond)
	// ShareWindow is how long after its opening an allowance accepts further decisions on the same
	// proposal.
	ShareWindow = int64(15 * time.Minute / time.Millisecond)
	// releaseGrace is how long after its expiry a receipt may still be accepted by an executor
	// with the slowest clock that receipts tolerate.
	releaseGrace = int64(receipt.Leeway / time.Millisecond)
	// minShare is the minimum remaining time of an allowance for a further receipt.
	minShare = int64(receipt.MinLifetime / time.Millisecond)
)

// Errors of Account.Reserve.
var (
	ErrOverBudget = errors.New("mandate: the budget does not have that much left")
	ErrLedgerFull = errors.New("mandate: too many reservations are open")
)

// AllowanceState is the state of reserved money.
type AllowanceState string

// The states. Reserved and lapsed money counts against the budget as reserved.
const (
	AllowanceReserved AllowanceState = "reserved" // the outcome of at least one decision is open
	AllowanceLapsed   AllowanceState = "lapsed"   // every decision's call is over, nothing ran, and a receipt is still valid
	AllowanceReleased AllowanceState = "released" // as lapsed, and no receipt is valid
	AllowanceSettled  AllowanceState = "settled"  // spent, or counted as spent
)

// AllowedDecision is one decision that allowed a proposal.
type AllowedDecision struct {
	Decision string `json:"decision"`       // its id
	Over     bool   `json:"over,omitempty"` // its call is over
}

// Run is a counted execution.
type Run struct {
	Began     uint64 `json:"began"`            // CallEnd.Began of its call
	Amount    int64  `json:"amount"`           // the amount that counts
	Uncertain bool   `json:"beside,omitempty"` // it did not certainly consume the allowance
}

// Allowance is the money of one proposal, however often the proposal was allowed.
// All receipts of an allowance have the same nonce, so that executors use one of them (see
// receipt.Claims.UseUntil).
type Allowance struct {
	ID        string            `json:"id"`       // the decision that opened it
	Proposal  string            `json:"proposal"` // Proposal.Key
	Call      string            `json:"call"`     // CallKey
	Session   string            `json:"session"`  // its subject token
	Publisher string            `json:"caller"`   // PublisherKey
	Amount    int64             `json:"amount"`
	Decisions []AllowedDecision `json:"attempts"` // oldest first
	State     AllowanceState    `json:"state"`
	After     uint64            `json:"after"`          // its decisions are after this sequence of the log
	At        int64             `json:"at"`             // Unix milliseconds: last reservation or change of state
	Until     int64             `json:"until"`          // Unix milliseconds: no receipt of it expires later
	Expires   int64             `json:"expires"`        // Unix milliseconds: expiry of the last receipt so far
	Seen      uint64            `json:"seen,omitempty"` // the newest call record that changed it
	Runs      []Run             `json:"runs,omitempty"`
}

// awaitsOutcome reports whether the outcome of one of its decisions is open.
func (e Allowance) awaitsOutcome() bool {
	return slices.ContainsFunc(e.Decisions, func(a AllowedDecision) bool { return !a.Over })
}

// receiptHolds reports whether an executor may still accept one of its receipts.
func (e Allowance) receiptHolds(now int64) bool { return now <= e.Expires+releaseGrace }

// isReserved reports whether an allowance's amount counts as reserved.
func (e Allowance) isReserved(now int64) bool {
	return e.State == AllowanceReserved || e.State == AllowanceLapsed && e.receiptHolds(now)
}

// spentAmount is the amount that counts as spent.
func (e Allowance) spentAmount() (sum int64) {
	for _, r := range e.Runs {
		sum = addCapped(sum, r.Amount)
	}
	return sum
}

// isConsumed reports whether an execution has consumed the allowance.
func (e Allowance) isConsumed() bool {
	return slices.ContainsFunc(e.Runs, func(r Run) bool { return !r.Uncertain })
}

// runIndex returns the index of a call's run, -1 if there is none.
func (e Allowance) runIndex(began uint64) int {
	return slices.IndexFunc(e.Runs, func(r Run) bool { return r.Began == began })
}

// stateAt is the state that follows from the recorded facts.
func (e Allowance) stateAt(now int64) AllowanceState {
	switch {
	case e.isConsumed():
		return AllowanceSettled
	case e.awaitsOutcome():
		return AllowanceReserved
	case e.receiptHolds(now):
		return AllowanceLapsed
	}
	return AllowanceReleased
}

// sharesProposal reports whether a further decision on a proposal belongs to the allowance. After
// an outcome of any of its decisions, the same proposal is a new call with new money.
func (e Allowance) sharesProposal(proposal string, now int64) bool {
	return proposal != "" && e.Proposal == proposal && e.State == AllowanceReserved && now+minShare <= e.Until &&
		!slices.ContainsFunc(e.Decisions, func(a AllowedDecision) bool { return a.Over })
}

// decisionIndex returns the index of a decision, -1 if the allowance does not have it.
func (e Allowance) decisionIndex(decision string) int {
	return slices.IndexFunc(e.Decisions, func(a AllowedDecision) bool { return a.Decision == decision })
}

// isOpen reports whether the allowance awaits call records.
func (e Allowance) isOpen() bool { return e.State == AllowanceReserved || e.State == AllowanceLapsed }

// AcceptsRecords reports whether call records can still change an allowance.
func (e Allowance) AcceptsRecords(now int64) bool {
	return e.isOpen() || now < max(e.At, e.Expires)+Retention
}

// Account is the money spent under one mandate in one currency: the document of the spend
// ledger. It is a value; its methods return a changed copy and leave the receiver unchanged.
//
// An allow reserves, and every reservation is one allowance that one execution consumes. A
// reported execution settles it. A call that ends without an execution frees only what
// decisions on this call reserved, and only when no receipt of the reservation is valid any
// more.
type Account struct {
	V          int         `json:"v"`       // AccountVersion
	Settled    int64       `json:"settled"` // spent outside the allowances, in minor units
	Allowances []Allowance `json:"entries"` // in the order of reservation
}

// AccountVersion is the version of the document.
const AccountVersion = 1

// DecodeAccount reads a stored account. One of another version is an error: what was spent is then unknown.
func DecodeAccount(b []byte) (Account, error) {
	a, err := events.DecodeRecord[Account](b)
	if err == nil && a.V != AccountVersion {
		err = fmt.Errorf("mandate: an account of version %d, which this program does not know", a.V)
	}
	return a, err
}

// ReserveRequest is one admission that reserves money.
type ReserveRequest struct {
	Reservation
	Key, Call, Session string // Proposal.Key, CallKey, subject token of the session
	Publisher          string // PublisherKey
	Decision           string // the decision's id
	After              uint64 // a sequence of the log that is certainly before the decision
	Now, Expires       int64  // Unix milliseconds
}

// ReceiptTerms states what the receipt of an admission must contain: the zero ReceiptTerms demands
// nothing.
type ReceiptTerms struct {
	ID    string // of the allowance: receipts of one allowance share a nonce
	Until int64  // Unix milliseconds: the receipt must not expire later
}

// Spend is what counts against a budget at a time, without what is reserved for the proposal
// with the given key ("" for a proposal that shares no allowance).
func (a Account) Spend(proposal string, now int64) Spend {
	s := Spend{Settled: a.Settled}
	open, decisions, shared := 0, 0, false
	for _, e := range a.Allowances {
		s.Settled = addCapped(s.Settled, e.spentAmount())
		decisions += len(e.Decisions)
		switch {
		case !shared && e.sharesProposal(proposal, now):
			shared = true
		case e.isReserved(now):
			s.Reserved = addCapped(s.Reserved, e.Amount)
			open++
		}
	}
	s.Full = proposal != "" && (open >= MaxOpen && !shared || decisions >= MaxDecisions)
	return s
}

// Reservations are the allowances whose amount counts as reserved at a time, oldest first.
func (a Account) Reservations(now int64) []Allowance {
	return slices.DeleteFunc(slices.Clone(a.Allowances), func(e Allowance) bool { return !e.isReserved(now) })
}

// FullFor reports whether no further reservation is possible for a session of a publisher,
// whatever is free for others. proposal is as for Spend.
func (a Account) FullFor(proposal, publisher, session string, now int64) bool {
	open, ofSession, decisions, shared := 0, 0, 0, false
	for _, e := range a.Allowances {
		if e.Publisher != publisher {
			continue
		}
		decisions += len(e.Decisions)
		switch {
		case !shared && e.sharesProposal(proposal, now):
			shared = true
		case e.isReserved(now) && e.Session == session:
			ofSession++
			open++
		case e.isReserved(now):
			open++
		}
	}
	many := open >= MaxOpenOfPublisher || ofSession >= MaxOpenOfSession
	return proposal != "" && (many && !shared || decisions >= MaxDecisionsOfPublisher)
}

// HasDecision reports whether one of the allowances has a decision.
func (a Account) HasDecision(decision string) bool {
	return slices.ContainsFunc(a.Allowances, func(e Allowance) bool { return e.decisionIndex(decision) >= 0 })
}

// Reserve reserves an admission's money. A proposal without a tool call id cannot be linked
// with an outcome and counts as spent at once, for good.
func (a Account) Reserve(t ReserveRequest) (Account, ReceiptTerms, error) {
	a = a.Pruned(t.Now)
	i := slices.IndexFunc(a.Allowances, func(e Allowance) bool { return e.sharesProposal(t.Key, t.Now) })
	amount := t.Amount
	if i >= 0 {
		amount = max(amount, a.Allowances[i].Amount)
	}
	spend := a.Spend(t.Key, t.Now)
	switch {
	case spend.Full || a.FullFor(t.Key, t.Publisher, t.Session, t.Now):
		return a, ReceiptTerms{}, ErrLedgerFull
	case addCapped(addCapped(spend.Reserved, spend.Settled), amount) > t.Budget:
		return a, ReceiptTerms{}, ErrOverBudget
	case t.Key == "":
		a.Settled = addCapped(a.Settled, amount)
		return a, ReceiptTerms{}, nil
	}
	a.Allowances = slices.Clone(a.Allowances)
	if i < 0 {
		i = len(a.Allowances)
		a.Allowances = append(a.Allowances, Allowance{
			ID: t.Decision, Proposal: t.Key, Call: t.Call, Session: t.Session, Publisher: t.Publisher, State: AllowanceReserved, After: t.After,
			Until: max(t.Expires, t.Now+ShareWindow),
		})
	}
	e := &a.Allowances[i]
	e.Decisions = append(slices.Clone(e.Decisions), AllowedDecision{Decision: t.Decision})
	e.Amount, e.At, e.Expires = amount, t.Now, max(e.Expires, min(t.Expires, e.Until))
	return a, ReceiptTerms{ID: e.ID, Until: e.Until}, nil
}

// UndoReserve undoes the Reserve of an admission that was certainly never answered.
// Reservations by other admissions of the same proposal stay.
func (a Account) UndoReserve(t ReserveRequest) Account {
	if t.Key == "" {
		a.Settled = max(0, a.Settled-t.Amount)
		return a
	}
	return a.DropDecisions([]string{t.Decision}, t.Now)
}

// DropDecisions removes decisions that are certainly not on the log, so that no caller got
// them, and the allowances without other decisions.
func (a Account) DropDecisions(decisions []string, now int64) Account {
	kept := make([]Allowance, 0, len(a.Allowances))
	for _, e := range a.Allowances {
		left := slices.DeleteFunc(slices.Clone(e.Decisions), func(x AllowedDecision) bool { return !x.Over && slices.Contains(decisions, x.Decision) })
		if len(left) == len(e.Decisions) {
			kept = append(kept, e)
			continue
		}
		if e.Decisions = left; len(left) > 0 || e.spentAmount() > 0 {
			e.State = e.stateAt(now)
			kept = append(kept, e)
		}
	}
	a.Allowances = kept
	return a
}

// Pruned releases lapsed allowances and drops closed allowances that are too old, or that ended first if
// there are too many. Settled money continues to count.
func (a Account) Pruned(now int64) Account {
	kept := slices.Clone(a.Allowances)
	var closed []uint64 // the records of their ends
	for i := range kept {
		e := &kept[i]
		if e.State == AllowanceLapsed && !e.receiptHolds(now) {
			e.State, e.At = AllowanceReleased, now
		}
		if !e.isOpen() {
			closed = append(closed, e.Seen)
		}
	}
	slices.Sort(closed)
	excess := closed[:max(0, len(closed)-maxClosed)]
	a.Allowances = slices.DeleteFunc(kept, func(e Allowance) bool {
		if e.isOpen() {
			return false
		}
		at, tooMany := slices.BinarySearch(excess, e.Seen)
		if tooMany {
			excess = slices.Delete(excess, at, at+1) // one for each: one end may close several
		}
		if e.AcceptsRecords(now) && !tooMany {
			return false
		}
		a.Settled = addCapped(a.Settled, e.spentAmount())
		return true
	})
	return a
}

// addCapped adds without overflow.
func addCapped(a, b int64) int64 { return min(maxMoney, max(0, a)+min(maxMoney, max(0, b))) }
