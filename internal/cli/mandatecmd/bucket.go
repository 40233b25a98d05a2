package mandatecmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// MandateBucket gives an operator access to the mandates of one tenant.
type MandateBucket struct{ system.Bucket }

// OpenMandates finds the running system and opens its mandates.
func OpenMandates(ctx context.Context, f target.Flags) (*MandateBucket, error) {
	b, err := system.OpenBucket(ctx, f, streams.BucketMandates)
	return &MandateBucket{b}, err
}

// heldMandate is one mandate in the bucket.
type heldMandate struct {
	mandate.StoredMandate
	Revision uint64
}

// newest returns the newest revision under an id, nil if the id is unknown or was removed.
// revision is the revision that the next put must name.
func (b *MandateBucket) newest(ctx context.Context, id string) (held *heldMandate, revision uint64, err error) {
	if !mandate.ValidID(id) {
		return nil, 0, ui.UsageError{Err: fmt.Errorf("%q is not the id of a mandate (aump_mnd_…)", ui.Clean(id, 64))}
	}
	e, err := streams.KVLast(ctx, b.JS, streams.BucketMandates, mandate.Key(b.Tenant, id))
	if err != nil {
		return nil, 0, fmt.Errorf("reading mandate %s: %w", id, err)
	}
	if e == nil {
		return nil, 0, nil
	}
	if e.Deleted {
		return nil, e.Revision, nil
	}
	s, err := mandate.DecodeStored(e.Value)
	if err != nil {
		return nil, e.Revision, fmt.Errorf("what is stored under mandate %s cannot be read (put it again): %w", id, err)
	}
	return &heldMandate{s, e.Revision}, e.Revision, nil
}

// write stores a document if the key has not changed since revision.
func (b *MandateBucket) write(ctx context.Context, key string, doc any, revision uint64) (uint64, error) {
	body, err := events.Encode(doc)
	if err != nil {
		return 0, err
	}
	return b.Update(ctx, key, body, revision, errChangedMeanwhile)
}

// errChangedMeanwhile reports that a value has changed since a change of it was prepared.
var errChangedMeanwhile = errors.New("another writer changed it in the same moment; look at it (mandate history) and try again")

// revocation returns the revocation of a mandate, nil if there is none. An unreadable one counts
// as well.
func (b *MandateBucket) revocation(ctx context.Context, id, hash string) (*mandate.Revocation, error) {
	for _, key := range []string{mandate.RevocationKey(b.Tenant, id, hash), mandate.PrincipalRevocationKey(b.Tenant, id, hash)} {
		e, err := streams.KVLast(ctx, b.JS, streams.BucketMandates, key)
		if err != nil {
			return nil, err
		}
		if e == nil || e.Deleted {
			continue
		}
		r, err := events.DecodeRecord[mandate.Revocation](e.Value)
		if err != nil {
			r = mandate.Revocation{ID: id, Hash: hash}
		}
		r.By = mandate.ParseKey(key).By
		return &r, nil
	}
	return nil, nil
}

// keys returns the tenant's signing keys; revision is 0 if there are none.
func (b *MandateBucket) keys(ctx context.Context) (doc mandate.SigningKeys, set aump.KeySet, revision uint64, err error) {
	e, err := streams.KVLast(ctx, b.JS, streams.BucketMandates, mandate.KeysKey(b.Tenant))
	if err != nil || e == nil {
		return doc, nil, 0, err
	}
	if e.Deleted {
		return doc, nil, e.Revision, nil
	}
	if doc, set, err = mandate.DecodeKeys(e.Value); err != nil {
		return doc, nil, e.Revision, fmt.Errorf("the signing keys in the bucket cannot be read (mandate keys put puts others): %w", err)
	}
	return doc, set, e.Revision, nil
}

// ids lists the ids that have, or had, a mandate.
func (b *MandateBucket) ids(ctx context.Context) (ids []string, err error) {
	keys, err := streams.KVKeys(ctx, b.JS, streams.BucketMandates)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if k := mandate.ParseKey(key); k.Kind == mandate.KeyMandate && k.Tenant == mandate.TenantToken(b.Tenant) {
			ids = append(ids, k.ID)
		}
	}
	return ids, nil
}

// spentMoney is the amount spent under an id in one currency, in minor units.
type spentMoney struct {
	Currency string `json:"currency"`
	Settled  *int64 `json:"settled_minor,omitempty"` // nil if Unreadable
	Reserved *int64 `json:"reserved_minor,omitempty"`

	// Unreadable: the account cannot be read, and actions with an amount are denied (ledger_unreadable).
	Unreadable bool `json:"unreadable,omitempty"`
}

func (s spentMoney) String() string {
	if s.Unreadable {
		return ui.Clean(s.Currency, 8) + " unreadable, so that amounts are denied"
	}
	return fmt.Sprintf("%s %d spent, %d reserved", ui.Clean(s.Currency, 8), *s.Settled, *s.Reserved)
}

// currencyAccount is what the ledger holds of one mandate in one currency.
type currencyAccount struct {
	currency string
	mandate.Account
	err error // it cannot be read
}

// accounts reads the ledger's accounts by the mandate's id.
func (b *MandateBucket) accounts(ctx context.Context) (map[string][]currencyAccount, error) {
	stored, err := streams.KVUnder(ctx, b.JS, streams.BucketSpend, mandate.TenantToken(b.Tenant)+".")
	if err != nil {
		return nil, err
	}
	return decodeAccounts(stored), nil
}

// decodeAccounts are the accounts by the mandate's id; a key is <id>.<currency>.
func decodeAccounts(stored map[string][]byte) map[string][]currencyAccount {
	list := map[string][]currencyAccount{}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		if id, currency, ok := strings.Cut(key, "."); ok {
			a, err := mandate.DecodeAccount(stored[key])
			list[id] = append(list[id], currencyAccount{currency, a, err})
		}
	}
	return list
}

// spent lists the spent amounts by id.
func (b *MandateBucket) spent(ctx context.Context) (map[string][]spentMoney, error) {
	accounts, err := b.accounts(ctx)
	if err != nil {
		return nil, err
	}
	list := map[string][]spentMoney{}
	for id, ofID := range accounts {
		for _, a := range ofID {
			list[id] = append(list[id], a.spent(time.Now()))
		}
	}
	return list, nil
}

func (a currencyAccount) spent(now time.Time) spentMoney {
	if a.err != nil {
		return spentMoney{Currency: a.currency, Unreadable: true}
	}
	s := a.Spend("", now.UnixMilli())
	return spentMoney{Currency: a.currency, Settled: &s.Settled, Reserved: &s.Reserved}
}
