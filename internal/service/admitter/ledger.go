package admitter

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

const (
	// tailAge is how old the lower bound of a decision's log sequence may be. A larger value only
	// means more reading after a restart.
	tailAge = time.Second
	// sweepLedgerEvery is how often reservations are checked for those on which no call record
	// will ever report.
	sweepLedgerEvery = time.Minute
	// unrecordedAfter is the age at which the log is searched for a reservation's decision. An
	// answer goes out within seconds of the reservation, and only if the decision is in the log.
	unrecordedAfter = 10 * time.Minute
)

// spendLedger is the stateStore of the money of mandates. Every change is a compare-and-set on an
// account in the spend bucket, checked against the revision that it replaces: any number of
// admitters together allow no more than a budget.
//
// Money is reserved before the decision is recorded. The correlator's call records say what
// became of it; the ledger reads them from the log in order, with the decisions that they
// concern. After a crash the money stays reserved. mandate.Account documents the rules of an
// account.
type spendLedger struct {
	s        *service
	js       jetstream.JetStream
	follower *bucketFollower

	mu       sync.RWMutex
	accounts map[string]*spendAccount                // by AccountKey
	waiting  map[spendSession]map[*spendAccount]bool // accounts with entries of a session
	wake     chan struct{}                           // signals that there may be calls to follow
	logged   map[string]uint64                       // of followCalls: log sequences of the accounts' decisions
	recorded map[string]bool                         // of the sweep: decisions that are in the log, or were, as far as it can tell
	tail     struct {                                // the last result of tailSeq
		sync.Mutex
		seq uint64
		at  time.Time
	}
}

// spendSession identifies a session by its subject tokens.
type spendSession struct{ tenant, session string }

func newSpendLedger(s *service) stateStore {
	return &spendLedger{
		s: s, accounts: map[string]*spendAccount{}, waiting: map[spendSession]map[*spendAccount]bool{}, wake: make(chan struct{}, 1),
		logged: map[string]uint64{}, recorded: map[string]bool{},
	}
}

func (l *spendLedger) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	l.js = js
	l.follower = newTrackedFollower(l.s, streams.BucketSpend, 0, l.applyChanges)
	l.follower.view = spendView{l.follower.view.(*trackedView), l}
	stopFollower, err := l.follower.start(ctx, nc, js)
	if err != nil {
		return nil, err
	}
	stopLoops := daemon.Background(ctx, l.followCalls, l.runSweeps)
	return func() { stopLoops(); stopFollower() }, nil
}

func (l *spendLedger) load(_ admission.Request, in *admission.Inputs) { in.Mandates.SpendLedger = l }

// Spend implements mandate.SpendLedger.
func (l *spendLedger) Spend(p mandate.Proposal) mandate.Spend {
	l.mu.RLock()
	a := l.accounts[mandate.AccountKey(p.Tenant, p.MandateID, p.Currency)]
	l.mu.RUnlock()
	if a == nil {
		return mandate.Spend{}
	}
	state, _, unreadable := a.snapshot()
	if unreadable {
		return mandate.Spend{Unknown: true}
	}
	key, now := l.s.master.Tenant(p.Tenant), time.Now().UnixMilli()
	proposal := p.Key(key)
	spend := state.Spend(proposal, now)
	spend.Full = spend.Full || state.FullFor(proposal, mandate.PublisherKey(key, p.Tenant, p.Source), subject.Escape(p.Session), now)
	return spend
}

// reserve reserves the amount that the outcome spends, and puts the allowance into the receipt's
// claims: an executor uses one receipt of an allowance.
func (l *spendLedger) reserve(ctx context.Context, _ admission.Request, out *admission.Outcome) (reservation, error) {
	r := out.Consumption.Spend
	if r == nil {
		return reservation{}, nil
	}
	after, err := l.tailSeq(ctx)
	if err != nil {
		return reservation{}, err
	}
	key := l.s.master.Tenant(r.Tenant)
	request := mandate.ReserveRequest{
		Reservation: *r, Key: r.Key(key), Call: mandate.CallKey(key, r.Tenant, r.Source, r.Session, r.ToolCallID), Session: subject.Escape(r.Session),
		Publisher: mandate.PublisherKey(key, r.Tenant, r.Source),
		Decision:  out.Decision.DecisionID, After: after, Now: time.Now().UnixMilli(), Expires: out.Claims.ExpiresAt.UnixMilli(),
	}
	a := l.accountFor(mandate.AccountKey(r.Tenant, r.MandateID, r.Currency))
	var allowance mandate.ReceiptTerms
	err = a.changeState(ctx, func(acc mandate.Account) (next mandate.Account, changed bool, err error) {
		next, allowance, err = acc.Reserve(request)
		return next, true, err
	})
	switch {
	case errors.Is(err, mandate.ErrOverBudget), errors.Is(err, mandate.ErrLedgerFull), errors.Is(err, errUnreadable):
		return reservation{}, errConflict // the next attempt sees the change and denies with the reason
	case err != nil:
		return reservation{}, err
	}
	if allowance.ID != "" {
		out.ShareNonce(mandate.Nonce(key, allowance.ID), time.UnixMilli(allowance.Until))
	}
	return reservation{release: func(ctx context.Context) { l.undoReservation(ctx, a, request) }}, nil
}

// undoReservation releases a reservation if its decision was certainly not recorded. If that fails,
// the money stays reserved until a sweep releases it.
func (l *spendLedger) undoReservation(ctx context.Context, a *spendAccount, request mandate.ReserveRequest) {
	ctx, cancel := context.WithTimeout(ctx, l.s.flags.Timeout)
	defer cancel()
	err := a.changeState(ctx, func(acc mandate.Account) (mandate.Account, bool, error) { return acc.UndoReserve(request), true, nil })
	if err != nil {
		l.s.env.Log.Warn().Err(err).Str("mandate", request.MandateID).Str("decision_id", request.Decision).Msg("money of a decision that was not recorded stays reserved for now")
	}
}

// tailSeq returns a log sequence that precedes every message appended from now on.
func (l *spendLedger) tailSeq(ctx context.Context) (uint64, error) {
	l.tail.Lock()
	defer l.tail.Unlock()
	if now := time.Now(); now.Sub(l.tail.at) > tailAge {
		st, err := streams.StreamState(ctx, l.js, l.s.flags.Stream)
		if err != nil {
			return 0, err
		}
		l.tail.seq, l.tail.at = st.LastSeq, now
	}
	return l.tail.seq, nil
}

// accountFor returns an account, creating an empty one if needed.
func (l *spendLedger) accountFor(key string) *spendAccount {
	l.mu.RLock()
	a := l.accounts[key]
	l.mu.RUnlock()
	if a != nil {
		return a
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a = l.accounts[key]; a == nil {
		a = newSpendAccount(l, key)
		l.accounts[key] = a
	}
	return a
}

// applyChanges applies changes of the bucket, by this or another admitter.
func (l *spendLedger) applyChanges(_ context.Context, changed map[string]bucketEntry, _ uint64) {
	for key, e := range changed {
		if strings.Count(key, ".") == 2 {
			l.accountFor(key).readEntry(e)
		}
	}
}

// spendView is the view of the spend bucket.
type spendView struct {
	*trackedView
	ledger *spendLedger
}

// replaceAll implements bucketView.
func (v spendView) replaceAll(ctx context.Context, read bucketRead) {
	v.ledger.mu.RLock()
	accounts := maps.Clone(v.ledger.accounts)
	v.ledger.mu.RUnlock()
	for key, a := range accounts {
		a.resetTo(read.entries[key])
	}
	v.trackedView.replaceAll(ctx, read)
}

// indexSessions updates the sessions that an account waits for.
func (l *spendLedger) indexSessions(a *spendAccount, before, after mandate.Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range before.Allowances {
		s := spendSession{a.tenant, e.Session}
		if delete(l.waiting[s], a); len(l.waiting[s]) == 0 {
			delete(l.waiting, s)
		}
	}
	for _, e := range after.Allowances {
		s := spendSession{a.tenant, e.Session}
		if l.waiting[s] == nil {
			l.waiting[s] = map[*spendAccount]bool{}
		}
		l.waiting[s][a] = true
	}
	if len(l.waiting) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// accountsOf lists the accounts that wait for a session.
func (l *spendLedger) accountsOf(s spendSession) []*spendAccount {
	l.mu.RLock()
	defer l.mu.RUnlock()
	list := make([]*spendAccount, 0, len(l.waiting[s]))
	for a := range l.waiting[s] {
		list = append(list, a)
	}
	return list
}

// waitingAccounts lists the accounts that wait for any session.
func (l *spendLedger) waitingAccounts() []*spendAccount {
	l.mu.RLock()
	defer l.mu.RUnlock()
	seen := map[*spendAccount]bool{}
	var list []*spendAccount
	for _, accounts := range l.waiting {
		for a := range accounts {
			if !seen[a] {
				seen[a], list = true, append(list, a)
			}
		}
	}
	return list
}
