package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/expiry"
	"github.com/countersign-dev/countersign/streams"
)

// expireEvery is how often policies are applied. Everything that is due goes into as few erasures
// as possible, because the correlator starts over after each.
const expireEvery = time.Hour

// applyPolicies applies the tenants' retention policies to log and quarantine: it orders the
// erasure of sessions that have been silent for long enough, and deletes old messages from the
// quarantine. What a legal hold covers stays.
func (c *custodian) applyPolicies(ctx context.Context, now time.Time) error {
	return c.eachPolicy(ctx, func(tenant string, p *retention.Policy, err error) error {
		if err != nil {
			return err
		}
		return c.expireTenant(ctx, tenant, p, now)
	})
}

// eachPolicy calls do with every tenant's policy, or with the error of reading it.
func (c *custodian) eachPolicy(ctx context.Context, do func(tenant string, p *retention.Policy, err error) error) error {
	keys, err := streams.KVKeys(ctx, c.js, streams.BucketRetention)
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		tenant, ok := retention.PolicyTenant(key)
		if !ok {
			continue
		}
		p, err := c.loadPolicy(ctx, tenant)
		if p == nil && err == nil {
			continue
		}
		if err := do(tenant, p, err); err != nil {
			errs = append(errs, fmt.Errorf("the retention policy of tenant %.60q: %w", tenant, err))
		}
	}
	return errors.Join(errs...)
}

// loadPolicy reads a tenant's policy from the bucket, nil if there is none.
func (c *custodian) loadPolicy(ctx context.Context, tenant string) (*retention.Policy, error) {
	e, err := streams.KVLast(ctx, c.js, streams.BucketRetention, retention.PolicyKey(tenant))
	if err != nil || e == nil || e.Deleted {
		return nil, err
	}
	return retention.Parse(tenant, e.Value)
}

func (c *custodian) expireTenant(ctx context.Context, tenant string, p *retention.Policy, now time.Time) error {
	s, _, err := c.readState(ctx, retention.StateKey(tenant))
	if err != nil {
		return err
	}
	if err := c.log.Load(ctx); err != nil {
		return err
	}
	ev := c.evidenceFor(tenant)
	ev.Holds = s.Holds
	due, err := c.dueSessions(ctx, ev, p, s, now)
	if err != nil {
		return err
	}
	if err := c.expireQuarantine(ctx, ev, p, s, now); err != nil {
		return err
	}
	if slices.ContainsFunc(s.Orders, func(o retention.Order) bool { return o.Status.Open() && o.ByPolicy() && o.Expire == "" }) {
		return nil
	}
	before, err := c.sessionlessDue(ctx, ev, p, now)
	if err != nil || len(due) == 0 && before.IsZero() {
		return err
	}
	return c.requestErasure(ctx, tenant, retention.Order{Sessions: due, SessionlessBefore: before, IdleSeconds: int64(p.ShortestLog() / time.Second), Note: retention.Note{
		ID: "ttl-" + uuid.NewString(), By: "retention policy " + p.ID(), Reason: "silent for longer than the policy keeps it", At: events.At(now),
	}})
}

// sessionlessDue is the time before which messages without a session are due; zero if there are
// none.
func (c *custodian) sessionlessDue(ctx context.Context, ev erasureplan.Evidence, p *retention.Policy, now time.Time) (before events.Time, err error) {
	keep := p.LogPeriod("")
	if keep == 0 {
		return before, nil
	}
	before = events.At(now.Add(-keep))
	plan, err := ev.NewPlan(ctx, retention.Order{SessionlessBefore: before})
	if errors.Is(err, erasureplan.ErrNothing) {
		return events.Time{}, nil
	}
	c.moreDue = c.moreDue || plan.Sessionless == erasureplan.MaxSessionless
	return before, err
}

// requestErasure adds an order to a tenant's state.
func (c *custodian) requestErasure(ctx context.Context, tenant string, o retention.Order) error {
	c.open[tenant] = true
	return c.changeState(ctx, retention.StateKey(tenant), func(s retention.State) (retention.State, error) { return s.RequestErasure(o) })
}

// dueSessions lists sessions that are due and not erased, at most as many as one erasure holds.
func (c *custodian) dueSessions(ctx context.Context, ev erasureplan.Evidence, p *retention.Policy, s retention.State, now time.Time) ([]string, error) {
	shortest := p.ShortestLog()
	if shortest == 0 {
		return nil, nil
	}
	if err := c.log.Load(ctx); err != nil {
		return nil, err
	}
	var list []string
	err := expiry.New(ev.DB.Pool()).IdleSessions(ctx, ev.Shard, ev.Tenant, now.Add(-shortest), func(session string, newest uint64, at time.Time) error {
		if keep := p.LogPeriod(session); keep > 0 && now.Sub(at) >= keep && c.log.RecordOf(newest) == nil {
			list = append(list, session)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ev.Unheld(ctx, s, list, retention.MaxBatch)
}

// expireQuarantine deletes quarantined messages that are older than the policy keeps them.
func (c *custodian) expireQuarantine(ctx context.Context, ev erasureplan.Evidence, p *retention.Policy, s retention.State, now time.Time) error {
	keep := p.QuarantinePeriod()
	if keep == 0 {
		return nil
	}
	for next := uint64(1); next > 0; {
		var old []uint64
		var err error
		if old, next, err = c.oldInQuarantine(ctx, ev, s, now.Add(-keep), next); err != nil {
			return err
		}
		if len(old) == 0 {
			continue
		}
		if err := c.noteQuarantine(ctx, ev.Tenant, p, old, now); err != nil {
			return err
		}
		for _, seq := range old {
			if _, err := c.eraseMessage(ctx, streams.StreamQuarantine, seq); err != nil {
				return err
			}
		}
		c.a.env.Log.Info().Str("tenant", ev.Tenant).Int("messages", len(old)).Msg("old bytes are out of quarantine")
	}
	return nil
}

// quarantineBatch is how many quarantined messages one record covers.
const quarantineBatch = 1000

// oldInQuarantine lists messages from a sequence on that are older than before and not held. next
// is where to continue; 0 means the end.
func (c *custodian) oldInQuarantine(ctx context.Context, ev erasureplan.Evidence, s retention.State, before time.Time, from uint64) (old []uint64, next uint64, err error) {
	for len(old) < quarantineBatch {
		m, err := streams.NextBySubject(ctx, c.js, streams.StreamQuarantine, c.a.flags.Space().Quarantine(ev.Tenant), from)
		if err != nil {
			return nil, 0, err
		}
		if m == nil || m.Time.After(before) { // later ones are younger
			return old, 0, nil
		}
		held, err := c.heldInQuarantine(ctx, ev, s, *m)
		if err != nil {
			return nil, 0, err
		}
		if from = m.Seq + 1; !held {
			old = append(old, m.Seq)
		}
	}
	return old, from, nil
}

// noteQuarantine writes to the log what is deleted from the quarantine, before it is deleted.
// After a crash in between it is written again.
func (c *custodian) noteQuarantine(ctx context.Context, tenant string, p *retention.Policy, seqs []uint64, now time.Time) error {
	msg, err := controlMessage(c.a, events.ControlRetention, "quarantine-"+uuid.NewString(), events.RetentionChange{
		Writer: c.writer, Store: c.bucketVersion, Revision: c.notedSeq, Tenant: tenant, What: "quarantine", ID: p.ID(), At: events.At(now), Quarantined: retention.JoinSpans(seqs),
	})
	if err != nil {
		return err
	}
	if err := streams.StoreAll(ctx, c.nc, []streams.Msg{msg}); err != nil {
		return fmt.Errorf("noting what goes out of quarantine: %w", err)
	}
	return nil
}

// heldInQuarantine reports whether a legal hold covers the record of a quarantined message.
// Messages without a record are covered by any hold.
func (c *custodian) heldInQuarantine(ctx context.Context, ev erasureplan.Evidence, s retention.State, m events.LogMessage) (bool, error) {
	if len(s.Holds) == 0 {
		return false, nil
	}
	seq, err := strconv.ParseUint(m.HeaderValue(headerQuarantineSeq), 10, 64)
	if err != nil {
		return true, nil
	}
	ev.Shard = m.HeaderValue(headerQuarantineShard)
	var row *storage.EvidenceRow
	err = ev.DB.Scan(ctx, ev.Shard, seq, seq, func(r storage.EvidenceRow) error {
		row = &r
		return nil
	})
	switch {
	case err != nil || row == nil:
		return true, err
	case row.Session == "":
		return ev.SessionlessHeld(ctx, s, *row)
	}
	hold, err := ev.BlockingHold(ctx, s, erasureplan.Plan{Sessions: []string{row.Session}}, "")
	return hold != nil, err
}
