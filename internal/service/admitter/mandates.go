package admitter

import (
	"context"
	"slices"
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

// mandateStore is the stateStore of mandates in force, revocations and signers' keys. Every
// change is compiled once.
type mandateStore struct {
	s        *service
	store    atomic.Pointer[mandate.Store]
	changes  changeLog // used by the follower only
	opened   bool      // used by the follower only
	recorded uint64    // the revision of the bucket up to which the log has every change; used by the follower only
}

func newMandateStore(s *service) *mandateStore {
	return &mandateStore{s: s, changes: changeLog{s: s, kind: events.ControlMandate}}
}

func (ms *mandateStore) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	return newTrackedFollower(ms.s, streams.BucketMandates, policySettleDelay, ms.applyChanges).start(ctx, nc, js)
}

func (ms *mandateStore) load(req admission.Request, in *admission.Inputs) {
	store := ms.store.Load()
	in.Mandates.Mandates, in.Mandates.Revocations, in.Mandates.Signatures = store, store, store.Signatures(req.Tenant)
}

// reserve implements stateStore: a mandate is not used up by naming it.
func (ms *mandateStore) reserve(context.Context, admission.Request, *admission.Outcome) (reservation, error) {
	return reservation{}, nil
}

// applyChanges compiles the changes, records them and puts them in force, in this order. A change
// that cannot be recorded takes effect all the same, and no decision is recorded until the log
// has the change.
func (ms *mandateStore) applyChanges(ctx context.Context, changed map[string]bucketEntry, revision uint64) {
	if !ms.opened {
		ms.recorded = ms.lastRecorded(ctx)
	}
	old, values := map[string][]byte{}, map[string][]byte{}
	for key, e := range changed {
		if !ms.opened && e.revision <= ms.recorded {
			old[key] = e.value
		} else {
			values[key] = e.value
		}
	}
	before, known := ms.store.Load().WithChanges(old)
	if next, changes := before.WithChanges(values); len(changes) > 0 || !ms.opened {
		for _, r := range ms.changeRecords(next, changes, revision) {
			ms.changes.addChange(revision, r)
		}
		ms.recorded = revision
		ms.changes.recordPending(ctx)
		ms.store.Store(next)
		ms.reportState(next, slices.Concat(known, changes))
		ms.opened = true
		return
	}
	ms.changes.recordPending(ctx)
}

// lastRecorded is the revision of the bucket up to which the log has every change, 0 if it has none or does
// not say: what was put or revoked while no admitter ran is recorded by the next one.
func (ms *mandateStore) lastRecorded(ctx context.Context) uint64 {
	last, err := latestRecord[events.MandateChange](ctx, &ms.changes)
	if err != nil {
		return 0
	}
	return last.Revision
}

// changeRecords returns the log's records of a change; at the start one at least. Only the last one has the
// new revision: the admitter may be killed before it is written.
func (ms *mandateStore) changeRecords(next *mandate.Store, changes []mandate.Change, revision uint64) (list []events.MandateChange) {
	base := events.MandateChange{Writer: writerName(), Revision: ms.recorded, Digest: next.Digest(), Mandates: next.Len()}
	for first := true; first || len(changes) > 0; first = false {
		r := base
		r.Changes = []events.MandateStep{}
		for _, c := range changes[:min(maxSteps, len(changes))] {
			r.Changes = append(r.Changes, events.MandateStep{
				Change: c.Kind, Tenant: c.Tenant, MandateID: c.ID, Hash: c.Hash, Author: c.Author, By: c.By, Unreadable: c.Unreadable,
			})
		}
		if changes = changes[len(r.Changes):]; len(changes) == 0 {
			r.Revision = revision
		}
		list = append(list, r)
	}
	return list
}

func (ms *mandateStore) reportState(next *mandate.Store, changes []mandate.Change) {
	ms.s.env.Log.Info().Int("mandates", next.Len()).Int("changes", len(changes)).Msg("mandates loaded")
	for _, c := range changes {
		if c.Unreadable {
			ms.s.env.Log.Error().Str("tenant", c.Tenant).Str("mandate", c.ID).Str("change", c.Kind).
				Msg("what was put into the mandates bucket cannot be used; requests that need it are denied")
		}
	}
}
