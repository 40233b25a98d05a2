package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/streams"
)

// mandateBucket is the mandates bucket as an operator sees it, for one tenant.
type mandateBucket struct{ operatorBucket }

func openMandates(ctx context.Context, f target.Flags) (*mandateBucket, error) {
	b, err := openBucket(ctx, f, streams.BucketMandates)
	return &mandateBucket{b}, err
}

// heldMandate is one mandate as the bucket has it.
type heldMandate struct {
	mandate.StoredMandate
	Revision uint64
}

// newest gives the newest revision under an id. Nothing is there, and it is
// nil, if the id is unknown; revision is then what the next put must name.
func (b *mandateBucket) newest(ctx context.Context, id string) (held *heldMandate, revision uint64, err error) {
	if !mandate.ValidID(id) {
		return nil, 0, usageError{fmt.Errorf("%q is not the id of a mandate (aump_mnd_…)", clean(id, 64))}
	}
	e, err := streams.KVLast(ctx, b.js, streams.BucketMandates, mandate.Key(b.tenant, id))
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

// write stores a document if nobody has written its key since revision.
func (b *mandateBucket) write(ctx context.Context, key string, doc any, revision uint64) (uint64, error) {
	body, err := events.Encode(doc)
	if err != nil {
		return 0, err
	}
	stored, err := b.kv.Update(ctx, key, body, revision)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return 0, errors.New("somebody else changed it in the same moment; look at it (mandate history) and try again")
	}
	if err != nil {
		return 0, fmt.Errorf("writing to the mandates bucket: %w", err)
	}
	return stored, nil
}

// revocation is the revocation of a mandate, nil if there is none. One that
// cannot be read counts all the same.
func (b *mandateBucket) revocation(ctx context.Context, id, hash string) (*mandate.Revocation, error) {
	e, err := streams.KVLast(ctx, b.js, streams.BucketMandates, mandate.RevocationKey(b.tenant, id, hash))
	if err != nil || e == nil || e.Deleted {
		return nil, err
	}
	r, err := events.DecodeRecord[mandate.Revocation](e.Value)
	if err != nil {
		r = mandate.Revocation{ID: id, Hash: hash}
	}
	return &r, nil
}

// keys are the tenant's signing keys; revision is 0 if there are none.
func (b *mandateBucket) keys(ctx context.Context) (doc mandate.SigningKeys, set aump.KeySet, revision uint64, err error) {
	e, err := streams.KVLast(ctx, b.js, streams.BucketMandates, mandate.KeysKey(b.tenant))
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

// ids lists the ids under which there is, or was, a mandate.
func (b *mandateBucket) ids(ctx context.Context) (ids []string, err error) {
	keys, err := streams.KVKeys(ctx, b.js, streams.BucketMandates)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if k := mandate.ParseKey(key); k.Kind == mandate.KeyMandate && k.Tenant == mandate.TenantToken(b.tenant) {
			ids = append(ids, k.ID)
		}
	}
	return ids, nil
}

// spentMoney is what was spent under an id in one currency, in minor units.
type spentMoney struct {
	Currency string `json:"currency"`
	Settled  int64  `json:"settled_minor"`
	Reserved int64  `json:"reserved_minor"`
}

func (s spentMoney) String() string {
	return fmt.Sprintf("%s %d spent, %d reserved", clean(s.Currency, 8), s.Settled, s.Reserved)
}

// spent lists what was spent, by id.
func (b *mandateBucket) spent(ctx context.Context) (map[string][]spentMoney, error) {
	keys, err := streams.KVKeys(ctx, b.js, streams.BucketSpend)
	if err != nil {
		return nil, err
	}
	list := map[string][]spentMoney{}
	for _, key := range keys {
		part := strings.Split(key, ".")
		if len(part) != 3 || part[0] != mandate.TenantToken(b.tenant) {
			continue
		}
		e, err := streams.KVLast(ctx, b.js, streams.BucketSpend, key)
		if err != nil {
			return nil, err
		}
		var a mandate.Account
		if e == nil || json.Unmarshal(e.Value, &a) != nil {
			continue
		}
		s := a.Spend("", time.Now().UnixMilli())
		list[part[1]] = append(list[part[1]], spentMoney{part[2], s.Settled, s.Reserved})
	}
	return list, nil
}
