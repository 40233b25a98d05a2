package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/streams"
)

// retentionBucket reads and changes the tenants' policies, holds and orders.
type retentionBucket struct {
	js jetstream.JetStream
	kv jetstream.KeyValue
}

// readState reads the holds and orders of a tenant, and their revision.
func (b *retentionBucket) readState(ctx context.Context, key string) (retention.State, uint64, error) {
	e, err := streams.KVLast(ctx, b.js, streams.BucketRetention, key)
	if err != nil {
		return retention.State{}, 0, err
	}
	if e == nil { // the tenant has no orders yet
		s, err := retention.Decode(nil)
		return s, 0, err
	}
	s, err := retention.Decode(e.Value)
	return s, e.Revision, err
}

// changeState applies a step to a tenant's state by compare-and-set. step may refuse, depending
// on the state.
func (b *retentionBucket) changeState(ctx context.Context, key string, step func(retention.State) (retention.State, error)) error {
	s, revision, err := b.readState(ctx, key)
	if err != nil {
		return err
	}
	if s, err = step(s); err != nil {
		return err
	}
	text, err := s.Encode()
	if err != nil {
		return err
	}
	if revision == 0 {
		_, err = b.kv.Create(ctx, key, text)
	} else {
		_, err = b.kv.Update(ctx, key, text, revision)
	}
	if err != nil {
		return fmt.Errorf("changing the retention state (another writer changed it, or the bucket does not answer): %w", err)
	}
	return nil
}

// beginUnheld begins an order unless a legal hold in the same revision of the state covers
// planned messages.
func (b *retentionBucket) beginUnheld(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order, p erasureplan.Plan) (why string, err error) {
	err = b.changeState(ctx, key, func(s retention.State) (retention.State, error) {
		hold, err := ev.BlockingHold(ctx, s, p, o.Subject)
		if err != nil {
			return s, err
		}
		if hold != nil {
			return s, &retention.HeldError{Hold: *hold}
		}
		return s.BeginOrder(o.ID, p.Planned(), time.Now())
	})
	if errors.Is(err, retention.ErrHeld) {
		return err.Error(), nil
	}
	return "", err
}

// eachPolicy calls do with every tenant's policy, or with the error of reading it.
func (b *retentionBucket) eachPolicy(ctx context.Context, do func(tenant string, p *retention.Policy, err error) error) error {
	list, err := streams.KVLive(ctx, b.js, streams.BucketRetention, func(key string) bool {
		_, ok := retention.PolicyTenant(key)
		return ok
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		tenant, _ := retention.PolicyTenant(e.Key)
		p, err := retention.Parse(tenant, e.Value)
		if err := do(tenant, p, err); err != nil {
			errs = append(errs, fmt.Errorf("the retention policy of tenant %.60q: %w", tenant, err))
		}
	}
	return errors.Join(errs...)
}

// loadPolicy reads a tenant's policy from the bucket, nil if there is none.
func (b *retentionBucket) loadPolicy(ctx context.Context, tenant string) (*retention.Policy, error) {
	e, err := streams.KVLast(ctx, b.js, streams.BucketRetention, retention.PolicyKey(tenant))
	if err != nil || e == nil || e.Deleted {
		return nil, err
	}
	return retention.Parse(tenant, e.Value)
}
