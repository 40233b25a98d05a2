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

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/streams"
)

const (
	custodianEvery = time.Second // how often the bucket is looked at
	custodianWait  = 30 * time.Second
)

// custodian is the part of the active auditor that carries out erasures. It has
// a user of its own, the only one that may take messages off the log. One
// goroutine owns it; with the rest of the auditor it shares the database and the
// cache of session keys.
//
// It remembers nothing: what is to be done stands in the bucket, how far it came
// on the log, and every step can be done again.
type custodian struct {
	a      *auditor
	nc     *nats.Conn
	js     jetstream.JetStream
	kv     jetstream.KeyValue
	log    *erasures.Log
	writer string

	bucketVersion string // the bucket's incarnation and the last revision that was noted
	notedSeq      uint64
	doneSeq       uint64          // the bucket's last sequence when all was done
	open          map[string]bool // tenants with something still to do
	next          time.Time       // when policies are applied again
	policyErr     error           // what went wrong with them
	moreDue       bool            // more texts may be due than one order takes

	expiring     map[string][]loggedExpiry // by id: the records of expiries that are not done
	expiriesRead uint64                    // up to where the log was read for them
}

// runCustodian runs the custodian until ctx ends. What goes wrong is tried again: nothing
// else waits for it.
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
	c := &custodian{a: a, nc: nc, writer: fmt.Sprintf("auditor-%d", os.Getpid()), open: map[string]bool{}, expiring: map[string][]loggedExpiry{}}
	c.js, err = jetstream.New(nc)
	if err == nil {
		c.kv, err = streams.OpenBucket(ctx, c.js, streams.BucketRetention)
	}
	var known note.Verifiers
	if err == nil {
		known, err = a.ownVerifier()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("preparing erasures: %w", err)
	}
	c.log = &erasures.Log{JS: c.js, Stream: a.flags.Stream, Space: a.flags.Space(), Known: known}
	return c, nil
}

// ownVerifier is the public half of the key that this auditor signs with.
func (a *auditor) ownVerifier() (note.Verifiers, error) {
	v, err := signing.CheckpointVerifier(a.verifierKey)
	if err != nil {
		return nil, err
	}
	return note.VerifierList(v), nil
}

// policyTime is the time by which policies are applied and silence is measured. Records
// are stamped with the real one.
func (c *custodian) policyTime() time.Time { return time.Now().Add(c.a.flags.RetentionAhead) }

// pollBucket does what the bucket asks for.
func (c *custodian) pollBucket(ctx context.Context) error {
	st, err := streams.StreamState(ctx, c.js, retentionStream)
	if err != nil {
		return err
	}
	if store := streams.EpochName(retentionStream, st.Created); store != c.bucketVersion {
		if err := c.findNoted(ctx, store); err != nil {
			return err
		}
	}
	if err := c.noteRevisions(ctx, st.LastSeq); err != nil {
		return err
	}
	if now := c.policyTime(); !now.Before(c.next) {
		c.policyErr, c.next = errors.Join(c.applyPolicies(ctx, now), c.expireTexts(ctx, now)), now.Add(expireEvery)
	} else if c.moreDue && len(c.open) == 0 {
		c.moreDue = false
		c.policyErr = errors.Join(c.policyErr, c.applyPolicies(ctx, now), c.expireTexts(ctx, now))
	}
	if st.LastSeq == c.doneSeq && len(c.open) == 0 {
		return c.policyErr
	}
	keys, err := streams.KVKeys(ctx, c.js, streams.BucketRetention)
	if err != nil {
		return err
	}
	clear(c.open)
	errs := []error{c.policyErr} // what is wrong with one policy holds up no order
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

// advanceTenant goes on with the orders of one tenant.
func (c *custodian) advanceTenant(ctx context.Context, tenant, key string) error {
	s, _, err := c.readState(ctx, key)
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

func (c *custodian) readState(ctx context.Context, key string) (retention.State, uint64, error) {
	e, err := streams.KVLast(ctx, c.js, streams.BucketRetention, key)
	if err != nil {
		return retention.State{}, 0, err
	}
	if e == nil { // a tenant of whom nobody asked anything yet
		s, err := retention.Decode(nil)
		return s, 0, err
	}
	s, err := retention.Decode(e.Value)
	return s, e.Revision, err
}

// changeState applies a step to a tenant's state by compare-and-set. step may look at
// the state and refuse.
func (c *custodian) changeState(ctx context.Context, key string, step func(retention.State) (retention.State, error)) error {
	s, revision, err := c.readState(ctx, key)
	if err != nil {
		return err
	}
	if s, err = step(s); err != nil {
		return err
	}
	text, err := s.Encode()
	if err != nil {
		return err
	}
	if revision == 0 {
		_, err = c.kv.Create(ctx, key, text)
	} else {
		_, err = c.kv.Update(ctx, key, text, revision)
	}
	if err != nil {
		return fmt.Errorf("changing the retention state (somebody else did, or the bucket does not answer): %w", err)
	}
	return nil
}

// advanceOrder takes an erasure one step further, or leaves it where it has to wait.
func (c *custodian) advanceOrder(ctx context.Context, tenant, key string, o retention.Order) error {
	if err := c.log.Load(ctx); err != nil {
		return err
	}
	s, _, err := c.readState(ctx, key)
	if err != nil {
		return err
	}
	ev := c.evidenceFor(tenant)
	ev.Holds = s.Holds
	if o.Status == retention.Ordered {
		begin := c.beginOrder
		if o.Expire != "" {
			begin = c.beginExpiry
		}
		why, err := begin(ctx, ev, key, o)
		if err != nil || why == "" {
			return err
		}
		c.a.env.Log.Warn().Str("tenant", tenant).Str("erasure", o.ID).Str("why", why).Msg("an erasure is refused")
		return c.changeState(ctx, key, func(s retention.State) (retention.State, error) { return s.RefuseOrder(o.ID, why, time.Now()) })
	}
	if o.Expire != "" {
		return c.continueExpiry(ctx, ev, key, o)
	}
	return c.continueErasure(ctx, ev, key, o)
}

// evidenceFor is what erasures of a tenant are planned from.
func (c *custodian) evidenceFor(tenant string) erasureplan.Evidence {
	return erasureplan.Evidence{DB: c.a.db, Shard: c.a.shard, Tenant: tenant, Space: c.a.flags.Space(),
		Read: func(ctx context.Context, seq uint64) (*events.LogMessage, error) {
			return streams.MessageAt(ctx, c.js, c.a.flags.Stream, seq)
		},
		Erased: func(seq uint64) bool { return c.log.RecordOf(seq) != nil },
	}
}

// digestOf names a data subject without saying who it is.
func (c *custodian) digestOf(tenant, subject string) string {
	if subject == "" {
		return ""
	}
	return keyedDigest(c.a.master.Tenant(tenant), subject)
}

func controlMessage(a *auditor, kind, id string, record any) (streams.Msg, error) {
	body, err := events.Encode(record)
	return streams.Msg{Subject: a.flags.Space().Control(a.flags.Stream, kind), Body: body, Header: binaryHeader(a.flags.Stream, id)}, err
}
