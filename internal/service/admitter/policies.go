package admitter

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
	"github.com/countersign-dev/countersign/streams"
)

const (
	// settle is how long a burst of policy changes may take before the set is
	// compiled: several documents that are put one by one are one change. A push is
	// one value anyway.
	policySettleDelay = 50 * time.Millisecond
	// recordAgain is how often a change that could not be recorded is tried again.
	recordRetry = time.Second
	// openTimeout is how long reading the whole bucket may take.
	openTimeout = 10 * time.Second
)

// policyStore know what is in the policies bucket.
type policyStore struct {
	s       *service
	entries map[string]bucketEntry   // of the bucket, deletions included
	held    policybucket.BucketState // what they mean
	opened  bool
	changes changeLog
}

func newPolicyStore(s *service) *policyStore {
	return &policyStore{s: s, entries: map[string]bucketEntry{}, changes: changeLog{s: s, kind: events.ControlPolicy}}
}

// start compiles what the policies bucket holds now, before it returns, and again
// whenever it changes. A set that does not compile denies everything until it is
// mended: keeping the old one would decide by rules that somebody has just taken
// back.
func (p *policyStore) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	f := &bucketFollower{s: p.s, bucket: streams.BucketPolicies, settleDelay: policySettleDelay, apply: p.applyChanges}
	return f.start(ctx, nc, js)
}

func (p *policyStore) applyChanges(ctx context.Context, changed map[string]bucketEntry, _ uint64) {
	if len(changed) == 0 && p.opened {
		p.changes.recordPending(ctx)
		return
	}
	for key, e := range changed {
		if p.entries[key] = e; e.revision == 0 {
			delete(p.entries, key)
		}
	}
	p.held, p.opened = policybucket.BucketState{}, true
	for key, e := range p.entries {
		if e.value == nil {
			p.held.Delete(key, e.revision)
		} else {
			p.held.Put(key, e.value, e.revision)
		}
	}
	p.loadSet(ctx)
}

// loadSet compiles the documents, records the change and swaps the snapshot, in
// this order: what decides is in the log before its first decision. A change that
// cannot be recorded takes effect all the same, and nothing is decided until the
// log takes it.
func (p *policyStore) loadSet(ctx context.Context) {
	var set *policy.Set
	list, err := p.held.Documents()
	if err == nil {
		set, err = policy.Compile(list)
	}
	p.changes.addChange(p.held.Revision, p.policyChange(list, set, err))
	p.changes.recordPending(ctx)
	p.s.rates.prepareSet(ctx, set)
	p.s.snapshot.Store(&admission.Snapshot{Policies: set, PolicyErr: err, Revision: p.held.Revision})
	p.s.metrics.Policies(p.held.Revision, err == nil)
	p.s.rates.finishPrepare(set)
	p.reportState(set, err)
}

// reportState puts the state of the policies into log and health.
func (p *policyStore) reportState(set *policy.Set, err error) {
	log, health := p.s.env.Log, p.s.env.Health
	switch {
	case errors.Is(err, policy.ErrNoPolicies):
		log.Warn().Msg("there is no policy; every request is denied (push some with: countersign policy push DIR)")
		health.Set("policies", "no policy: every request is denied")
	case err != nil:
		log.Error().Err(err).Uint64("revision", p.held.Revision).Msg("the policies do not compile; every request is denied until they do")
		health.Set("policies", "the policies do not compile, every request is denied: "+err.Error())
	default:
		log.Info().Uint64("revision", p.held.Revision).Int("policies", len(set.Names())).Msg("policies loaded")
		health.Set("policies", "")
	}
}

func (p *policyStore) policyChange(docs []policy.Document, set *policy.Set, err error) events.PolicyChange {
	c := events.PolicyChange{Writer: writerName(), Revision: p.held.Revision, Policies: []events.PolicyRef{},
		Author: p.held.Set.Author, Message: p.held.Set.Message, PushedAt: p.held.Set.PushedAt, RollbackTo: p.held.Set.RollbackTo,
		Documents: policybucket.EncodeDocuments(docs)}
	if len(p.held.Mixed()) > 0 { // what decides is not what somebody pushed
		c.Author, c.Message, c.PushedAt, c.RollbackTo = "", "", events.Time{}, 0
	}
	if err != nil {
		c.Error = err.Error()
	}
	if set != nil {
		c.Digest = set.Digest()
		for _, name := range set.Names() {
			c.Policies = append(c.Policies, events.PolicyRef{Name: name, Revision: p.held.Revision, Digest: set.Digest()})
		}
	}
	return c.WithinLimits()
}
