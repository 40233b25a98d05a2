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
	// maintainEvery is how often the workflows are checked for due tasks.
	maintainEvery = time.Second
	// approvalGrace is how long the record of a change may take to reach the log before it is
	// considered lost and is written again.
	approvalGrace = streams.DefaultCommitTimeout + 5*time.Second
	// approvalRetention is how long a finished workflow stays in the bucket for reviewers to look
	// at. Its records stay in the log.
	approvalRetention = time.Hour
	// maxCachedApprovals is how many workflows the bucket may hold before finished ones are
	// removed at once: those of tenants with more than an equal share.
	maxCachedApprovals = 20_000
)

// maintainWorkflows ends workflows whose time is up or whose policies have changed, writes records that a crash left out, and removes workflows that
// ended long ago. All admitters do so; compare-and-set ensures that each task is done once.
func (a *approvalStore) maintainWorkflows(ctx context.Context) {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := a.sweepWorkflows(ctx, time.Now()); err != nil {
				a.reportRetry(ctx, err)
				continue
			}
			a.s.env.Health.Set("approval_records", "")
		}
	}
}

// sweep is one check of all workflows.
type sweep struct {
	now      time.Time
	crowded  map[string]bool  // tenants whose finished workflows do not stay
	policies events.PolicyRef // in force; zero if they do not compile
}

// retention is how long a finished workflow of a tenant stays.
func (s sweep) retention(tenant string) time.Duration {
	if s.crowded[tenant] {
		return 0
	}
	return approvalRetention
}

// crowdedTenants are the tenants with more than an equal share of the workflows, if these are more
// than most.
func crowdedTenants(held map[string]int, most int) map[string]bool {
	all := 0
	for _, n := range held {
		all += n
	}
	crowded := map[string]bool{}
	for tenant, n := range held {
		crowded[tenant] = all > most && n > most/len(held)
	}
	return crowded
}

func (a *approvalStore) sweepWorkflows(ctx context.Context, now time.Time) error {
	var errs []error
	s := sweep{now, crowdedTenants(a.index.countByTenant(), maxCachedApprovals), a.policyInForce()}
	a.index.eachKey(func(key string, h cachedApproval) {
		for _, chore := range maintenanceTasks {
			if ctx.Err() != nil || !chore.due(h, s) {
				continue
			}
			if err := a.withTimeout(ctx, func(ctx context.Context) error { return chore.do(a, ctx, key, h, now) }); err != nil && !errors.Is(err, errConflict) {
				errs = append(errs, err)
			}
			return // the view has changed
		}
	})
	return errors.Join(errs[:min(len(errs), 3)]...) // the first reasons are enough
}

func (a *approvalStore) withTimeout(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.s.flags.Timeout)
	defer cancel()
	return f(ctx)
}

// maintenanceTasks are the tasks that may be due for a workflow, most urgent first.
var maintenanceTasks = []struct {
	due func(h cachedApproval, s sweep) bool
	do  func(*approvalStore, context.Context, string, cachedApproval, time.Time) error
}{
	{
		func(h cachedApproval, s sweep) bool {
			return h.workflow.Status != approval.Expired && h.workflow.StatusAt(s.now) == approval.Expired
		},
		(*approvalStore).expireWorkflow,
	},
	{
		// An admitter that has not read a push yet does not cancel what was opened after it. One that has does
		// not cancel what another is still recording.
		func(h cachedApproval, s sweep) bool {
			live := h.workflow.Status == approval.Pending || h.workflow.Status == approval.Approved
			return h.logged && live && h.workflow.Policy.Revision < s.policies.Revision
		},
		(*approvalStore).cancelOutdated,
	},
	{
		func(h cachedApproval, s sweep) bool {
			return !h.logged && s.now.Sub(h.since) >= approvalGrace
		},
		(*approvalStore).repairRecord,
	},
	{
		func(h cachedApproval, s sweep) bool {
			return h.logged && h.workflow.Over(s.now) && s.now.Sub(endTime(h.workflow.ChangedAt.Time, h.workflow.ExpiresAt.Time, h.workflow.Status)) >= s.retention(h.workflow.Tenant)
		},
		(*approvalStore).deleteWorkflow,
	},
}

// endTime is when a workflow ended. A denial stays in effect until the workflow expires.
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

// cancelOutdated cancels a workflow that was opened under older policies: it can never be used.
func (a *approvalStore) cancelOutdated(ctx context.Context, key string, h cachedApproval, now time.Time) error {
	w, err := h.workflow.Supersede(approval.ReasonPolicyChanged, now)
	if err != nil {
		return err
	}
	return a.changeWorkflow(ctx, key, w, h)
}

// changeWorkflow writes a workflow and then its record. The record is durable when it returns
// nil. If the record was certainly not written, the workflow is restored.
func (a *approvalStore) changeWorkflow(ctx context.Context, key string, w approval.Workflow, old cachedApproval) error {
	revision, err := a.writeWorkflow(ctx, key, w, old.revision)
	if err != nil {
		return err
	}
	if err := a.appendRecords(ctx, w.Record()); err != nil {
		if !errors.Is(err, streams.ErrAmbiguous) {
			a.undoStep(context.WithoutCancel(ctx), key, old.workflow, revision, false)
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
	err := a.follower.kv.Delete(ctx, key, jetstream.LastRevision(h.revision))
	if err == nil {
		a.index.removeKey(key)
	}
	if streams.IsKVConflict(err) {
		return a.refreshKey(ctx, key)
	}
	return err
}

// ensureLogged makes sure that the record of a workflow's last change is in the log.
func (a *approvalStore) ensureLogged(ctx context.Context, key string, h cachedApproval) error {
	if h.logged {
		return nil
	}
	last, err := streams.LastBySubject(ctx, a.js, a.s.flags.Stream, a.s.space.Approval(h.workflow.Tenant, string(h.workflow.Status), h.workflow.ID))
	if err != nil {
		return fmt.Errorf("looking for the record of an approval: %w", err)
	}
	if last == nil || !provesLogged(last.Body, h.workflow) {
		// An erasure removes the workflow first and then its records: the records must not come
		// back.
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

// provesLogged reports whether a record proves that a workflow's last change is in the log. A
// record of a refused attempt proves it too: it is written only after that change.
func provesLogged(record []byte, w *approval.Workflow) bool {
	r, err := events.DecodeRecord[events.Approval](record)
	return err == nil && r.WorkflowID == w.ID && r.Step >= w.Step
}

// appendRecords appends records to the log and returns once they are durable.
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

// recordMessage returns the log message of an approval record, to be signed.
func (a *approvalStore) recordMessage(r events.Approval) (streams.Msg, error) {
	id := fmt.Sprintf("%s-%d", r.WorkflowID, r.Step)
	if r.Refused != "" {
		id += "-refused-" + uuid.NewString()
	}
	return a.s.signedRecord(a.s.space.Approval(r.Tenant, r.Status, r.WorkflowID), id, events.TypeApproval, r.ChangedAt.Time, r)
}

// signedRecord returns the log message of one of the service's own records, signed like a
// decision.
func (s *service) signedRecord(subj, id, typ string, at time.Time, record any) (streams.Msg, error) {
	body, err := events.Encode(record)
	if err != nil {
		return streams.Msg{}, err
	}
	header := cloudevents.Binary(cloudevents.Attributes{ID: id, Source: sourceName(s.flags.Stream), Type: typ, Time: at})
	return streams.Msg{Subject: subj, Header: header, Body: body, Sign: true}, nil
}
