package admitter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// approvalStore is the stateStore of approval workflows. The bucket is authoritative and every
// change of it is a compare-and-set; the view in memory only says what to try. The records in the
// log follow the bucket: maintain writes the records that a crash between the two left out.
type approvalStore struct {
	s     *service
	js    jetstream.JetStream
	kv    jetstream.KeyValue
	lag   *leaderLag
	index *approvalIndex

	watcher jetstream.KeyWatcher // of followBucket
	erased  chan *nats.Msg       // records of erasures in the log; an erasure leaves no trace in the bucket
}

// maxErasures is how many erasure notices may wait. Workflows of notices beyond that stay in
// memory until they are over.
const maxErasures = 4096

func newApprovalStore(s *service) *approvalStore {
	return &approvalStore{s: s, index: newApprovalIndex()}
}

// start implements stateStore.
func (a *approvalStore) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	a.js, a.lag = js, newLeaderLag(js, streams.BucketApprovals)
	if a.kv, err = streams.OpenBucket(ctx, js, streams.BucketApprovals); err != nil {
		return nil, err
	}
	a.erased = make(chan *nats.Msg, maxErasures)
	erasures, err := nc.ChanSubscribe(a.s.space.Control(a.s.flags.Stream, events.ControlErasure), a.erased)
	if err == nil {
		err = nc.FlushTimeout(flushTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("listening to erasures: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	if err := a.openWatch(ctx); err != nil {
		cancel()
		return nil, errors.Join(err, erasures.Unsubscribe())
	}
	connected := nc.StatusChanged(nats.CONNECTED)
	var running sync.WaitGroup
	running.Go(func() { a.followBucket(ctx, connected) })
	running.Go(func() { a.maintainWorkflows(ctx) })
	return func() {
		cancel()
		running.Wait()
		nc.RemoveStatusListener(connected)
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
	t := reservation{release: func(ctx context.Context) { a.undoStep(ctx, key, old.workflow, revision) }}
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
	written := uint64(0)
	if revision == 0 {
		written, err = a.kv.Create(ctx, key, value)
	} else {
		written, err = a.kv.Update(ctx, key, value, revision)
	}
	switch {
	case err == nil:
		a.index.put(key, &w, written)
		return written, nil
	case isConflict(err):
		if err := a.refreshKey(ctx, key); err != nil {
			return 0, err
		}
		return 0, errConflict
	}
	return 0, fmt.Errorf("changing an approval workflow: %w", err)
}

// Codes of a failed compare-and-set.
const (
	codeWrongLastSequence         = 10071
	codeWrongLastSequenceConstant = 10164
)

// isConflict reports whether a compare-and-set failed because another write came first.
func isConflict(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) ||
		errors.As(err, &api) && (api.ErrorCode == codeWrongLastSequence || api.ErrorCode == codeWrongLastSequenceConstant)
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
// already built on stays.
func (a *approvalStore) undoStep(ctx context.Context, key string, old *approval.Workflow, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, a.s.flags.Timeout)
	defer cancel()
	var err error
	if old != nil {
		_, err = a.writeWorkflow(ctx, key, *old, revision)
	} else if err = a.kv.Delete(ctx, key, jetstream.LastRevision(revision)); err == nil {
		a.index.removeKey(key)
	}
	if err != nil && !errors.Is(err, errConflict) {
		a.s.env.Log.Warn().Err(err).Str("key", key).Msg("a step of an approval workflow could not be undone; the agent must ask anew")
	}
}

// openWatch reads the whole bucket into a new view and keeps the watch. It returns
// streams.ErrBehind, and drops the view, if the watch delivered an older state than the bucket's
// leader has.
func (a *approvalStore) openWatch(ctx context.Context) error {
	floor, err := a.lag.minRevision(ctx)
	if err != nil {
		return err
	}
	watcher, err := a.kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watching the approvals: %w", err)
	}
	timeout := time.After(openTimeout)
	fresh := newApprovalIndex()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), watcher.Stop())
		case <-timeout:
			return errors.Join(fmt.Errorf("reading the approvals: the bucket does not answer: %w", context.DeadlineExceeded), watcher.Stop())
		case e, open := <-watcher.Updates():
			switch {
			case !open:
				return errors.New("reading the approvals: the watch ended")
			case e != nil:
				a.applyEntry(fresh, e)
				continue
			}
			at, _ := fresh.watermark.current()
			if err := a.lag.checkComplete(at, floor); err != nil {
				return errors.Join(err, watcher.Stop())
			}
			if a.watcher != nil {
				_ = a.watcher.Stop()
			}
			a.watcher = watcher
			a.index.replaceWith(fresh)
			return nil
		}
	}
}

// applyEntry applies a change of the bucket to a view.
func (a *approvalStore) applyEntry(v *approvalIndex, e jetstream.KeyValueEntry) {
	defer v.watermark.raise(e.Revision())
	if e.Operation() == jetstream.KeyValuePut {
		v.put(e.Key(), a.decodeWorkflow(e.Key(), e.Value()), e.Revision())
		return
	}
	v.removeAt(e.Key(), e.Revision())
}

// followBucket applies changes until ctx ends, and reads the whole bucket again after a lost
// connection.
func (a *approvalStore) followBucket(ctx context.Context, connected <-chan nats.Status) {
	defer func() { _ = a.watcher.Stop() }()
	again := time.NewTimer(retry.UntilTick(recordRetry))
	defer again.Stop()
	updates, stale := a.watcher.Updates(), false
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-updates:
			switch {
			case !open:
				updates, stale = nil, true
			case e != nil:
				a.applyEntry(a.index, e)
			}
			continue
		case m := <-a.erased:
			if err := a.recheckErased(ctx, m.Data); err != nil {
				a.reportRetry(ctx, "approval_watch", err)
				stale = true
			}
		case <-connected:
			stale = true
		case <-again.C:
			again.Reset(retry.UntilTick(recordRetry))
			newest, _ := a.index.watermark.current()
			a.lag.askLeader(ctx, newest)
		case l := <-a.lag.answers:
			newest, _ := a.index.watermark.current()
			if err := a.lag.checkAnswer(l, newest); err != nil {
				a.s.env.Log.Warn().Err(err).Msg("the bucket is read again")
				a.s.env.Metrics.ReaderStalled()
				stale = true
			}
		}
		if stale {
			if err := a.openWatch(ctx); err != nil {
				a.reportRetry(ctx, "approval_watch", fmt.Errorf("the approvals may be out of date: %w", err))
				continue
			}
			updates, stale = a.watcher.Updates(), false
			a.s.env.Health.Set("approval_watch", "")
		}
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
func (a *approvalStore) reportRetry(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		a.s.env.Log.Error().Err(err).Msg("approvals")
		a.s.env.Health.Set(what, err.Error())
	}
}
