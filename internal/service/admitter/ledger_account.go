package admitter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// errUnreadable reports that the amount spent is unknown.
var errUnreadable = errors.New("an account in the spend bucket cannot be read")

// spendAccount is the view of one key of the spend bucket, and the only place in this process
// that changes it.
type spendAccount struct {
	ledger     *spendLedger
	key        string
	tenant     string        // its subject token
	changeLock chan struct{} // held by the goroutine that changes the key

	mu         sync.Mutex
	state      mandate.Account
	revision   uint64
	unreadable bool
}

func newSpendAccount(l *spendLedger, key string) *spendAccount {
	tenant, _, _ := strings.Cut(key, ".")
	if rest, escaped := strings.CutPrefix(tenant, "="); escaped {
		tenant = "~" + rest
	}
	return &spendAccount{ledger: l, key: key, tenant: tenant, changeLock: make(chan struct{}, 1), state: mandate.Account{V: mandate.AccountVersion}}
}

func (a *spendAccount) snapshot() (state mandate.Account, revision uint64, unreadable bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.revision, a.unreadable
}

// readEntry applies a stored revision.
func (a *spendAccount) readEntry(e bucketEntry) {
	if _, known, _ := a.snapshot(); e.revision <= known {
		return // this process wrote it itself
	}
	state, unreadable := a.decodeEntry(e)
	a.setState(state, e.revision, unreadable)
}

// resetTo makes what a complete read of the bucket shows the state, if it is another revision than
// the one known: a bucket made anew, or rewound by a crash of its server, has a lower one or none. A
// write of this process that the read does not show comes with the watch.
func (a *spendAccount) resetTo(e bucketEntry) {
	state, unreadable := a.decodeEntry(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.revision != a.revision {
		a.replaceState(state, e.revision, unreadable)
	}
}

func (a *spendAccount) decodeEntry(e bucketEntry) (state mandate.Account, unreadable bool) {
	empty := mandate.Account{V: mandate.AccountVersion}
	if e.revision == 0 {
		return empty, false
	}
	state, err := mandate.DecodeAccount(e.value)
	if err != nil {
		a.ledger.s.env.Log.Error().Err(err).Str("account", a.key).Msg("an account in the spend bucket cannot be read; actions with an amount under its mandate are denied")
		return empty, true
	}
	return state, false
}

func (a *spendAccount) setState(state mandate.Account, revision uint64, unreadable bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if revision > a.revision {
		a.replaceState(state, revision, unreadable)
	}
}

// replaceState requires mu.
func (a *spendAccount) replaceState(state mandate.Account, revision uint64, unreadable bool) {
	a.ledger.indexSessions(a, a.state, state)
	a.state, a.revision, a.unreadable = state, revision, unreadable
}

// changeState replaces the account by the result of f, unless f reports no change or fails. If
// another admitter wrote first, f is called again with the new state. An error that is not f's
// leaves open whether the change was made.
func (a *spendAccount) changeState(ctx context.Context, f func(mandate.Account) (next mandate.Account, changed bool, err error)) error {
	select {
	case a.changeLock <- struct{}{}:
		defer func() { <-a.changeLock }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for account %s: %w", a.key, ctx.Err())
	}
	pauses := retry.New(conflictMin, conflictMax)
	for {
		state, revision, unreadable := a.snapshot()
		if unreadable {
			return fmt.Errorf("%w: %s", errUnreadable, a.key)
		}
		next, changed, err := f(state)
		if err != nil || !changed {
			return err
		}
		stored, err := a.storeState(ctx, next, revision)
		if err == nil {
			a.setState(next, stored, false)
			return nil
		}
		if !streams.IsKVConflict(err) {
			return fmt.Errorf("changing account %s: %w", a.key, err)
		}
		if err := a.ledger.follower.caughtUp(ctx); err != nil {
			return err
		}
		if _, now, _ := a.snapshot(); now == revision {
			if err := pauses.Wait(ctx); err != nil { // the other write is under way
				return fmt.Errorf("account %s is changed by another writer, and the bucket does not show it: %w", a.key, err)
			}
		}
	}
}

func (a *spendAccount) storeState(ctx context.Context, next mandate.Account, revision uint64) (uint64, error) {
	if next.Allowances == nil {
		next.Allowances = []mandate.Allowance{}
	}
	body, err := json.Marshal(next)
	if err != nil {
		return 0, err
	}
	return a.ledger.follower.kv.Update(ctx, a.key, body, revision)
}
