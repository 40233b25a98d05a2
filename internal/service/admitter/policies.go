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
	// policySettleDelay is how long a burst of policy changes may take before the set is
	// compiled: documents that are put one by one become one change. A push is a single value.
	policySettleDelay = 50 * time.Millisecond
	// recordRetry is how often a change that could not be recorded is retried.
	recordRetry = time.Second
	// openTimeout is how long a bucket that is read may send nothing.
	openTimeout = 10 * time.Second
)

// policyStore follows the policies bucket.
type policyStore struct {
	s       *service
	entries map[string]bucketEntry   // of the bucket, with deletions
	held    policybucket.BucketState // the state that the entries give
	opened  bool
	changes changeLog
}

func newPolicyStore(s *service) *policyStore {
	return &policyStore{s: s, entries: map[string]bucketEntry{}, changes: changeLog{s: s, kind: events.ControlPolicy}}
}

// start compiles the content of the policies bucket before it returns, and again after every
// change. A set that does not compile denies everything until it is fixed: the previous set may
// have rules that were just withdrawn.
func (p *policyStore) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	return newTrackedFollower(p.s, streams.BucketPolicies, policySettleDelay, p.applyChanges).start(ctx, nc, js)
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

// loadSet compiles the documents, records the change and swaps the configuration, in this order: a set
// is in the log before its first decision. A change that cannot be recorded takes effect all the
// same, and no decision is recorded until the log has the change.
func (p *policyStore) loadSet(ctx context.Context) {
	var set *policy.Set
	list, err := p.held.Documents()
	if err == nil {
		set, err = policy.Compile(list)
	}
	p.changes.addChange(p.held.Revision, p.policyChange(list, set, err))
	p.changes.recordPending(ctx)
	p.s.rates.prepareSet(ctx, set)
	p.s.config.Store(&admission.Config{Policies: set, PolicyErr: err, Revision: p.held.Revision, Observed: p.s.observed})
	p.s.metrics.Policies(p.held.Revision, err == nil)
	p.s.rates.finishPrepare(set)
	p.reportState(set, err)
}

// reportState reports the state of the policies in log and health.
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
	if len(p.held.Mixed()) > 0 { // the set in force is not a pushed set alone
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
