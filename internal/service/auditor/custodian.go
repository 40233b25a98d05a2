package auditor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
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
	started  time.Time
	reach    daemon.Reach
	mark     evidenceMark
	clock    policyClock
	judged   bool      // judgeClock has judged it
	behind   time.Time // since when the evidence has not reached a mark; zero: it has

	begun   bool            // the keys of the bucket were looked through once
	doneSeq uint64          // the bucket's last sequence when everything was done
	open    map[string]bool // tenants with open orders
}

// custodianRunner connects as the custodian and runs it.
type custodianRunner struct {
	shardAccess
	flags   Flags
	builder *build.Builder
	keys    *sessionSecrets
	master  digest.Master
}

// run runs the custodian until ctx ends. Errors are retried; nothing else waits for it.
func (r *custodianRunner) run(ctx context.Context) {
	if r.flags.CustodianUser == "" && r.flags.CustodianCreds == "" {
		r.env.Log.Info().Msg("no custodian's credentials: nothing is erased here")
		return
	}
	if ahead := r.flags.RetentionAhead; ahead > 0 {
		r.env.Log.Warn().Dur("ahead", ahead).Msg("retention policies are applied as if it were later than it is")
	}
	var c *custodian
	r.poll(ctx, "retention", "retention is held up", custodianEvery, func(ctx context.Context) (err error) {
		if c == nil {
			c, err = r.connect(ctx)
		}
		if err == nil {
			err = c.pollBucket(ctx)
		}
		return err
	})
	if c != nil {
		c.nc.Close()
	}
}

func (r *custodianRunner) connect(ctx context.Context) (*custodian, error) {
	nc, err := streams.Connect(ctx, streams.ConnectOptions{
		URL: r.flags.Server, User: r.flags.CustodianUser, Password: r.flags.CustodianPassword, CredsFile: r.flags.CustodianCreds,
		Name: "countersign custodian", Log: r.env.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting as the custodian: %w", err)
	}
	c, err := r.assemble(ctx, nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("preparing erasures: %w", err)
	}
	return c, nil
}

// assemble makes the parts of a custodian.
func (r *custodianRunner) assemble(ctx context.Context, nc *nats.Conn) (*custodian, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := streams.OpenBucket(ctx, js, streams.BucketRetention)
	if err != nil {
		return nil, err
	}
	known, err := r.ownVerifier()
	if err != nil {
		return nil, err
	}
	access := custodyAccess{r.shardAccess, &erasures.Log{JS: js, Stream: r.stream, Space: r.space, Known: known}, fmt.Sprintf("auditor-%d", os.Getpid()), r.builder, r.keys}
	access.nc, access.js = nc, js
	bucket, messages := &retentionBucket{js: js, kv: kv}, &messageEraser{nc: nc, js: js}
	c := &custodian{custodyAccess: access, bucket: bucket, notes: &changeNotes{custodyAccess: access}, ahead: r.flags.RetentionAhead, started: time.Now(), clock: policyClock{checked: r.flags.ClocksChecked}, open: map[string]bool{}}
	c.erasure = &erasureWorker{custodyAccess: access, bucket: bucket, messages: messages, master: r.master, plans: map[string]erasureplan.Plan{}, forget: map[string]bool{}}
	c.expiry = &expiryWorker{custodyAccess: access, bucket: bucket, records: map[string][]loggedExpiry{}, done: map[string]uint64{}}
	c.policies = &policyWorker{custodyAccess: access, bucket: bucket, messages: messages, notes: c.notes, moreDue: map[string]bool{}, sessionlessFrom: map[string]uint64{}, dueSince: map[string]time.Time{}, counts: r.counters(), pauses: retry.New(applyAgain, expireEvery), ordered: func(tenant string) { c.open[tenant] = true }}
	return c, nil
}

// pollBucket carries out what the bucket asks for. Nothing is decided while the evidence is behind the log; what has
// begun goes on.
func (c *custodian) pollBucket(ctx context.Context) error {
	version, err := streams.VersionOf(ctx, c.js, streams.BucketRetention)
	c.reach.Note(c.nc, c.env.Log, err)
	if err != nil {
		return err
	}
	asked := version.Revision != c.doneSeq || len(c.open) > 0
	if asked || c.policies.isDue(len(c.open) == 0) {
		if err := c.markEnd(ctx); err != nil { // before anything is noted, which the evidence will have later
			return err
		}
	}
	if err := c.notes.findNoted(ctx, version.Store); err != nil {
		return err
	}
	policyChanged, err := c.notes.noteRevisions(ctx, version.Revision)
	if policyChanged {
		c.policies.applySoon()
	}
	if err != nil {
		return err
	}
	if err := c.forgetSubjects(ctx); err != nil {
		return err
	}
	now, err := c.decisionTime(ctx)
	if err != nil {
		return err
	}
	// Neither delays orders.
	policyTime, err := c.clock.policyTime(now)
	if version.Revision == 0 {
		err = nil // nothing waits for it
	}
	errs := []error{c.checkBehind(version.Revision), err, c.policies.applyDue(ctx, policyTime, len(c.open) == 0)}
	if !asked {
		return errors.Join(errs...)
	}
	keys, err := streams.KVKeys(ctx, c.js, streams.BucketRetention)
	if err != nil {
		return err
	}
	clear(c.open)
	for _, key := range keys {
		if tenant, ok := retention.StateTenant(key); ok {
			if err := c.advanceTenant(ctx, tenant, key, now); err != nil {
				c.open[tenant] = true
				errs = append(errs, fmt.Errorf("tenant %.60q: %w", tenant, err))
			}
		}
	}
	c.doneSeq = version.Revision
	return errors.Join(errs...)
}

// forgetSubjects deletes revisions of the bucket that name erased data subjects. An earlier
// custodian may have died before it did, so a new one looks through all tenants.
func (c *custodian) forgetSubjects(ctx context.Context) error {
	if !c.begun {
		keys, err := streams.KVKeys(ctx, c.js, streams.BucketRetention)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if _, ok := retention.StateTenant(key); ok {
				c.erasure.forget[key] = true
			}
		}
		c.begun = true
	}
	return c.erasure.forgetRevisions(ctx, c.notes.notedSeq)
}

// advanceTenant continues the orders of one tenant. None begins if now, the time of the decisions, is zero.
func (c *custodian) advanceTenant(ctx context.Context, tenant, key string, now time.Time) error {
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
		if err := c.advanceOrder(ctx, tenant, key, o, now); err != nil {
			errs = append(errs, fmt.Errorf("erasure %s: %w", o.ID, err))
		}
	}
	return errors.Join(errs...)
}

// advanceOrder advances an order by one step, or leaves it as it is while it has to wait.
func (c *custodian) advanceOrder(ctx context.Context, tenant, key string, o retention.Order, now time.Time) error {
	if o.Status == retention.Ordered && now.IsZero() {
		return nil
	}
	if err := c.log.Load(ctx); err != nil {
		return err
	}
	s, _, err := c.bucket.readState(ctx, key)
	if err != nil {
		return err
	}
	ev := c.evidenceFor(tenant)
	ev.Holds, ev.SessionlessFrom = s.Holds, c.policies.sessionlessFrom[tenant]
	if o.Status == retention.Ordered {
		why, err := c.beginOrder(ctx, ev, key, o, now)
		if err != nil || why == "" {
			return err
		}
		c.env.Log.Warn().Str("tenant", tenant).Str("erasure", o.ID).Str("why", why).Msg("an erasure is refused")
		switch {
		case why == policyChanged:
			c.policies.applyMore(tenant) // an order of the one in force is not refused for that
		case o.ByPolicy():
			c.policies.waitForNext(tenant)
		}
		return c.bucket.changeState(ctx, key, func(s retention.State) (retention.State, error) { return s.RefuseOrder(o.ID, why, time.Now()) })
	}
	advance := c.erasure.continueErasure
	if o.Expire != "" {
		advance = c.expiry.continueExpiry
	}
	finished, err := advance(ctx, ev, key, o)
	if finished && err == nil && len(o.Sessions) == retention.MaxBatch {
		c.policies.applyMore(tenant)
	}
	return err
}

// beginOrder makes an order irrevocable, unless there is a reason against it, which it returns.
func (c *custodian) beginOrder(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order, now time.Time) (why string, err error) {
	if o.ByPolicy() {
		if why, err = c.policies.checkInForce(ctx, ev.Tenant, o); why != "" || err != nil {
			return why, err
		}
	}
	if o.Expire != "" {
		return c.expiry.beginExpiry(ctx, ev, key, o)
	}
	return c.erasure.beginOrder(ctx, ev, key, o, now)
}
