package policycmd

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
	"github.com/countersign-dev/countersign/streams"
)

// PolicyBucket gives an operator access to the policies bucket.
type PolicyBucket struct{ system.Bucket }

func openPolicies(ctx context.Context, f target.Flags) (*PolicyBucket, error) {
	t, err := f.Resolve()
	if err != nil {
		return nil, err
	}
	return OpenPoliciesAt(ctx, t)
}

// openInForce is openPolicies and what is in force there.
func openInForce(ctx context.Context, f target.Flags) (*PolicyBucket, *policybucket.BucketState, error) {
	b, err := openPolicies(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	held, err := b.InForce(ctx)
	if err != nil {
		b.Conn.Close()
		return nil, nil, err
	}
	return b, held, nil
}

// OpenPoliciesAt opens the policies of a resolved system.
func OpenPoliciesAt(ctx context.Context, t *target.Target) (*PolicyBucket, error) {
	b, err := system.OpenBucketAt(ctx, t, streams.BucketPolicies)
	return &PolicyBucket{b}, err
}

// InForce reads the policies in force.
func (b *PolicyBucket) InForce(ctx context.Context) (*policybucket.BucketState, error) {
	return policybucket.InForce(ctx, b.JS)
}

// errPushedMeanwhile reports that the set has changed since a change of it was prepared.
var errPushedMeanwhile = errors.New("another author has pushed policies meanwhile: look at them (countersign policy diff DIR) and try again")

// put puts a set in force if the newest push is still the one with revision after. The set
// supersedes documents that were put one by one.
func (b *PolicyBucket) put(ctx context.Context, set events.PolicySet, after uint64) (revision uint64, err error) {
	set.PushedAt = events.At(time.Now())
	value, err := set.Encode()
	if err != nil {
		return 0, err
	}
	if limit := b.Conn.MaxPayload(); int64(len(value)) > limit {
		return 0, fmt.Errorf("%w: %d bytes, and the server takes messages of %d (max_payload)", events.ErrPolicySetTooLarge, len(value), limit)
	}
	return b.Update(ctx, events.PolicySetKey, value, after, errPushedMeanwhile)
}

// push puts docs, and nothing else, in force. changed is false if they are in force already.
func (b *PolicyBucket) push(ctx context.Context, docs []policy.Document, author, message string) (revision uint64, changed bool, err error) {
	held, err := b.InForce(ctx)
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
	At       time.Time // by the server's clock
}

// pushes lists the sets that the bucket still has, oldest first.
func (b *PolicyBucket) pushes(ctx context.Context) ([]pushed, error) {
	entries, err := streams.KVHistory(ctx, b.JS, streams.BucketPolicies, events.PolicySetKey)
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

// revision reads one pushed set.
func (b *PolicyBucket) revision(ctx context.Context, revision uint64) (pushed, error) {
	m, err := streams.MessageAt(ctx, b.JS, "KV_"+streams.BucketPolicies, revision)
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

// PushPolicyDir puts the policies of a directory in force on a running pipeline.
func PushPolicyDir(ctx context.Context, r target.Ready, dir string) error {
	docs, _, err := LoadPolicies(dir)
	if err != nil {
		return err
	}
	return PushPolicies(ctx, r, docs)
}

// PushPolicies puts docs, and nothing else, in force.
func PushPolicies(ctx context.Context, r target.Ready, docs []policy.Document) error {
	b, err := OpenPoliciesAt(ctx, target.FromReady(r))
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	for i, d := range docs {
		if !utf8.Valid(d.Data) { // it must deny, not be repaired on the way
			docs[i].Data = []byte("this file was not UTF-8\n")
		}
	}
	_, _, err = b.push(ctx, docs, "countersign", "")
	return err
}
