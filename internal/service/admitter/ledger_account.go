package admitter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
)

// errUnreadable says that nobody knows what was spent.
var errUnreadable = errors.New("an account in the spend bucket cannot be read")

// spendAccount is one key of the spend bucket as far as it is known, and the one place
// in this process where it is changed.
type spendAccount struct {
	ledger     *spendLedger
	key        string
	tenant     string        // its subject token
	changeLock chan struct{} // whoever holds it may change the key

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

// readEntry takes a revision that was stored.
func (a *spendAccount) readEntry(e bucketEntry) {
	if _, known, _ := a.snapshot(); e.revision <= known {
		return // this process wrote it itself
	}
	state, err := events.DecodeRecord[mandate.Account](e.value)
	unreadable := err != nil || state.V != mandate.AccountVersion
	if unreadable {
		a.ledger.s.env.Log.Error().Str("account", a.key).Msg("an account in the spend bucket cannot be read; actions with an amount under its mandate are denied")
		state = mandate.Account{V: mandate.AccountVersion}
	}
	a.setState(state, e.revision, unreadable)
}

func (a *spendAccount) setState(state mandate.Account, revision uint64, unreadable bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if revision <= a.revision {
		return
	}
	a.ledger.indexSessions(a, a.state, state)
	a.state, a.revision, a.unreadable = state, revision, unreadable
}

// changeState replaces the account by what f makes of it, unless f says that it stays
// as it is or fails. If another admitter was faster, f is asked again with what
// that one has written. An error other than f's leaves open whether the change
// was made.
func (a *spendAccount) changeState(ctx context.Context, f func(mandate.Account) (next mandate.Account, changed bool, err error)) error {
	select {
	case a.changeLock <- struct{}{}:
		defer func() { <-a.changeLock }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for account %s: %w", a.key, ctx.Err())
	}
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
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("changing account %s: %w", a.key, err)
		}
		if err := a.ledger.follower.caughtUp(ctx); err != nil {
			return err
		}
		if _, now, _ := a.snapshot(); now <= revision {
			return fmt.Errorf("account %s was changed by somebody, and the bucket does not show it", a.key)
		}
	}
}

func (a *spendAccount) storeState(ctx context.Context, next mandate.Account, revision uint64) (uint64, error) {
	if next.Entries == nil {
		next.Entries = []mandate.Entry{}
	}
	body, err := json.Marshal(next)
	if err != nil {
		return 0, err
	}
	return a.ledger.follower.kv.Update(ctx, a.key, body, revision)
}
