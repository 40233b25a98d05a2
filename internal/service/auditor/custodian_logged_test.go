package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// whole reports whether the log still has all of these messages.
func (c *custody) whole(seqs ...uint64) bool {
	c.Helper()
	return !slices.ContainsFunc(seqs, func(seq uint64) bool {
		m, err := streams.MessageAt(c.Context(), c.n.JS("auditor"), "GOV", seq)
		servicetest.OK(c, err)
		return m == nil
	})
}

// order orders an erasure.
func (c *custody) order(id string, scope retention.Scope) {
	c.Helper()
	c.change(func(s retention.State) (retention.State, error) {
		return s.RequestErasure(retention.Order{Scope: scope, Note: asked(id)})
	})
}

// carriedOut lets auditor and correlator pass what the custodian announced, until it has done it.
func (c *custody) carriedOut(id string) {
	c.Helper()
	c.look()
	c.look()
	c.audited()
	seq, _ := last[events.Erasure](c, events.ControlErasure)
	c.consumed(seq)
	c.look()
	if got := c.status(id); got != retention.Done {
		c.Errorf("order %s is %s", id, got)
	}
	c.audited()
}

// A user of ClickHouse writes that other messages are of the session that is erased, or name the data subject: of a held
// session, of another tenant, of the service itself. Nothing is erased and signed until the rows are as they were, and then
// only what is of the session by the log.
func TestErasureIsDecidedByTheLog(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	const loose = "gov.events.acme.rt1.agenthook.~.PreToolUse"
	c.n.Publish(servicetest.Runtime, streams.Msg{Subject: loose, Body: []byte(`{"n":1}`), Header: map[string][]string{events.HeaderSession: {"s2"}}},
		streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s3.PreToolUse", Body: []byte(`{"user":"d\u006fra"}`)})
	c.n.Publish("admitter", streams.Msg{Subject: "gov.events.globex.rt9.agenthook.g1.PreToolUse", Body: session(t, "g1")[0].Body})
	c.consumed(1)
	log := c.n.Log()
	control, foreign, naming, headed := log[len(log)-1].Seq, log[len(log)-2].Seq, log[len(log)-3].Seq, log[len(log)-4].Seq
	c.audited()
	own, held := c.of("s1"), c.of("s2")
	c.change(func(s retention.State) (retention.State, error) {
		return s.PlaceHold(retention.Hold{Scope: retention.Scope{Session: "s2"}, Note: asked("h1")})
	})
	execute := ownerOf(t, c.dsn)
	changed := func(id string, change, back string) {
		t.Helper()
		c.step(func(ctx context.Context, k *custodian) {
			execute(change)
			if err := k.pollBucket(ctx); !errors.Is(err, erasureplan.ErrDiffers) {
				t.Errorf("%s: %v", change, err)
			}
			execute(back)
		})
		if c.status(id) != retention.Ordered {
			t.Fatalf("%s: %s", change, c.status(id))
		}
		c.audited()
	}
	c.order("o1", retention.Scope{Session: "s1"})
	for _, seq := range []uint64{held[0], foreign, control, headed} {
		changed("o1", fmt.Sprintf("INSERT INTO evidence_chain (tenant, session, shard, seq) SELECT 'acme', 's1', shard, seq FROM evidence WHERE seq = %d", seq),
			fmt.Sprintf("ALTER TABLE evidence_chain DELETE WHERE session = 's1' AND seq = %d", seq))
	}
	c.carriedOut("o1")
	if c.whole(own[0]) || !c.whole(append(held, foreign, control, headed, naming)...) {
		t.Errorf("of s1 %v are on the log, of s2 %v", c.of("s1"), c.of("s2"))
	}

	c.change(func(s retention.State) (retention.State, error) { return s.ReleaseHold(asked("h1")) })
	c.order("o2", retention.Scope{Subject: "dora"})
	for _, seq := range []uint64{held[0], headed} {
		changed("o2", fmt.Sprintf(`ALTER TABLE evidence UPDATE record = concat(record, '"dora"') WHERE seq = %d`, seq),
			fmt.Sprintf(`ALTER TABLE evidence UPDATE record = substring(record, 1, length(record) - 6) WHERE seq = %d`, seq))
	}
	c.carriedOut("o2")
	if c.whole(naming) || !c.whole(append(held, headed)...) {
		t.Errorf("of s2 %v are on the log, of s3 %v", c.of("s2"), c.of("s3"))
	}
	if rep := c.verified(); !rep.OK {
		t.Errorf("%+v", rep.Findings)
	}
}

// A user of ClickHouse writes that a session of today is old: no policy takes its messages or texts, neither while the
// columns say so nor afterwards.
func TestExpiryIsDecidedByProvedTexts(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 365d\nevidence: 365d\n"))
	servicetest.OK(t, err)
	c.audited()
	execute, messages := ownerOf(t, c.dsn), c.of("s2")
	c.step(func(ctx context.Context, k *custodian) {
		servicetest.OK(t, k.pollBucket(ctx))
		c.audited()
		servicetest.OK(t, k.pollBucket(ctx))
		execute("ALTER TABLE evidence UPDATE broker_time = broker_time - INTERVAL 400 DAY WHERE session = 's2'")
		k.policies.applySoon()
		for range 3 {
			_ = k.pollBucket(ctx)
			c.audited()
		}
		if err := k.pollBucket(ctx); !errors.Is(err, erasureplan.ErrDiffers) || len(c.state().Orders) != 2 {
			t.Errorf("%v; orders %+v", err, c.state().Orders)
		}
		execute("ALTER TABLE evidence UPDATE broker_time = broker_time + INTERVAL 400 DAY WHERE session = 's2'")
		for range 4 {
			servicetest.OK(t, k.pollBucket(ctx))
			c.audited()
		}
	})
	for _, o := range c.state().Orders {
		if o.Status.Open() || o.Status == retention.Done && *o.Result != (retention.Result{Sessions: 1}) {
			t.Errorf("%+v: %+v", o, o.Result)
		}
	}
	if _, without := c.texts(); len(without) > 0 || !c.whole(messages...) {
		t.Errorf("without texts %v, on the log %v", without, c.of("s2"))
	}
	erasure, _ := last[events.Erasure](c, events.ControlErasure)
	if expiry, _ := last[events.Expiry](c, events.ControlExpiry); erasure > 0 || expiry > 0 {
		t.Errorf("an erasure is recorded at %d, an expiry at %d", erasure, expiry)
	}
}

// A text that was never signed makes nothing expire, though its own row agrees with it.
func TestForgedTextsDoNotExpire(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.audited()
	c.step(func(ctx context.Context, k *custodian) {
		texts, err := k.expiry.readTexts(ctx, ev(k), []string{"s1"})
		servicetest.OK(t, err)
		checkpoint, covered, err := k.expiry.covers(ctx, texts.seqs)
		if err != nil || !covered || k.expiry.prove(ctx, texts, checkpoint) != nil {
			t.Fatalf("%v: covered %v by %+v", err, covered, checkpoint)
		}
		texts.hashes[2][0] ^= 1
		if err := k.expiry.prove(ctx, texts, checkpoint); !errors.Is(err, erasureplan.ErrDiffers) {
			t.Errorf("another text: %v", err)
		}
		if _, covered, err := k.expiry.covers(ctx, []uint64{uint64(checkpoint.Size) + 1}); covered || err != nil {
			t.Errorf("a record behind the checkpoint is covered (%v)", err)
		}
		ownerOf(t, c.dsn)("INSERT INTO checkpoints (shard, size, root, note, created) SELECT shard, size + 9, root, note, created FROM checkpoints ORDER BY size DESC LIMIT 1")
		ownerOf(t, c.dsn)("ALTER TABLE checkpoints UPDATE note = replaceOne(note, '\n', '\n1') WHERE size = (SELECT max(size) FROM checkpoints)")
		if _, _, err := k.expiry.covers(ctx, texts.seqs); err == nil {
			t.Error("a checkpoint that nobody signed is believed")
		}
	})
}

// A held session's bytes stay in quarantine, though a user of ClickHouse writes that they are another one's.
func TestQuarantineIsHeldByTheLog(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s2.PreToolUse", Body: []byte("{hush")})
	c.audited()
	m := c.n.LastPublished(streams.StreamQuarantine)
	for _, session := range []string{"s1", ""} {
		c.step(func(ctx context.Context, k *custodian) {
			ownerOf(t, c.dsn)(fmt.Sprintf("ALTER TABLE evidence UPDATE session = '%s' WHERE subject LIKE '%%.s2.%%'", session))
			for hold, want := range map[string]bool{"s2": true, "s3": false} {
				s, err := retention.State{V: 1}.PlaceHold(retention.Hold{Scope: retention.Scope{Session: hold}, Note: asked("h1")})
				servicetest.OK(t, err)
				if held, err := heldInQuarantine(ctx, k.evidenceFor("acme"), s, *m); held != want || err != nil {
					t.Errorf("as session %q, with a hold on %s: held %v (%v)", session, hold, held, err)
				}
			}
		})
	}
}

// A user of ClickHouse takes rows of a session away: its messages go all the same, and what it did last counts.
func TestErasureOfASessionWithoutRows(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	c.n.Publish("correlator", streams.Msg{Subject: "gov.calls.acme.open.s1", Body: []byte("{}")}, streams.Msg{Subject: "gov.findings.acme.low.s1", Body: []byte("{}")})
	c.n.Publish("admitter", streams.Msg{Subject: "gov.decisions.acme.deny.s1", Body: []byte("{}")})
	c.audited()
	log := c.n.Log()
	last := len(log)
	for last > 0 && log[last-1].Subject != "gov.decisions.acme.deny.s1" {
		last--
	}
	own := append(c.of("s1"), log[last-3].Seq, log[last-2].Seq, log[last-1].Seq)
	c.order("o1", retention.Scope{Session: "s1"})
	c.step(func(ctx context.Context, k *custodian) {
		ownerOf(t, c.dsn)(fmt.Sprintf("ALTER TABLE evidence_chain DELETE WHERE session = 's1' AND seq > %d", own[0]))
		p, err := k.evidenceFor("acme").NewPlan(ctx, retention.Order{Scope: retention.Scope{Session: "s1"}})
		if newest := log[last-1].Time; err != nil || !slices.Equal(p.Seqs, own) || !p.Newest.Equal(newest) || p.CheckPeriods(newest, func(string) time.Duration { return 1 }) == nil {
			t.Errorf("planned %v, newest %v (%v)", p.Seqs, p.Newest, err)
		}
		servicetest.OK(t, k.pollBucket(ctx))
		servicetest.OK(t, k.pollBucket(ctx))
		texts, err := k.expiry.readTexts(ctx, k.evidenceFor("acme"), []string{"s1"})
		if err != nil || len(texts.seqs) != 1 || !texts.sessions[0].newest.Equal(log[last-1].Time) {
			t.Errorf("%+v (%v)", texts, err)
		}
	})
	c.audited()
	c.carriedOut("o1")
	if left := c.of("s1"); len(left) > 0 || c.whole(log[last-1].Seq) || !c.whole(c.of("s2")...) {
		t.Errorf("on the log: %v", left)
	}
}
