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
	keepEvery = time.Second
	// approvalGrace is how long after a change its record may take to come onto the
	// log before it is taken for lost and written again.
	approvalGrace = streams.DefaultCommitTimeout + 5*time.Second
	// approvalRetention is how long a workflow that is over stays in the bucket, for
	// reviewers to look at. Its records stay on the log.
	approvalRetention = time.Hour
	// maxHeldApprovals is how many workflows may be in the bucket before those that
	// are over go at once.
	maxHeldApprovals = 20_000
)

// keep ends what has expired, writes records that a crash has left out, and
// takes workflows out of the bucket that are long over. All admitters do so:
// compare-and-set makes one of them do each.
func (a *approvals) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := a.sweep(ctx, time.Now()); err != nil {
				a.problem(ctx, "approval_records", err)
				continue
			}
			a.s.env.Health.Set("approval_records", "")
		}
	}
}

func (a *approvals) sweep(ctx context.Context, now time.Time) error {
	var errs []error
	retention := approvalRetention
	if a.view.size() > maxHeldApprovals {
		retention = 0
	}
	a.view.each(func(key string, h heldApproval) {
		for _, chore := range chores {
			if ctx.Err() != nil || !chore.due(h, now, retention) {
				continue
			}
			if err := a.limited(ctx, func(ctx context.Context) error { return chore.do(a, ctx, key, h, now) }); err != nil && !errors.Is(err, errAgain) {
				errs = append(errs, err)
			}
			return // the view has changed
		}
	})
	return errors.Join(errs[:min(len(errs), 3)]...) // one reason is as good as a thousand
}

func (a *approvals) limited(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.s.flags.Timeout)
	defer cancel()
	return f(ctx)
}

// chores are what may be due for a workflow, the most urgent first.
var chores = []struct {
	due func(h heldApproval, now time.Time, retention time.Duration) bool
	do  func(*approvals, context.Context, string, heldApproval, time.Time) error
}{
	{
		func(h heldApproval, now time.Time, _ time.Duration) bool {
			return h.w.Status != approval.Expired && h.w.At(now) == approval.Expired
		},
		(*approvals).expire,
	},
	{
		func(h heldApproval, now time.Time, _ time.Duration) bool {
			return !h.logged && now.Sub(h.since) >= approvalGrace
		},
		(*approvals).repair,
	},
	{
		func(h heldApproval, now time.Time, retention time.Duration) bool {
			return h.logged && h.w.Over(now) && now.Sub(later(h.w.ChangedAt.Time, h.w.ExpiresAt.Time, h.w.Status)) >= retention
		},
		(*approvals).forget,
	},
}

// later is when a workflow was over: a denial matters until its time is up.
func later(changed, expires time.Time, status approval.Status) time.Time {
	if status == approval.Denied && expires.After(changed) {
		return expires
	}
	return changed
}

func (a *approvals) expire(ctx context.Context, key string, h heldApproval, now time.Time) error {
	w, err := h.w.Expire(now)
	if err != nil {
		return err
	}
	return a.change(ctx, key, w, h)
}

// change writes a workflow and then its record; the record is durable when it
// returns without error. If the record certainly is not, the workflow is as it
// was.
func (a *approvals) change(ctx context.Context, key string, w approval.Workflow, old heldApproval) error {
	revision, err := a.write(ctx, key, w, old.revision)
	if err != nil {
		return err
	}
	if err := a.append(ctx, w.Record()); err != nil {
		if !errors.Is(err, streams.ErrDoubt) {
			a.restore(context.WithoutCancel(ctx), key, old.w, revision)
		}
		return err
	}
	a.view.isLogged(key, revision)
	return nil
}

func (a *approvals) repair(ctx context.Context, key string, h heldApproval, _ time.Time) error {
	return a.logged(ctx, key, h)
}

func (a *approvals) forget(ctx context.Context, key string, h heldApproval, _ time.Time) error {
	err := a.kv.Delete(ctx, key, jetstream.LastRevision(h.revision))
	if err == nil {
		a.view.remove(key)
	}
	if changed(err) {
		return a.refresh(ctx, key)
	}
	return err
}

// logged makes sure that the record of a workflow's last change is on the log.
func (a *approvals) logged(ctx context.Context, key string, h heldApproval) error {
	if h.logged {
		return nil
	}
	last, err := streams.LastBySubject(ctx, a.js, a.s.flags.Stream, a.s.space.Approval(h.w.Tenant, string(h.w.Status), h.w.ID))
	if err != nil {
		return fmt.Errorf("looking for the record of an approval: %w", err)
	}
	if last == nil || !covers(last.Body, h.w) {
		// An erasure takes the workflow first and then its records: they must not come back.
		if err := a.unchanged(ctx, key, h.revision); err != nil {
			return err
		}
		if err := a.append(ctx, h.w.Record()); err != nil {
			return err
		}
	}
	a.view.isLogged(key, h.revision)
	return nil
}

// covers reports whether a record proves that a workflow's last change is on the
// log. That of a refused attempt does: it is written only after it.
func covers(record []byte, w *approval.Workflow) bool {
	r, err := events.DecodeRecord[events.Approval](record)
	return err == nil && r.WorkflowID == w.ID && r.Step >= w.Step
}

// append puts records on the log and returns when they are durable.
func (a *approvals) append(ctx context.Context, records ...events.Approval) error {
	var msgs []streams.Msg
	for _, r := range records {
		m, err := a.message(r)
		if err != nil {
			return err
		}
		msgs = append(msgs, m)
	}
	_, err := a.s.committer.Append(ctx, msgs...)
	return err
}

// message is a record, signed.
func (a *approvals) message(r events.Approval) (streams.Msg, error) {
	id := fmt.Sprintf("%s-%d", r.WorkflowID, r.Step)
	if r.Refused != "" {
		id += "-refused-" + uuid.NewString()
	}
	return a.s.signed(a.s.space.Approval(r.Tenant, r.Status, r.WorkflowID), id, events.TypeApproval, r.ChangedAt.Time, r)
}

// signed is a record of the service's own, signed like a decision.
func (s *service) signed(subj, id, typ string, at time.Time, record any) (streams.Msg, error) {
	body, err := events.Encode(record)
	if err != nil {
		return streams.Msg{}, err
	}
	header := cloudevents.Binary(cloudevents.Attributes{ID: id, Source: "/countersign/" + s.flags.Stream + "/admitter", Type: typ, Time: at})
	return streams.Msg{Subject: subj, Header: header, Body: body, Seal: true}, nil
}
