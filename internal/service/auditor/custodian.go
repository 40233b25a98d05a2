package auditor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/streams"
)

const (
	custodianEvery = time.Second // how often the bucket is checked
	custodianWait  = 30 * time.Second
)

// custodian is the part of the active auditor that carries out erasures. It connects as a user of
// its own, the only one that may delete messages of the log. One goroutine owns it; it shares the
// database and the cache of session keys with the rest of the auditor.
//
// It keeps no state that matters: the orders are in the bucket, their progress is on the log, and
// every step can be repeated.
type custodian struct {
	custodyAccess
	bucket   *retentionBucket
	notes    *changeNotes
	policies *policyWorker
	erasure  *erasureWorker
	expiry   *expiryWorker
	ahead    time.Duration // of policies

	doneSeq uint64          // the bucket's last sequence when everything was done
	open    map[string]bool // tenants with open orders
}

// runCustodian runs the custodian until ctx ends. Errors are retried; nothing else waits for it.
func (a *auditor) runCustodian(ctx context.Context) {
	if a.flags.CustodianUser == "" && a.flags.CustodianCreds == "" {
		a.env.Log.Info().Msg("no custodian's credentials: nothing is erased here")
		return
	}
	if ahead := a.flags.RetentionAhead; ahead > 0 {
		a.env.Log.Warn().Dur("ahead", ahead).Msg("retention policies are applied as if it were later than it is")
	}
	var c *custodian
	for ctx.Err() == nil {
		var err error
		if c == nil {
			c, err = a.newCustodian(ctx)
		}
		if err == nil {
			err = c.pollBucket(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		problem := ""
		if err != nil {
			problem = err.Error()
			a.env.Log.Warn().Err(err).Msg("retention is held up; it will be tried again")
		}
		a.env.Health.Set("retention", problem)
		select {
		case <-ctx.Done():
		case <-time.After(custodianEvery):
		}
	}
	if c != nil {
		c.nc.Close()
	}
}

func (a *auditor) newCustodian(ctx context.Context) (*custodian, error) {
	nc, err := streams.Connect(ctx, streams.ConnectOptions{
		URL: a.flags.Server, User: a.flags.CustodianUser, Password: a.flags.CustodianPassword, CredsFile: a.flags.CustodianCreds,
		Name: "countersign custodian", Log: a.env.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting as the custodian: %w", err)
	}
	c, err := a.assembleCustodian(ctx, nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("preparing erasures: %w", err)
	}
	return c, nil
}

// assembleCustodian makes the parts of a custodian.
func (a *auditor) assembleCustodian(ctx context.Context, nc *nats.Conn) (*custodian, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := streams.OpenBucket(ctx, js, streams.BucketRetention)
	if err != nil {
		return nil, err
	}
	known, err := a.ownVerifier()
	if err != nil {
		return nil, err
	}
	access := custodyAccess{nc: nc, js: js, db: a.db, store: a.writer, shard: a.shard, stream: a.flags.Stream, space: a.flags.Space(), signer: a.signer,
		writer: fmt.Sprintf("auditor-%d", os.Getpid()), env: a.env,
		log: &erasures.Log{JS: js, Stream: a.flags.Stream, Space: a.flags.Space(), Known: known}}
	bucket, messages := &retentionBucket{js: js, kv: kv}, &messageEraser{nc: nc, js: js}
	c := &custodian{custodyAccess: access, bucket: bucket, notes: &changeNotes{custodyAccess: access}, ahead: a.flags.RetentionAhead, open: map[string]bool{}}
	c.erasure = &erasureWorker{custodyAccess: access, bucket: bucket, messages: messages, builder: a.builder, keys: a.keys, master: a.master}
	c.expiry = &expiryWorker{custodyAccess: access, bucket: bucket, records: map[string][]loggedExpiry{}}
	c.policies = &policyWorker{custodyAccess: access, bucket: bucket, messages: messages, notes: c.notes, ordered: func(tenant string) { c.open[tenant] = true }}
	return c, nil
}

// ownVerifier is the public half of this auditor's signing key.
func (a *auditor) ownVerifier() (note.Verifiers, error) {
	v, err := signing.CheckpointVerifier(a.verifierKey)
	if err != nil {
		return nil, err
	}
	return note.VerifierList(v), nil
}

// policyTime is the time for applying policies and measuring silence. Records are stamped with
// the real time.
func (c *custodian) policyTime() time.Time { return time.Now().Add(c.ahead) }

// pollBucket carries out what the bucket asks for.
func (c *custodian) pollBucket(ctx context.Context) error {
	st, err := streams.StreamState(ctx, c.js, retentionStream)
	if err != nil {
		return err
	}
	if err := c.notes.findNoted(ctx, streams.EpochName(retentionStream, st.Created)); err != nil {
		return err
	}
	policyChanged, err := c.notes.noteRevisions(ctx, st.LastSeq)
	if policyChanged {
		c.policies.applySoon()
	}
	if err != nil {
		return err
	}
	policyErr := c.policies.applyDue(ctx, c.policyTime(), len(c.open) == 0)
	if st.LastSeq == c.doneSeq && len(c.open) == 0 {
		return policyErr
	}
	keys, err := streams.KVKeys(ctx, c.js, streams.BucketRetention)
	if err != nil {
		return err
	}
	clear(c.open)
	errs := []error{policyErr} // a faulty policy does not delay orders
	for _, key := range keys {
		if tenant, ok := retention.StateTenant(key); ok {
			if err := c.advanceTenant(ctx, tenant, key); err != nil {
				c.open[tenant] = true
				errs = append(errs, fmt.Errorf("tenant %.60q: %w", tenant, err))
			}
		}
	}
	c.doneSeq = st.LastSeq
	return errors.Join(errs...)
}

// advanceTenant continues the orders of one tenant.
func (c *custodian) advanceTenant(ctx context.Context, tenant, key string) error {
	s, _, err := c.bucket.readState(ctx, key)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range s.Orders {
		if !o.Status.Open() {
			continue
		}
		c.open[tenant] = true
		if err := c.advanceOrder(ctx, tenant, key, o); err != nil {
			errs = append(errs, fmt.Errorf("erasure %s: %w", o.ID, err))
		}
	}
	return errors.Join(errs...)
}

// advanceOrder advances an order by one step, or leaves it as it is while it has to wait.
func (c *custodian) advanceOrder(ctx context.Context, tenant, key string, o retention.Order) error {
	if err := c.log.Load(ctx); err != nil {
		return err
	}
	s, _, err := c.bucket.readState(ctx, key)
	if err != nil {
		return err
	}
	ev := c.evidenceFor(tenant)
	ev.Holds = s.Holds
	if o.Status == retention.Ordered {
		why, err := c.beginOrder(ctx, ev, key, o)
		if err != nil || why == "" {
			return err
		}
		c.env.Log.Warn().Str("tenant", tenant).Str("erasure", o.ID).Str("why", why).Msg("an erasure is refused")
		return c.bucket.changeState(ctx, key, func(s retention.State) (retention.State, error) { return s.RefuseOrder(o.ID, why, time.Now()) })
	}
	if o.Expire == "" {
		return c.erasure.continueErasure(ctx, ev, key, o)
	}
	finished, err := c.expiry.continueExpiry(ctx, ev, key, o)
	if finished && err == nil && len(o.Sessions) == retention.MaxBatch {
		c.policies.applyMore()
	}
	return err
}

// beginOrder makes an order irrevocable, unless there is a reason against it, which it returns.
func (c *custodian) beginOrder(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order) (why string, err error) {
	if o.Expire != "" {
		return c.expiry.beginExpiry(ctx, ev, key, o)
	}
	return c.erasure.beginOrder(ctx, ev, key, o, c.policyTime())
}
