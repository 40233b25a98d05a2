package admitter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// approvalStore is the stateStore of approval workflows. The bucket is authoritative and every
// change of it is a compare-and-set; the view in memory says what to try, and which allow another
// workflow of the session turns into an ask. The records in the log follow the bucket: maintain
// writes the records that a crash between the two left out.
type approvalStore struct {
	s        *service
	js       jetstream.JetStream
	follower *bucketFollower
	index    *approvalIndex
}

// maxErasures is how many erasure notices may wait. Workflows of notices beyond that stay in
// memory until they are over.
const maxErasures = 4096

func newApprovalStore(s *service) *approvalStore {
	a := &approvalStore{s: s, index: newApprovalIndex()}
	a.follower = &bucketFollower{s: s, bucket: streams.BucketApprovals, view: a, checkNotice: a.recheckErased}
	s.progress.trackView(&a.follower.reconnects) // that a workflow forbids an allow is known by the view alone
	return a
}

// start implements stateStore.
func (a *approvalStore) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	a.js = js
	erased := make(chan *nats.Msg, maxErasures) // an erasure leaves no trace in the bucket
	erasures, err := nc.ChanSubscribe(a.s.space.Control(a.s.flags.Stream, events.ControlErasure), erased)
	if err == nil {
		err = nc.FlushTimeout(flushTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("listening to erasures: %w", err)
	}
	a.follower.notices = erased
	stopFollower, err := a.follower.start(ctx, nc, js)
	if err != nil {
		return nil, errors.Join(err, erasures.Unsubscribe())
	}
	stopMaintaining := daemon.Background(ctx, a.maintainWorkflows)
	return func() {
		stopMaintaining()
		stopFollower()
		_ = erasures.Unsubscribe()
	}, nil
}

// load implements stateStore.
func (a *approvalStore) load(_ admission.Request, in *admission.Inputs) { in.Approvals = a.index }

// reserve implements stateStore: it makes the decision's approval step by compare-and-set.
func (a *approvalStore) reserve(ctx context.Context, _ admission.Request, out *admission.Outcome) (reservation, error) {
	step := out.Consumption.Approval
	if step == nil {
		return reservation{}, nil
	}
	key := approval.StoreKey(step.Next.Tenant, step.Slot)
	if step.Unchanged {
		return reservation{}, a.checkUnchanged(ctx, key, step.Revision)
	}
	old := a.index.lookup(key)
	if old.revision != step.Revision {
		return reservation{}, errConflict
	}
	if step.Consumes {
		// An approval must be in the log before a decision that rests on it.
		if err := a.ensureLogged(ctx, key, old); err != nil {
			return reservation{}, err
		}
	}
	revision, err := a.writeWorkflow(ctx, key, step.Next, step.Revision)
	if err != nil {
		return reservation{}, err
	}
	t := reservation{release: func(ctx context.Context) { a.undoStep(ctx, key, old.workflow, revision, step.Consumes) }}
	for _, r := range step.Records {
		msg, err := a.recordMessage(r)
		if err != nil {
			t.release(ctx)
			return reservation{}, err
		}
		t.msgs = append(t.msgs, msg)
	}
	return t, nil
}

// checkUnchanged asks the bucket's leader whether a workflow still has a revision. The view may
// lag behind a change that the caller has just been told of.
func (a *approvalStore) checkUnchanged(ctx context.Context, key string, revision uint64) error {
	if err := a.refreshKey(ctx, key); err != nil {
		return err
	}
	if a.index.lookup(key).revision != revision {
		return errConflict
	}
	return nil
}

// writeWorkflow replaces the value at a revision (0: no value) by a workflow. errConflict means
// that another process has changed the key; the view then has that change.
func (a *approvalStore) writeWorkflow(ctx context.Context, key string, w approval.Workflow, revision uint64) (uint64, error) {
	value, err := events.Encode(w)
	if err != nil {
		return 0, err
	}
	pauses := retry.New(conflictMin, conflictMax)
	for {
		written := uint64(0)
		if revision == 0 {
			written, err = a.follower.kv.Create(ctx, key, value)
		} else {
			written, err = a.follower.kv.Update(ctx, key, value, revision)
		}
		if err == nil {
			a.index.put(key, &w, written)
			return written, nil
		}
		if !streams.IsKVConflict(err) {
			return 0, fmt.Errorf("changing an approval workflow: %w", err)
		}
		if err := a.refreshKey(ctx, key); err != nil {
			return 0, err
		}
		if a.index.lookup(key).revision != revision {
			return 0, errConflict
		}
		if err := pauses.Wait(ctx); err != nil { // the other write is under way
			return 0, fmt.Errorf("waiting for another change of an approval workflow: %w", err)
		}
	}
}

// refreshKey reads one key from the leader of the bucket into the view.
func (a *approvalStore) refreshKey(ctx context.Context, key string) error {
	e, err := streams.KVLast(ctx, a.js, streams.BucketApprovals, key)
	if err != nil {
		return fmt.Errorf("reading an approval workflow: %w", err)
	}
	if e == nil || e.Deleted {
		a.index.removeKey(key)
		return nil
	}
	a.index.put(key, a.decodeWorkflow(key, e.Value), e.Revision)
	return nil
}

// decodeWorkflow decodes the value of a key. An unreadable value gives nil: it approves nothing,
// and the next workflow of the slot replaces it.
func (a *approvalStore) decodeWorkflow(key string, value []byte) *approval.Workflow {
	w, err := approval.Decode(value)
	if err == nil && approval.StoreKey(w.Tenant, w.Slot) != key {
		err = errors.New("it belongs to another key")
	}
	if err != nil {
		a.s.env.Log.Error().Err(err).Str("key", key).Msg("an approval workflow in the bucket cannot be read; it approves nothing")
		return nil
	}
	return &w
}

// undoStep undoes a step if its record was certainly not written. A step that another process has
// already built on stays. consumes says that the step used an approval.
func (a *approvalStore) undoStep(ctx context.Context, key string, old *approval.Workflow, revision uint64, consumes bool) {
	ctx, cancel := context.WithTimeout(ctx, a.s.flags.Timeout)
	defer cancel()
	var err error
	if old != nil {
		_, err = a.writeWorkflow(ctx, key, *old, revision)
	} else if err = a.follower.kv.Delete(ctx, key, jetstream.LastRevision(revision)); err == nil {
		a.index.removeKey(key)
	}
	switch {
	case err == nil:
	case consumes:
		a.s.env.Log.Warn().Err(err).Str("key", key).Msg("the use of an approval could not be undone: the approval is gone, and the agent must ask anew")
	case !errors.Is(err, errConflict) && !streams.IsKVConflict(err):
		a.s.env.Log.Warn().Err(err).Str("key", key).Msg("a step of an approval workflow could not be undone")
	}
}

// replaceAll implements bucketView.
func (a *approvalStore) replaceAll(_ context.Context, read bucketRead) {
	fresh := newApprovalIndex()
	a.putEntries(fresh, read.entries)
	a.index.replaceWith(fresh)
}

// applyChanges implements bucketView.
func (a *approvalStore) applyChanges(_ context.Context, changed map[string]bucketEntry, _ uint64) {
	a.putEntries(a.index, changed)
}

func (a *approvalStore) putEntries(v *approvalIndex, entries map[string]bucketEntry) {
	for key, e := range entries {
		if e.value == nil {
			v.removeAt(key, e.revision)
			continue
		}
		v.put(key, a.decodeWorkflow(key, e.value), e.revision)
	}
}

// recheckErased checks whether an erasure has removed workflows from the bucket, which a watch
// does not report. The erasure record is not trusted: it only says which keys to check. One
// record comes before the workflows are removed and one after.
func (a *approvalStore) recheckErased(ctx context.Context, record []byte) error {
	e, err := events.DecodeRecord[events.Erasure](record)
	if err != nil {
		return fmt.Errorf("reading an erasure: %w", err)
	}
	var errs []error
	a.index.eachKey(func(key string, h cachedApproval) {
		k := sessionsecrets.SessionOfName(h.workflow.Tenant, h.workflow.Session)
		masked := evidence.MaskedNames(e.Sessions) && redaction.SecretName(h.workflow.Session)
		if k.Tenant == e.Tenant && (masked || slices.Contains(e.Sessions, k.Session)) {
			errs = append(errs, a.withTimeout(ctx, func(ctx context.Context) error { return a.refreshKey(ctx, key) }))
		}
	})
	return errors.Join(errs...)
}

// reportRetry logs a failure that will be retried and shows it in the health report.
func (a *approvalStore) reportRetry(ctx context.Context, err error) {
	if ctx.Err() == nil {
		a.s.env.Log.Error().Err(err).Msg("approvals")
		a.s.env.Health.Set("approval_records", err.Error())
	}
}
