package auditor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/expiry"
	"github.com/countersign-dev/countersign/streams"
)

// expireEvery is how often policies are applied. What is due goes into as few erasures as possible.
const expireEvery = time.Hour

// applyAgain is when policies are applied again after an error; each further pause is twice as long, up to expireEvery.
const applyAgain = time.Minute

// policyWorker applies the tenants' policies: it orders what is due, and empties the quarantine.
type policyWorker struct {
	custodyAccess
	bucket   *retentionBucket
	messages *messageEraser
	notes    *changeNotes
	ordered  func(tenant string) // is called before an order is added

	counts  *metrics.Auditor
	next    time.Time       // when all policies are applied next, by the own clock
	err     error           // of applying them
	pauses  *retry.Pauses   // after errors
	moreDue map[string]bool // tenants of which more may be due than one order holds

	sessionlessFrom map[string]uint64    // by tenant: erasureplan.Evidence.SessionlessFrom
	dueSince        map[string]time.Time // by tenant: since when the session is due that waits longest
}

// applySoon makes the next applyDue apply all policies.
func (w *policyWorker) applySoon() { w.next = time.Time{} }

// applyMore makes the next applyDue without open orders apply the tenant's policy.
func (w *policyWorker) applyMore(tenant string) { w.moreDue[tenant] = true }

// waitForNext makes what a tenant's refused order left wait until all policies are due again: at once it would be refused
// again, and each refusal is a record on the log.
func (w *policyWorker) waitForNext(tenant string) { delete(w.moreDue, tenant) }

// isDue reports whether it is time to apply policies: all when they are due, or those of which more may be due when no
// order is open.
func (w *policyWorker) isDue(idle bool) bool {
	return w.allDue() || len(w.moreDue) > 0 && idle
}

func (w *policyWorker) allDue() bool { return !time.Now().Before(w.next) }

// applyDue applies the policies that are due, and returns the error of the last time. now is the time of the decisions;
// while it is zero, nothing is applied.
func (w *policyWorker) applyDue(ctx context.Context, now time.Time, idle bool) error {
	if now.IsZero() || !w.isDue(idle) {
		return w.err
	}
	all, more := w.allDue(), maps.Clone(w.moreDue)
	if idle {
		clear(w.moreDue)
	}
	isDue := func(tenant string) bool { return all || more[tenant] }
	err := w.applyPolicies(ctx, now, isDue)
	switch {
	case err != nil:
		w.err = err
		if again := time.Now().Add(w.pauses.Next()); all || again.Before(w.next) {
			w.next = again
		}
	case all:
		w.err, w.next = nil, time.Now().Add(expireEvery)
		w.pauses.Reset()
	}
	return w.err
}

// applyPolicies applies the retention policies of the tenants that are due to log, quarantine and texts of evidence: it
// orders the erasure and the expiry of sessions that have been idle for long enough, and deletes old messages from the
// quarantine. What a legal hold covers stays.
func (w *policyWorker) applyPolicies(ctx context.Context, now time.Time, isDue func(tenant string) bool) error {
	visited := map[string]bool{}
	err := w.bucket.eachPolicy(ctx, func(tenant string, p *retention.Policy, err error) error {
		visited[tenant] = true
		switch {
		case !isDue(tenant):
			return nil
		case err != nil:
			return err
		}
		ev := w.evidenceFor(tenant)
		return errors.Join(w.expireMessages(ctx, ev, p, now), w.expireTexts(ctx, ev, p, now))
	})
	if err == nil {
		maps.DeleteFunc(w.dueSince, func(tenant string, _ time.Time) bool { return !visited[tenant] })
	}
	var first time.Time
	if len(w.dueSince) > 0 {
		first = slices.MinFunc(slices.Collect(maps.Values(w.dueSince)), time.Time.Compare)
	}
	w.counts.Due(first)
	return err
}

// expireMessages orders the erasure of what a tenant's policy lets go of the log, and empties the quarantine.
func (w *policyWorker) expireMessages(ctx context.Context, ev erasureplan.Evidence, p *retention.Policy, now time.Time) error {
	s, _, err := w.bucket.readState(ctx, retention.StateKey(ev.Tenant))
	if err != nil {
		return err
	}
	if err := w.log.Load(ctx); err != nil {
		return err
	}
	ev.Holds, ev.SessionlessFrom = s.Holds, w.sessionlessFrom[ev.Tenant]
	if err := w.expireQuarantine(ctx, ev, p, s, now); err != nil {
		return err
	}
	if hasOpen(s, false) {
		return nil
	}
	delete(w.dueSince, ev.Tenant)
	due, longest, err := w.dueSessions(ctx, ev, s, now, false, p.ShortestLog(), p.LogPeriod)
	if len(due) > 0 {
		w.dueSince[ev.Tenant] = longest
	}
	if err != nil {
		return err
	}
	before, err := w.sessionlessDue(ctx, ev, p, now)
	if err != nil || len(due) == 0 && before.IsZero() {
		return err
	}
	return w.requestErasure(ctx, ev.Tenant, retention.Order{Sessions: due, SessionlessBefore: before, IdleSeconds: int64(p.ShortestLog() / time.Second), Note: retention.Note{
		ID: "ttl-" + uuid.NewString(), By: orderedBy(p), Reason: "silent for longer than the policy keeps it", At: events.At(now),
	}})
}

// sessionlessDue is the time before which messages without a session are due; zero if there are
// none.
func (w *policyWorker) sessionlessDue(ctx context.Context, ev erasureplan.Evidence, p *retention.Policy, now time.Time) (before events.Time, err error) {
	keep := p.LogPeriod("")
	if keep == 0 {
		return before, nil
	}
	before = events.At(now.Add(-keep))
	plan, err := ev.NewPlan(ctx, retention.Order{SessionlessBefore: before})
	w.sessionlessFrom[ev.Tenant] = plan.SessionlessFrom
	if errors.Is(err, erasureplan.ErrNothing) {
		return events.Time{}, nil
	}
	if plan.Sessionless == erasureplan.MaxSessionless {
		w.applyMore(ev.Tenant)
	}
	return before, err
}

// expireQuarantine deletes quarantined messages that are older than the policy keeps them.
func (w *policyWorker) expireQuarantine(ctx context.Context, ev erasureplan.Evidence, p *retention.Policy, s retention.State, now time.Time) error {
	keep := p.QuarantinePeriod()
	if keep == 0 {
		return nil
	}
	for next := uint64(1); next > 0; {
		var old []uint64
		var err error
		if old, next, err = w.oldInQuarantine(ctx, ev, s, now.Add(-keep), next); err != nil {
			return err
		}
		if len(old) == 0 {
			continue
		}
		if err := w.notes.noteQuarantine(ctx, ev.Tenant, p, old, now); err != nil {
			return err
		}
		for _, seq := range old {
			if _, err := w.messages.eraseMessage(ctx, streams.StreamQuarantine, seq); err != nil {
				return err
			}
		}
		w.env.Log.Info().Str("tenant", ev.Tenant).Int("messages", len(old)).Msg("old bytes are out of quarantine")
	}
	return nil
}

// quarantineBatch is how many quarantined messages one record covers.
const quarantineBatch = 1000

// oldInQuarantine lists messages from a sequence on that are older than before and not held. next
// is where to continue; 0 means the end.
func (w *policyWorker) oldInQuarantine(ctx context.Context, ev erasureplan.Evidence, s retention.State, before time.Time, from uint64) (old []uint64, next uint64, err error) {
	for m, err := range streams.EachBySubject(ctx, w.js, streams.StreamQuarantine, w.space.Quarantine(ev.Tenant), from) {
		if err != nil {
			return nil, 0, err
		}
		if m.Time.After(before) { // later ones are younger
			break
		}
		held, err := heldInQuarantine(ctx, ev, s, *m)
		if err != nil {
			return nil, 0, err
		}
		if held {
			continue
		}
		if old = append(old, m.Seq); len(old) == quarantineBatch {
			return old, m.Seq + 1, nil
		}
	}
	return old, 0, nil
}

// heldInQuarantine reports whether a legal hold covers the record of a quarantined message.
// Messages without a record are covered by any hold.
func heldInQuarantine(ctx context.Context, ev erasureplan.Evidence, s retention.State, m events.LogMessage) (bool, error) {
	if len(s.Holds) == 0 {
		return false, nil
	}
	seq, err := strconv.ParseUint(m.HeaderValue(headerQuarantineSeq), 10, 64)
	if err != nil {
		return true, nil
	}
	if current := ev.Shard; m.HeaderValue(headerQuarantineShard) != current {
		ev.Shard, ev.Read = m.HeaderValue(headerQuarantineShard), nil // the log has other messages
	}
	var row *storage.EvidenceRow
	err = ev.DB.Scan(ctx, ev.Shard, seq, seq, func(r storage.EvidenceRow) error {
		row = &r
		return nil
	})
	if err != nil || row == nil {
		return true, err
	}
	sessions, err := loggedSessions(ctx, ev, seq)
	switch {
	case err != nil:
		return true, err
	case row.Session == "" && len(sessions) == 0:
		return ev.SessionlessHeld(ctx, s, *row)
	}
	hold, err := ev.BlockingHold(ctx, s, erasureplan.Plan{Sessions: append(sessions, row.Session)}, "")
	return hold != nil, err
}

// loggedSessions are the sessions of a message by the log, if that has it.
func loggedSessions(ctx context.Context, ev erasureplan.Evidence, seq uint64) (sessions []string, err error) {
	if ev.Read == nil {
		return nil, nil
	}
	m, err := ev.Read(ctx, seq)
	if err != nil || m == nil {
		return nil, err
	}
	names, err := ev.NamesOf(*m)
	for _, k := range names {
		if k.Session != "" {
			sessions = append(sessions, k.Session)
		}
	}
	return sessions, err
}

// expireTexts orders the expiry of a tenant's sessions which have been idle for longer than the policy keeps their texts.
func (w *policyWorker) expireTexts(ctx context.Context, ev erasureplan.Evidence, p *retention.Policy, now time.Time) error {
	s, _, err := w.bucket.readState(ctx, retention.StateKey(ev.Tenant))
	if err != nil || hasOpen(s, true) {
		return err
	}
	due, _, err := w.dueSessions(ctx, ev, s, now, true, p.ShortestEvidence(), p.EvidencePeriod)
	if err != nil || len(due) == 0 {
		return err
	}
	return w.requestErasure(ctx, ev.Tenant, retention.Order{Sessions: due, Expire: p.ID(), IdleSeconds: int64(p.ShortestEvidence() / time.Second), Note: retention.Note{
		ID: "expiry-" + uuid.NewString(), By: orderedBy(p), Reason: "silent for longer than the policy keeps evidence", At: events.At(now),
	}})
}

// hasOpen reports whether an order of a policy is open: one that lets texts expire, or one that erases messages.
func hasOpen(s retention.State, texts bool) bool {
	return slices.ContainsFunc(s.Orders, func(o retention.Order) bool { return o.Status.Open() && o.ByPolicy() && (o.Expire != "") == texts })
}

// dueSessions lists sessions that are due after their period, the longest idle first, at most as many as one order holds,
// and since when the one is due that waits longest. What is done with messages or texts is not due.
func (w *policyWorker) dueSessions(ctx context.Context, ev erasureplan.Evidence, s retention.State, now time.Time, texts bool, shortest time.Duration, period func(session string) time.Duration) (due []string, longest time.Time, err error) {
	if shortest == 0 {
		return nil, longest, nil
	}
	var list []string
	since := map[string]time.Time{}
	err = expiry.New(ev.DB.Pool()).IdleSessions(ctx, ev.Shard, ev.Tenant, now.Add(-shortest), texts, func(session string, newest uint64, at time.Time) error {
		if keep := period(session); keep > 0 && now.Sub(at) >= keep && (texts || !w.log.Covers(newest)) {
			list, since[session] = append(list, session), at.Add(keep)
		}
		return nil
	})
	if err != nil {
		return nil, longest, err
	}
	due, err = ev.Unheld(ctx, s, list, retention.MaxBatch)
	if len(due) > 0 {
		longest = since[slices.MinFunc(due, func(a, b string) int { return since[a].Compare(since[b]) })]
	}
	return due, longest, err
}

// requestErasure adds an order to a tenant's state.
func (w *policyWorker) requestErasure(ctx context.Context, tenant string, o retention.Order) error {
	w.ordered(tenant)
	return w.bucket.changeState(ctx, retention.StateKey(tenant), func(s retention.State) (retention.State, error) { return s.RequestErasure(o) })
}

// orderedBy is what an order says of the policy that made it.
func orderedBy(p *retention.Policy) string { return "retention policy " + p.ID() }

// policyChanged is why an order of a policy is refused that is not in force any more.
const policyChanged = "the retention policy has changed since"

// checkInForce returns why an order of a policy must not begin: another policy, or none, is in force by now
// (TestAnOrderOfAnEarlierPolicy).
func (w *policyWorker) checkInForce(ctx context.Context, tenant string, o retention.Order) (why string, err error) {
	p, err := w.bucket.loadPolicy(ctx, tenant)
	switch {
	case errors.Is(err, retention.ErrPolicy):
		return err.Error(), nil
	case err != nil:
		return "", err
	case p == nil || o.By != orderedBy(p):
		return policyChanged, nil
	}
	return "", nil
}
