package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/expiry"
	"github.com/countersign-dev/countersign/storage/write"
	"github.com/countersign-dev/countersign/streams"
)

// Texts of evidence expire as log messages do: a policy makes sessions due, an order names them,
// and no legal hold may cover them when it begins. Then a signed record names the evidence
// records. Only once that record is evidence and covered by a checkpoint is the first text
// deleted. The database holds the progress.

// errPolicyChanged ends an order that was made under an earlier policy.
var errPolicyChanged = errors.New("the retention policy has changed since")

// expireTexts orders the expiry of sessions that have been silent for longer than the tenant's
// policy keeps their texts.
func (c *custodian) expireTexts(ctx context.Context, now time.Time) error {
	return c.eachPolicy(ctx, func(tenant string, p *retention.Policy, err error) error {
		switch {
		case errors.Is(err, retention.ErrPolicy):
			return nil // applyPolicies reports it
		case err != nil:
			return err
		}
		return c.expireTextsOf(ctx, tenant, p, now)
	})
}

func (c *custodian) expireTextsOf(ctx context.Context, tenant string, p *retention.Policy, now time.Time) error {
	if p.ShortestEvidence() == 0 {
		return nil
	}
	s, _, err := c.readState(ctx, retention.StateKey(tenant))
	if err != nil || slices.ContainsFunc(s.Orders, func(o retention.Order) bool { return o.Status.Open() && o.Expire != "" }) {
		return err
	}
	due, err := c.dueTexts(ctx, tenant, p, s, now)
	if err != nil || len(due) == 0 {
		return err
	}
	return c.requestErasure(ctx, tenant, retention.Order{Sessions: due, Expire: p.ID(), IdleSeconds: int64(p.ShortestEvidence() / time.Second), Note: retention.Note{
		ID: "expiry-" + uuid.NewString(), By: "retention policy " + p.ID(), Reason: "silent for longer than the policy keeps evidence", At: events.At(now),
	}})
}

// dueTexts lists sessions with texts that are due, at most as many as one order holds.
func (c *custodian) dueTexts(ctx context.Context, tenant string, p *retention.Policy, s retention.State, now time.Time) ([]string, error) {
	ev := erasureplan.Evidence{DB: c.a.db, Shard: c.a.shard, Tenant: tenant}
	var list []string
	err := expiry.New(c.a.db.Pool()).SessionsWithText(ctx, c.a.shard, tenant, now.Add(-p.ShortestEvidence()), func(session string, _ uint64, at time.Time) error {
		if keep := p.EvidencePeriod(session); keep > 0 && now.Sub(at) >= keep {
			list = append(list, session)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ev.Unheld(ctx, s, list, retention.MaxBatch)
}

// beginExpiry makes an order irrevocable, unless there is a reason against it, which it returns.
func (c *custodian) beginExpiry(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order) (why string, err error) {
	p, err := c.loadPolicy(ctx, ev.Tenant)
	switch {
	case errors.Is(err, retention.ErrPolicy):
		return err.Error(), nil
	case err != nil:
		return "", err
	case p == nil || p.ID() != o.Expire:
		return errPolicyChanged.Error(), nil
	}
	return c.beginUnheld(ctx, ev, key, o, erasureplan.Plan{Sessions: o.Sessions})
}

// continueExpiry continues an expiry that has begun.
func (c *custodian) continueExpiry(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order) error {
	begun, done, err := c.expiryRecords(ctx, o.ID)
	if err != nil {
		return err
	}
	if begun == nil {
		if announced, err := c.announceExpiry(ctx, ev, o); err != nil || announced {
			return err // continues once the record is in the log
		}
		return c.finishExpiry(ctx, key, o, 0) // every session is active again, or has no text left
	}
	x := write.ExpiryBatch{Shard: c.a.shard, Tenant: ev.Tenant}
	var seqs []uint64
	for _, e := range begun {
		x.Records = append(x.Records, e.seq)
		for _, s := range e.Sessions {
			for _, span := range s.Sequences {
				for seq := span[0]; seq <= span[1]; seq++ {
					seqs = append(seqs, seq)
				}
			}
		}
	}
	if !done {
		if provable, err := c.isProvable(ctx, slices.Max(x.Records)); err != nil || !provable {
			return err
		}
		slices.Sort(seqs)
		for x.Seqs = range slices.Chunk(seqs, write.MaxExpiryBatch) {
			if gone, err := c.a.writer.Expire(ctx, x); err != nil || !gone {
				return err
			}
		}
		if err := c.publishExpired(ctx, begun[0].Expiry, uint64(len(seqs))); err != nil {
			return err
		}
	}
	return c.finishExpiry(ctx, key, o, uint64(len(seqs)))
}

func (c *custodian) finishExpiry(ctx context.Context, key string, o retention.Order, records uint64) error {
	r := retention.Result{Sessions: len(o.Sessions), Records: records}
	if err := c.changeState(ctx, key, func(s retention.State) (retention.State, error) { return s.FinishOrder(o.ID, r, time.Now()) }); err != nil {
		return err
	}
	delete(c.expiring, o.ID)
	c.moreDue = c.moreDue || len(o.Sessions) == retention.MaxBatch
	c.a.env.Log.Info().Str("expiry", o.ID).Uint64("records", records).Msg("texts of evidence expired")
	return nil
}

// isProvable reports whether the record of an expiry is evidence and covered by a checkpoint.
func (c *custodian) isProvable(ctx context.Context, seq uint64) (bool, error) {
	position, _, err := c.a.db.Position(ctx, c.a.shard)
	if err != nil || position < seq {
		return false, err
	}
	cp, err := c.a.db.LatestCheckpoint(ctx, c.a.shard)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil && cp.Size >= seq, err
}

// loggedExpiry is an expiry record with its log sequence.
type loggedExpiry struct {
	seq uint64
	events.Expiry
}

// expiryRecords returns the records of an expiry in the log: begun only if all parts of one
// attempt are there.
func (c *custodian) expiryRecords(ctx context.Context, id string) (begun []loggedExpiry, done bool, err error) {
	subj := c.a.flags.Space().Control(c.a.flags.Stream, events.ControlExpiry)
	for {
		m, err := streams.NextBySubject(ctx, c.js, c.a.flags.Stream, subj, c.expiriesRead+1)
		if err != nil {
			return nil, false, fmt.Errorf("reading the expiry records: %w", err)
		}
		if m == nil {
			break
		}
		c.expiriesRead = m.Seq
		e, err := events.DecodeRecord[events.Expiry](m.Body)
		if err != nil || e.Shard != c.a.shard || e.LastSequence() >= m.Seq || !signing.CheckExpiry(c.log.Known, e) {
			continue
		}
		c.expiring[e.ExpiryID] = append(c.expiring[e.ExpiryID], loggedExpiry{m.Seq, e})
		if e.State == events.ErasureDone && e.ExpiryID != id {
			delete(c.expiring, e.ExpiryID) // not needed any more
		}
	}
	var attempt []loggedExpiry
	for _, e := range c.expiring[id] {
		switch {
		case e.State == events.ErasureDone:
			done = true
		case e.Part == 1:
			attempt = []loggedExpiry{e}
		case e.Part == len(attempt)+1:
			attempt = append(attempt, e)
		}
		if n := len(attempt); n > 0 && n == attempt[0].Parts {
			begun = attempt
		}
	}
	return begun, done, nil
}
