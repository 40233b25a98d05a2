package recorded

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
	"github.com/countersign-dev/countersign/streams"
)

// PolicyInForce is a policy set that was in force, with the record of its change.
type PolicyInForce struct {
	Change  events.PolicyChange
	Seq     uint64 // of the change record
	Docs    []policy.Document
	Set     *policy.Set
	Err     error // why there was no usable set: everything was denied
	GoneErr error // why the set is no longer available; Set and Err mean nothing then
}

// keepSets bounds the cached compiled sets.
const keepSets = 8

// Policies finds the policies that were in force at a time. One goroutine uses it.
type Policies struct {
	log     Log
	changes []changeAt
	sets    map[uint64]*PolicyInForce // by sequence of the record
	order   []uint64
}

type changeAt struct {
	seq, revision uint64
	digest        string
}

// Policies reads the log's records of policy changes.
func (l Log) Policies(ctx context.Context) (*Policies, error) {
	p := &Policies{log: l, sets: map[uint64]*PolicyInForce{}}
	for m, err := range l.EachControl(ctx, events.ControlPolicy) {
		if err != nil {
			return nil, fmt.Errorf("reading the changes of policies: %w", err)
		}
		if c, err := events.DecodeRecord[events.PolicyChange](m.Body); err == nil {
			p.changes = append(p.changes, changeAt{m.Seq, c.Revision, c.Digest})
		}
	}
	return p, nil
}

// ForDecision returns the policies of a decision: the set that it names or, if it names none, the
// newest before it.
func (p *Policies) ForDecision(ctx context.Context, d events.Decision, seq uint64) (*PolicyInForce, error) {
	var found *changeAt
	for i, c := range p.changes {
		named := d.Policy == nil || c.revision == d.Policy.Revision && c.digest == d.Policy.Digest
		if named && (c.seq < seq || found == nil && d.Policy != nil) {
			found = &p.changes[i]
		}
	}
	if found == nil {
		return nil, ErrNoPolicies
	}
	if have := p.sets[found.seq]; have != nil {
		return have, nil
	}
	in, err := p.loadSet(ctx, found.seq)
	if err != nil {
		return nil, err
	}
	if len(p.order) >= keepSets {
		delete(p.sets, p.order[0])
		p.order = p.order[1:]
	}
	p.sets[found.seq], p.order = in, append(p.order, found.seq)
	return in, nil
}

func (p *Policies) loadSet(ctx context.Context, seq uint64) (*PolicyInForce, error) {
	m, err := streams.MessageAt(ctx, p.log.JS, p.log.Stream, seq)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%w: sequence %d is gone", ErrNoPolicies, seq)
	}
	in := &PolicyInForce{Seq: seq}
	if in.Change, err = events.DecodeRecord[events.PolicyChange](m.Body); err != nil {
		return nil, err
	}
	in.Docs = policybucket.DecodeDocuments(in.Change.Documents)
	if in.Change.Omitted {
		if in.Docs, in.GoneErr = p.fromBucket(ctx, in.Change.Revision); in.GoneErr != nil {
			return in, nil
		}
	}
	in.Set, in.Err = policy.Compile(in.Docs)
	if digest := in.Set.Digest(); digest != in.Change.Digest {
		in.GoneErr = fmt.Errorf("the policies of revision %d have the digest %s here, and had %s when they decided: this program reads them otherwise than the one that decided", in.Change.Revision, digest, in.Change.Digest)
	}
	return in, nil
}

// fromBucket reads a set that was too large for the log's record.
func (p *Policies) fromBucket(ctx context.Context, revision uint64) ([]policy.Document, error) {
	m, err := streams.MessageAt(ctx, p.log.JS, "KV_"+streams.BucketPolicies, revision)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("the text of revision %d is in neither log nor bucket any more", revision)
	}
	set, err := events.DecodePolicySet(m.Body)
	return policybucket.DecodeDocuments(set.Documents), err
}
