package auditor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/write"
	"github.com/countersign-dev/countersign/streams"
)

// texts lists the sessions that have a record with its text, and one without.
func (c *custody) texts() (with, without []string) {
	c.Helper()
	c.step(func(ctx context.Context, k *custodian) {
		servicetest.OK(c, k.db.Scan(ctx, k.shard, 1, storage.AllSequences, func(r storage.EvidenceRow) error {
			list := &with
			if r.Record == "" {
				list = &without
			}
			if r.Session != "" && !slices.Contains(*list, r.Session) {
				*list = append(*list, r.Session)
			}
			return nil
		}))
	})
	slices.Sort(with)
	slices.Sort(without)
	return with, without
}

// verified verifies the shard and every session.
func (c *custody) verified(sessions ...string) verify.Report {
	c.Helper()
	var rep verify.Report
	c.step(func(ctx context.Context, k *custodian) {
		_, key, err := keys.Checkpoint(c.f.Keys)
		servicetest.OK(c, err)
		v, err := signing.CheckpointVerifier(key)
		servicetest.OK(c, err)
		l := evidencereader.Reader{DB: k.db, Stream: "GOV"}
		rep, err = l.Verify(ctx, k.shard, evidencereader.VerifyOptions{Keys: []note.Verifier{v}})
		servicetest.OK(c, err)
		for _, session := range sessions {
			parts, err := l.Session(ctx, "acme", session)
			servicetest.OK(c, err)
			s := parts[len(parts)-1]
			servicetest.OK(c, l.AddProofs(ctx, &s, []note.Verifier{v}))
			if one := verify.Session(verify.SessionInput{Shard: s.Shard, Tenant: s.Tenant, Session: s.Session, Keys: []note.Verifier{v}, Rows: s.Rows,
				Proofs: s.Proofs, Checkpoint: verify.Published{Text: s.Checkpoint}, ReceiptKeys: s.Keys, Expiries: s.Expiries}); !one.OK {
				c.Errorf("session %s: %+v", session, one.Findings)
			}
		}
	})
	return rep
}

// What a policy lets go loses its texts and nothing else: no text goes before the
// record of it is evidence, holds and keep stand above it, and a custodian that dies
// anywhere is followed by one that ends what it began.
func TestEvidenceExpires(t *testing.T) {
	c := newCustody(t)
	for _, s := range []string{"s1", "s2", "s3", "demo-1"} {
		c.n.Publish(servicetest.Runtime, session(t, s)...)
	}
	c.n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse", Body: []byte("{one")})
	c.audited()
	messages := c.of("s1")
	_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nevidence: 10d\nsessions: [{match: 'demo-*', evidence: 1d}, {match: s3, keep: true}]\n"))
	servicetest.OK(t, err)
	c.change(func(s retention.State) (retention.State, error) {
		return s.PlaceHold(retention.Hold{Scope: retention.Scope{Session: "s2"}, Note: asked("h1")})
	})
	day := 24 * time.Hour
	expire := func(after time.Duration) (o retention.Order) {
		t.Helper()
		c.step(func(ctx context.Context, k *custodian) {
			servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(after), everyTenant))
		})
		for _, o = range c.state().Orders {
			if o.Status.Open() {
				return o
			}
		}
		return retention.Order{}
	}
	whole := func(when string, want retention.Status, id string) {
		t.Helper()
		if _, without := c.texts(); len(without) > 0 || c.status(id) != want {
			t.Fatalf("%s: the texts of %v are gone, %s", when, without, c.status(id))
		}
	}
	if o := expire(time.Hour); o.ID != "" {
		t.Fatalf("%+v", o)
	}
	o := expire(11 * day)
	slices.Sort(o.Sessions)
	if !slices.Equal(o.Sessions, []string{"demo-1", "s1"}) || !strings.HasPrefix(o.Expire, "p@") {
		t.Fatalf("%+v", o)
	}
	whole("ordered", retention.Ordered, o.ID)
	c.look()
	c.look()
	whole("begun", retention.Begun, o.ID)
	seq, e := last[events.Expiry](c, events.ControlExpiry)
	if e.State != events.ErasureBegun || e.Policy != o.Expire || len(e.Sessions) != 2 || e.Records == 0 {
		t.Fatalf("%+v", e)
	}
	c.look()
	whole("not in evidence", retention.Begun, o.ID)
	if again, _ := last[events.Expiry](c, events.ControlExpiry); again != seq {
		t.Error("it is announced again")
	}
	c.audited()
	c.step(func(ctx context.Context, k *custodian) { // dies when the first mutation is under way
		begun, done, err := k.expiry.expiryRecords(ctx, o.ID)
		if err != nil || len(begun) != 1 || done {
			t.Fatalf("%+v %v", begun, err)
		}
		var seqs []uint64
		for _, s := range begun[0].Sessions {
			for _, span := range s.Sequences {
				for seq := span[0]; seq <= span[1]; seq++ {
					seqs = append(seqs, seq)
				}
			}
		}
		slices.Sort(seqs)
		done, err = k.writer.Expire(ctx, write.ExpiryBatch{Shard: k.shard, Tenant: "acme", Seqs: seqs, Records: []uint64{seq}})
		if err != nil || done {
			t.Fatal(done, err)
		}
	})
	for c.status(o.ID) != retention.Done {
		c.look()
		time.Sleep(10 * time.Millisecond) // mutations are under way
	}
	c.audited()
	with, without := c.texts()
	if !slices.Equal(with, []string{"s2", "s3"}) || !slices.Equal(without, []string{"demo-1", "s1"}) {
		t.Errorf("with texts %v, without %v", with, without)
	}
	if got := c.of("s1"); !slices.Equal(got, messages) {
		t.Error("the log lost messages")
	}
	done, _ := c.state().FindOrder(o.ID)
	c.n.CheckLinked(events.ControlExpiry)
	_, e2 := last[events.Expiry](c, events.ControlExpiry)
	if e2.State != events.ErasureDone || e2.Records != e.Records || done.Result.Records != e.Records {
		t.Errorf("%+v %+v", e2, done.Result)
	}
	if rep := c.verified("s1", "s2", "demo-1"); !rep.OK || rep.Expired != int(e.Records) || rep.ExpiredBy[o.Expire] != rep.Expired {
		t.Errorf("%+v", rep)
	}
	if o := expire(11 * day); o.ID != "" {
		t.Errorf("it is ordered again: %+v", o)
	}

	// The session goes on, in the same chain, and expires once more.
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.audited()
	if rep := c.verified("s1"); !rep.OK || rep.Expired != int(e.Records) {
		t.Errorf("%+v", rep.Findings)
	}
	o = expire(11 * day)
	if !slices.Equal(o.Sessions, []string{"s1"}) {
		t.Fatalf("%+v", o)
	}
	c.look()
	c.look()
	c.audited()
	for c.status(o.ID) != retention.Done {
		c.look()
		time.Sleep(10 * time.Millisecond)
	}
	c.audited()
	if rep := c.verified("s1"); !rep.OK || rep.Expired <= int(e.Records) {
		t.Errorf("%+v", rep)
	}

	// An auditor that knows the last of them under another name, as an earlier build would have given it, goes on.
	a := standing(t, flags(c.n, c.dsn, 100))
	a.records.last.note(events.SessionID{Tenant: "acme", Session: "renamed"}, slices.Max(c.of("s1")))
	c.n.Publish(servicetest.Runtime, session(t, "renamed")[0])
	servicetest.OK(t, auditAll(t, a, c.n.Log()[a.tree.Size():]))
	servicetest.OK(t, a.store.await())

	// Nobody else's missing text is explained by it.
	c.step(func(ctx context.Context, k *custodian) {
		done := false
		for !done {
			var err error
			done, err = k.writer.Expire(ctx, write.ExpiryBatch{Shard: k.shard, Tenant: "acme", Seqs: c.of("s2"), Records: []uint64{seq}})
			servicetest.OK(t, err)
		}
	})
	if rep := c.verified(); rep.OK || rep.ByCode[verify.CodeTextMissing] != len(c.of("s2")) {
		t.Errorf("%+v", rep.ByCode)
	}
}

// A hold that comes before an order begins stops it, and so does another policy.
func TestExpiryIsStopped(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.audited()
	put := func(text string) {
		_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte(text))
		servicetest.OK(t, err)
	}
	order := func() string {
		t.Helper()
		c.step(func(ctx context.Context, k *custodian) {
			servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(240*time.Hour), everyTenant))
		})
		for _, o := range c.state().Orders {
			if o.Status.Open() {
				return o.ID
			}
		}
		t.Fatal("nothing is ordered")
		return ""
	}
	put("version: 1\nname: p\nevidence: 3d\n")
	first := order()
	put("version: 1\nname: p\nevidence: 300d\n")
	c.look()
	if o, _ := c.state().FindOrder(first); o.Status != retention.Refused || !strings.Contains(o.Problem, "policy has changed") {
		t.Errorf("%+v", o)
	}
	put("version: 1\nname: p\nevidence: 4d\n")
	c.audited()
	second := order()
	c.change(func(s retention.State) (retention.State, error) {
		return s.PlaceHold(retention.Hold{Note: asked("h1")})
	})
	c.look()
	if o, _ := c.state().FindOrder(second); o.Status != retention.Refused || !strings.Contains(o.Problem, "h1") {
		t.Errorf("%+v", o)
	}
	if seq, _ := last[events.Expiry](c, events.ControlExpiry); seq != 0 {
		t.Error("an expiry is announced")
	}
}

// An auditor dies after an expiry is recorded as done and before its order is; the next one reads that
// record while it works on another order. The order ends with the number of texts that went.
func TestExpiryIsDoneBeforeItsOrder(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.change(func(s retention.State) (retention.State, error) {
		s, err := s.RequestErasure(retention.Order{Note: asked("e1"), Sessions: []string{"s1"}, Expire: "p@1"})
		servicetest.OK(t, err)
		return s.BeginOrder("e1", retention.Planned{}, time.Now())
	})
	c.step(func(ctx context.Context, k *custodian) {
		e := events.Expiry{ExpiryID: "e1", Shard: k.shard, State: events.ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Policy: "p@1",
			Sessions: []events.ExpiredSession{{Session: "s1", Index: 1, Sequences: []events.Span{{1, 2}}}}, Records: 2, At: events.At(time.Now()), Writer: "w"}
		begun, err := k.expiry.signedExpiry(e)
		servicetest.OK(t, err)
		servicetest.OK(t, streams.StoreAll(ctx, k.nc, []streams.Msg{begun}))
		servicetest.OK(t, k.expiry.publishExpired(ctx, e, 2))
	})
	c.step(func(ctx context.Context, k *custodian) {
		if begun, done, err := k.expiry.expiryRecords(ctx, "another"); begun != nil || done || err != nil {
			t.Fatal(begun, done, err)
		}
		servicetest.OK(t, k.advanceTenant(ctx, "acme", retention.StateKey("acme"), time.Time{}))
	})
	if o, _ := c.state().FindOrder("e1"); o.Status != retention.Done || o.Result.Records != 2 {
		t.Errorf("%+v %+v", o, o.Result)
	}
}

// Records of an expiry are cut where they would become too large.
func TestExpiryParts(t *testing.T) {
	var p expiryParts
	var places []recordPlace
	for i := uint64(1); i <= 10_000; i++ {
		places = append(places, recordPlace{2 * i, i})
	}
	p.addSession("long", places)
	p.addSession("gap", []recordPlace{{5, 1}, {6, 2}, {7, 9}})
	for i := range 2000 {
		p.addSession(fmt.Sprintf("%0500d", i), []recordPlace{{uint64(30_000 + i), 1}})
	}
	n := uint64(0)
	for i, part := range p.list {
		spans, names := 0, 0
		for _, s := range part {
			spans, names = spans+len(s.Sequences), names+len(s.Session)
			for _, span := range s.Sequences {
				n += span[1] - span[0] + 1
			}
		}
		if spans > spansInExpiry || names > namesInExpiry+1000 {
			t.Errorf("part %d: %d spans, %d bytes of names", i, spans, names)
		}
	}
	second := p.list[1][0]
	if n != 10_000+3+2000 || second.Session != "long" || second.Index != 4001 || second.Sequences[0][0] != 8002 {
		t.Errorf("%d records, %s from %d", n, second.Session, second.Index)
	}
	if third := p.list[2]; len(third) < 3 || fmt.Sprint(third[1], third[2]) != "{gap 1 [[5 6]]} {gap 9 [[7 7]]}" {
		t.Errorf("%v", third[1:3])
	}
}
