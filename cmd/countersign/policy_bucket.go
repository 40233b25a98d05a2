package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
	"github.com/countersign-dev/countersign/streams"
)

// policyBucket is the policies bucket as an operator sees it.
type policyBucket struct{ operatorBucket }

func openPolicies(ctx context.Context, f target.Flags) (*policyBucket, error) {
	t, err := f.Resolve()
	if err != nil {
		return nil, err
	}
	return openPoliciesAt(ctx, t)
}

func openPoliciesAt(ctx context.Context, t *target.Target) (*policyBucket, error) {
	b, err := bucketAt(ctx, t, streams.BucketPolicies)
	return &policyBucket{b}, err
}

// inForce reads what is in force.
func (b *policyBucket) inForce(ctx context.Context) (*policybucket.BucketState, error) {
	keys, err := streams.KVKeys(ctx, b.js, streams.BucketPolicies)
	if err != nil {
		return nil, fmt.Errorf("listing the policies: %w", err)
	}
	held := &policybucket.BucketState{}
	for _, key := range keys {
		e, err := streams.KVLast(ctx, b.js, streams.BucketPolicies, key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading policy %s: %w", key, err)
		case e == nil:
		case e.Deleted:
			held.Delete(key, e.Revision)
		default:
			held.Put(key, e.Value, e.Revision)
		}
	}
	return held, nil
}

// errPushedMeanwhile says that the set is not the one any more that a change was
// made for.
var errPushedMeanwhile = errors.New("somebody else has pushed policies meanwhile: look at them (countersign policy diff DIR) and try again")

// put makes a set what is in force, if the newest push is still the one with the
// revision after. What was put one by one before is superseded by it.
func (b *policyBucket) put(ctx context.Context, set events.PolicySet, after uint64) (revision uint64, err error) {
	set.PushedAt = events.At(time.Now())
	value, err := set.Encode()
	if err != nil {
		return 0, err
	}
	if limit := b.nc.MaxPayload(); int64(len(value)) > limit {
		return 0, fmt.Errorf("%w: %d bytes, and the server takes messages of %d (max_payload)", events.ErrPolicySetTooLarge, len(value), limit)
	}
	revision, err = b.kv.Update(ctx, events.PolicySetKey, value, after)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return 0, errPushedMeanwhile
	}
	if err != nil {
		return 0, fmt.Errorf("pushing the policies: %w", err)
	}
	return revision, nil
}

// push makes docs, and nothing else, what is in force. It does nothing if they
// are that already.
func (b *policyBucket) push(ctx context.Context, docs []policy.Document, author, message string) (revision uint64, changed bool, err error) {
	held, err := b.inForce(ctx)
	if err != nil {
		return 0, false, err
	}
	if held.HoldsExactly(docs) {
		return held.Revision, false, nil
	}
	revision, err = b.put(ctx, events.PolicySet{Author: author, Message: message, Documents: policybucket.EncodeDocuments(docs)}, held.SetAt)
	return revision, true, err
}

// pushed is one set that was pushed.
type pushed struct {
	Revision uint64
	Set      events.PolicySet
	Err      error // the value cannot be read
	Deleted  bool
	At       time.Time // the server's
}

// pushes lists the sets that the bucket still has, oldest first.
func (b *policyBucket) pushes(ctx context.Context) ([]pushed, error) {
	entries, err := streams.KVHistory(ctx, b.js, streams.BucketPolicies, events.PolicySetKey)
	if err != nil {
		return nil, fmt.Errorf("reading the history of the policies: %w", err)
	}
	list := make([]pushed, len(entries))
	for i, e := range entries {
		list[i] = pushed{Revision: e.Revision, Deleted: e.Deleted, At: e.Created}
		if !e.Deleted {
			list[i].Set, list[i].Err = events.DecodePolicySet(e.Value)
		}
	}
	return list, nil
}

// revision reads one set that was pushed.
func (b *policyBucket) revision(ctx context.Context, revision uint64) (pushed, error) {
	m, err := streams.MessageAt(ctx, b.js, "KV_"+streams.BucketPolicies, revision)
	if err != nil {
		return pushed{}, fmt.Errorf("reading revision %d: %w", revision, err)
	}
	if m == nil || m.Subject != "$KV."+streams.BucketPolicies+"."+events.PolicySetKey || len(m.Body) == 0 {
		return pushed{}, fmt.Errorf("there is no pushed set with revision %d (any more): countersign policy history lists those that are there", revision)
	}
	p := pushed{Revision: revision, At: m.Time}
	p.Set, err = events.DecodePolicySet(m.Body)
	if err != nil {
		return p, fmt.Errorf("revision %d: %w", revision, err)
	}
	return p, nil
}
