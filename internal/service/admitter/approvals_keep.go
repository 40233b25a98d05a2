package admitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/streams"
)

const (
	// keepEvery is how often workflows are looked at for what is due.
	maintainEvery = time.Second
	// approvalGrace is how long after a change its record may take to come onto the
	// log before it is taken for lost and written again.
	approvalGrace = streams.DefaultCommitTimeout + 5*time.Second
	// approvalRetention is how long a workflow that is over stays in the bucket, for
	// reviewers to look at. Its records stay on the log.
	approvalRetention = time.Hour
	// maxHeldApprovals is how many workflows may be in the bucket before those that
	// are over go at once.
	maxCachedApprovals = 20_000
)

// maintain ends what has expired, writes records that a crash has left out, and
// takes workflows out of the bucket that are long over. All admitters do so:
// compare-and-set makes one of them do each.
func (a *approvalStore) maintain(ctx context.Context) {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := a.sweepWorkflows(ctx, time.Now()); err != nil {
				a.reportRetry(ctx, "approval_records", err)
				continue
			}
			a.s.env.Health.Set("approval_records", "")
		}
	}
}

func (a *approvalStore) sweepWorkflows(ctx context.Context, now time.Time) error {
	var errs []error
	retention := approvalRetention
	if a.index.size() > maxCachedApprovals {
		retention = 0
	}
	a.index.eachKey(func(key string, h cachedApproval) {
		for _, chore := range maintenanceTasks {
			if ctx.Err() != nil || !chore.due(h, now, retention) {
				continue
			}
			if err := a.withTimeout(ctx, func(ctx context.Context) error { return chore.do(a, ctx, key, h, now) }); err != nil && !errors.Is(err, errConflict) {
				errs = append(errs, err)
			}
			return // the view has changed
		}
	})
	return errors.Join(errs[:min(len(errs), 3)]...) // one reason is as good as a thousand
}

func (a *approvalStore) withTimeout(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.s.flags.Timeout)
	defer cancel()
	return f(ctx)
}

// maintenanceTasks are what may be due for a workflow, the most urgent first.
var maintenanceTasks = []struct {
	due func(h cachedApproval, now time.Time, retention time.Duration) bool
	do  func(*approvalStore, context.Context, string, cachedApproval, time.Time) error
}{
	{
		func(h cachedApproval, now time.Time, _ time.Duration) bool {
			return h.workflow.Status != approval.Expired && h.workflow.StatusAt(now) == approval.Expired
		},
		(*approvalStore).expireWorkflow,
	},
	{
		func(h cachedApproval, now time.Time, _ time.Duration) bool {
			return !h.logged && now.Sub(h.since) >= approvalGrace
		},
		(*approvalStore).repairRecord,
	},
	{
		func(h cachedApproval, now time.Time, retention time.Duration) bool {
			return h.logged && h.workflow.Over(now) && now.Sub(endTime(h.workflow.ChangedAt.Time, h.workflow.ExpiresAt.Time, h.workflow.Status)) >= retention
		},
		(*approvalStore).deleteWorkflow,
	},
}

// endTime is when a workflow was over: a denial matters until its time is up.
func endTime(changed, expires time.Time, status approval.Status) time.Time {
	if status == approval.Denied && expires.After(changed) {
		return expires
	}
	return changed
}

func (a *approvalStore) expireWorkflow(ctx context.Context, key string, h cachedApproval, now time.Time) error {
	w, err := h.workflow.Expire(now)
	if err != nil {
		return err
	}
	return a.changeWorkflow(ctx, key, w, h)
}

// changeWorkflow writes a workflow and then its record; the record is durable when it
// returns without error. If the record certainly is not, the workflow is as it
// was.
func (a *approvalStore) changeWorkflow(ctx context.Context, key string, w approval.Workflow, old cachedApproval) error {
	revision, err := a.writeWorkflow(ctx, key, w, old.revision)
	if err != nil {
		return err
	}
	if err := a.appendRecords(ctx, w.Record()); err != nil {
		if !errors.Is(err, streams.ErrAmbiguous) {
			a.undoStep(context.WithoutCancel(ctx), key, old.workflow, revision)
		}
		return err
	}
	a.index.markLogged(key, revision)
	return nil
}

func (a *approvalStore) repairRecord(ctx context.Context, key string, h cachedApproval, _ time.Time) error {
	return a.ensureLogged(ctx, key, h)
}

func (a *approvalStore) deleteWorkflow(ctx context.Context, key string, h cachedApproval, _ time.Time) error {
	err := a.kv.Delete(ctx, key, jetstream.LastRevision(h.revision))
	if err == nil {
		a.index.removeKey(key)
	}
	if isConflict(err) {
		return a.refreshKey(ctx, key)
	}
	return err
}

// ensureLogged makes sure that the record of a workflow's last change is on the log.
func (a *approvalStore) ensureLogged(ctx context.Context, key string, h cachedApproval) error {
	if h.logged {
		return nil
	}
	last, err := streams.LastBySubject(ctx, a.js, a.s.flags.Stream, a.s.space.Approval(h.workflow.Tenant, string(h.workflow.Status), h.workflow.ID))
	if err != nil {
		return fmt.Errorf("looking for the record of an approval: %w", err)
	}
	if last == nil || !provesLogged(last.Body, h.workflow) {
		// An erasure takes the workflow first and then its records: they must not come back.
		if err := a.checkUnchanged(ctx, key, h.revision); err != nil {
			return err
		}
		if err := a.appendRecords(ctx, h.workflow.Record()); err != nil {
			return err
		}
	}
	a.index.markLogged(key, h.revision)
	return nil
}

// provesLogged reports whether a record proves that a workflow's last change is on the
// log. That of a refused attempt does: it is written only after it.
func provesLogged(record []byte, w *approval.Workflow) bool {
	r, err := events.DecodeRecord[events.Approval](record)
	return err == nil && r.WorkflowID == w.ID && r.Step >= w.Step
}

// appendRecords puts records on the log and returns when they are durable.
func (a *approvalStore) appendRecords(ctx context.Context, records ...events.Approval) error {
	var msgs []streams.Msg
	for _, r := range records {
		m, err := a.recordMessage(r)
		if err != nil {
			return err
		}
		msgs = append(msgs, m)
	}
	_, err := a.s.committer.Append(ctx, msgs...)
	return err
}

// recordMessage is a record, signed.
func (a *approvalStore) recordMessage(r events.Approval) (streams.Msg, error) {
	id := fmt.Sprintf("%s-%d", r.WorkflowID, r.Step)
	if r.Refused != "" {
		id += "-refused-" + uuid.NewString()
	}
	return a.s.signedRecord(a.s.space.Approval(r.Tenant, r.Status, r.WorkflowID), id, events.TypeApproval, r.ChangedAt.Time, r)
}

// signedRecord is a record of the service's own, signed like a decision.
func (s *service) signedRecord(subj, id, typ string, at time.Time, record any) (streams.Msg, error) {
	body, err := events.Encode(record)
	if err != nil {
		return streams.Msg{}, err
	}
	header := cloudevents.Binary(cloudevents.Attributes{ID: id, Source: "/countersign/" + s.flags.Stream + "/admitter", Type: typ, Time: at})
	return streams.Msg{Subject: subj, Header: header, Body: body, Sign: true}, nil
}
