package admitter

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// maxSteps bounds the changes in one record.
const maxSteps = 256

// mandates is the part that knows the mandates in force, what was revoked, and
// the keys that sign. Every change is compiled once.
type mandates struct {
	s       *service
	store   atomic.Pointer[mandate.Store]
	changes changeLog // of the follower
	opened  bool      // of the follower
}

func newMandates(s *service) part {
	return &mandates{s: s, changes: changeLog{s: s, kind: events.ControlMandate}}
}

func (p *mandates) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	f := &bucketFollower{s: p.s, bucket: streams.BucketMandates, settle: settle, apply: p.apply}
	return f.start(ctx, nc, js)
}

func (p *mandates) fill(req admission.Request, in *admission.Inputs) {
	store := p.store.Load()
	in.Mandates.Mandates, in.Mandates.Revocations, in.Mandates.Signatures = store, store, store.Signatures(req.Tenant)
}

// take: naming a mandate uses nothing up.
func (p *mandates) take(context.Context, admission.Request, *admission.Outcome) (taken, error) {
	return taken{}, nil
}

// apply compiles what has changed, records it and makes it what decides, in this
// order. A change that cannot be recorded takes effect all the same, and nothing is
// decided until the log takes it.
func (p *mandates) apply(ctx context.Context, changed map[string]bucketEntry, revision uint64) {
	values := make(map[string][]byte, len(changed))
	for key, e := range changed {
		values[key] = e.value
	}
	if next, changes := p.store.Load().With(values); len(changes) > 0 || !p.opened {
		for _, r := range p.records(next, changes, revision) {
			p.changes.add(revision, r)
		}
		p.changes.record(ctx)
		p.store.Store(next)
		p.tell(next, changes)
		p.opened = true
		return
	}
	p.changes.record(ctx)
}

// records are what the log gets of a change. What an admitter begins with is one
// record without a list.
func (p *mandates) records(next *mandate.Store, changes []mandate.Change, revision uint64) (list []events.MandateChange) {
	base := events.MandateChange{Writer: writerName(), Revision: revision, Digest: next.Digest(), Mandates: next.Len()}
	if !p.opened {
		changes = nil
	}
	for first := true; first || len(changes) > 0; first = false {
		r := base
		r.Changes = []events.MandateStep{}
		for _, c := range changes[:min(maxSteps, len(changes))] {
			r.Changes = append(r.Changes, events.MandateStep{
				Change: c.Kind, Tenant: c.Tenant, MandateID: c.ID, Hash: c.Hash, Author: c.Author, Unreadable: c.Unreadable,
			})
		}
		changes = changes[len(r.Changes):]
		list = append(list, r)
	}
	return list
}

func (p *mandates) tell(next *mandate.Store, changes []mandate.Change) {
	p.s.env.Log.Info().Int("mandates", next.Len()).Int("changes", len(changes)).Msg("mandates loaded")
	for _, c := range changes {
		if c.Unreadable {
			p.s.env.Log.Error().Str("tenant", c.Tenant).Str("mandate", c.ID).Str("change", c.Kind).
				Msg("what was put into the mandates bucket cannot be used; requests that need it are denied")
		}
	}
}
