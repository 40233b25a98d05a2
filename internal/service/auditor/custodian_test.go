package auditor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// custody is an auditor with a custodian that takes one step when it is told to,
// each time as one that has just started and remembers nothing.
type custody struct {
	*testing.T
	n   *servicetest.NATS
	dsn string
	f   Flags
}

func newCustody(t *testing.T) *custody {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	f := flags(n, dsn, 100)
	c := &custody{t, n, dsn, f}
	c.f.CustodianUser, c.f.CustodianPassword = "custodian", "pw-custodian"
	return c
}

// audited brings the evidence to the end of the log, and erases nothing.
func (c *custody) audited() {
	c.Helper()
	f := c.f
	f.CustodianUser = ""
	audited(c.T, c.n, f)
}

// step does what the bucket asks for now.
func (c *custody) step(do func(context.Context, *custodian)) {
	c.Helper()
	a := standing(c, c.f)
	k, err := a.custodianRunner().connect(c.Context())
	servicetest.OK(c, err)
	defer k.nc.Close()
	do(c.Context(), k)
}

func (c *custody) look() {
	c.Helper()
	c.step(func(ctx context.Context, k *custodian) { servicetest.OK(c, k.pollBucket(ctx)) })
}

func (c *custody) bucket() jetstream.KeyValue {
	c.Helper()
	kv, err := c.n.JS("operator").KeyValue(c.Context(), streams.BucketRetention)
	servicetest.OK(c, err)
	return kv
}

func (c *custody) state() (s retention.State) {
	c.Helper()
	e, err := streams.KVLast(c.Context(), c.n.JS("operator"), streams.BucketRetention, retention.StateKey("acme"))
	servicetest.OK(c, err)
	if e != nil {
		s, err = retention.Decode(e.Value)
		servicetest.OK(c, err)
	}
	return s
}

// change is what an operator does.
func (c *custody) change(f func(retention.State) (retention.State, error)) {
	c.Helper()
	s, err := f(c.state())
	servicetest.OK(c, err)
	s.V = 1
	text, err := s.Encode()
	servicetest.OK(c, err)
	_, err = c.bucket().Put(c.Context(), retention.StateKey("acme"), text)
	servicetest.OK(c, err)
}

func asked(id string) retention.Note {
	return retention.Note{ID: id, By: "dana", Reason: "request 17", At: events.At(time.Now())}
}

// consumed says that the correlator has come to a sequence.
func (c *custody) consumed(seq uint64) {
	c.Helper()
	body, err := events.Encode(events.Cursor{Shard: "GOV", Consumed: seq, Writer: "test"})
	servicetest.OK(c, err)
	c.n.Publish("correlator", streams.Msg{Subject: "gov.control.GOV.cursor", Body: body})
}

// of lists the sequences of a session that the log still has.
func (c *custody) of(session string) (seqs []uint64) {
	c.Helper()
	js := c.n.JS("auditor")
	for next := uint64(1); ; {
		m, err := streams.NextBySubject(c.Context(), js, "GOV", "gov.events.acme.*.*."+session+".>", next)
		servicetest.OK(c, err)
		if m == nil {
			return seqs
		}
		seqs, next = append(seqs, m.Seq), m.Seq+1
	}
}

func (c *custody) status(id string) retention.Status {
	c.Helper()
	o, _ := c.state().FindOrder(id)
	return o.Status
}

// last is the newest record of a kind.
func last[T any](c *custody, kind string) (seq uint64, r T) {
	c.Helper()
	m, err := streams.LastBySubject(c.Context(), c.n.JS("auditor"), "GOV", "gov.control.GOV."+kind)
	servicetest.OK(c, err)
	if m == nil {
		return 0, r
	}
	r, err = events.DecodeRecord[T](m.Body)
	servicetest.OK(c, err)
	return m.Seq, r
}

// Nothing goes before its record is evidence and the correlator is behind it; then
// all of the session goes, and nothing else; and a custodian that dies anywhere is
// followed by one that ends what it began.
func TestErasureInOrder(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	c.n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse", Body: []byte("{hush")}, garbage("{other"))
	c.audited()
	before, others := c.of("s1"), c.of("s2")
	c.change(func(s retention.State) (retention.State, error) {
		return s.RequestErasure(retention.Order{Scope: retention.Scope{Session: "s1"}, Note: asked("o1")})
	})
	all := func(when string, want retention.Status) {
		t.Helper()
		if got := c.of("s1"); !slices.Equal(got, before) || c.status("o1") != want {
			t.Fatalf("%s: %d of %d messages, %s", when, len(got), len(before), c.status("o1"))
		}
	}
	all("ordered", retention.Ordered)
	c.look()
	c.look()
	all("begun", retention.Begun)
	seq, e := last[events.Erasure](c, events.ControlErasure)
	if e.State != events.ErasureBegun || e.Messages != uint64(len(before)) || !e.Covers(before[0]) || e.Covers(others[0]) || e.OrderedBy != "dana" {
		t.Fatalf("%+v", e)
	}
	c.consumed(seq) // the correlator is behind it, the evidence not
	c.look()
	all("not in evidence", retention.Begun)
	c.audited()
	c.consumed(seq - 1)
	c.look()
	all("not correlated", retention.Begun)
	c.consumed(seq)
	var again []byte
	c.step(func(ctx context.Context, k *custodian) { // dies between the deed and the word
		servicetest.OK(t, k.log.Load(ctx))
		begun, _ := k.erasure.erasureRecords("o1")
		if _, held := k.erasure.keys.Cached(events.SessionID{Tenant: "acme", Session: "s1"}); held {
			t.Error("a key is held that nobody asked for")
		}
		key, err := sessionKey(ctx, k)
		servicetest.OK(t, err)
		r, err := k.erasure.destroyData(ctx, ev(k), begun)
		servicetest.OK(t, err)
		if r.Keys != 1 || r.Quarantined != 1 {
			t.Errorf("%+v", r)
		}
		again, err = sessionKey(ctx, k)
		servicetest.OK(t, err)
		if slices.Equal(key, again) {
			t.Error("the auditor still has the key that was destroyed")
		}
	})
	c.look()
	if got := c.of("s1"); len(got) != 0 || c.status("o1") != retention.Done {
		t.Errorf("%v, %s", got, c.status("o1"))
	}
	c.step(func(ctx context.Context, k *custodian) {
		if key, err := sessionKey(ctx, k); err != nil || !slices.Equal(key, again) {
			t.Errorf("the key of the session that goes on was destroyed when the erasure was tried again (%v)", err)
		}
	})
	if got := c.of("s2"); !slices.Equal(got, others) {
		t.Errorf("%d messages of another session, there were %d", len(got), len(others))
	}
	if _, e := last[events.Erasure](c, events.ControlErasure); e.State != events.ErasureDone {
		t.Errorf("%+v", e)
	}
	if m := c.n.LastPublished(streams.StreamQuarantine); m == nil || !strings.Contains(string(m.Body), "other") {
		t.Error("quarantine lost what nobody erased")
	}
	seq, _ = last[events.Erasure](c, events.ControlErasure)
	c.look()
	if again, _ := last[events.Erasure](c, events.ControlErasure); again != seq {
		t.Error("it is erased again")
	}
	if got := c.noted(); got != "order begin finish" {
		t.Errorf("noted on the log: %s", got)
	}
	c.n.CheckLinked(events.ControlErasure)
	database(t) // is lost: evidence of what was erased cannot be made again, but the log is whole
	c.f.CustodianUser = ""
	if err := start(t, c.f).Wait(); !errors.Is(err, ErrErased) || errors.Is(err, daemon.ErrUntrustedLog) {
		t.Errorf("without the evidence of what was erased: %v", err)
	}
}

// While the evidence lacks messages of the log, a session of which they may be is not idle and no hold can be judged: no
// order begins, and no policy is applied.
func TestNothingIsDecidedByOldEvidence(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.n.Publish(servicetest.Runtime, session(t, "s2")...)
	c.audited()
	c.f.RetentionAhead = 11 * 24 * time.Hour
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 10d\nevidence: 20d\n"))
	servicetest.OK(t, err)
	c.change(func(s retention.State) (retention.State, error) {
		return s.RequestErasure(retention.Order{Scope: retention.Scope{Session: "s1"}, Note: asked("o1")})
	})
	decided := func(k *custodian) string {
		servicetest.OK(t, k.pollBucket(t.Context()))
		return fmt.Sprintf("%s of %d", c.status("o1"), len(c.state().Orders))
	}
	c.step(func(_ context.Context, k *custodian) {
		if got := decided(k); got != "ordered of 1" {
			t.Errorf("with old evidence: %s", got)
		}
		if k.mark.taken.IsZero() || !k.policies.isDue(false) {
			t.Errorf("%+v: it does not wait", k.mark)
		}
		old := time.Now().Add(-markLasts)
		k.mark = evidenceMark{seq: 1, at: k.mark.at, taken: old} // reached, and too old
		if got := decided(k); got != "ordered of 1" || !k.mark.taken.After(old) {
			t.Errorf("by an old mark: %s, %+v", got, k.mark)
		}
		k.behind = k.behind.Add(-behindAtMost)
		if err := k.pollBucket(t.Context()); err == nil || !strings.Contains(err.Error(), "behind the log") {
			t.Errorf("nobody is told that nothing is decided: %v", err)
		}
	})
	c.audited()
	c.step(func(_ context.Context, k *custodian) {
		st, err := streams.StreamState(t.Context(), c.n.JS("auditor"), "GOV")
		servicetest.OK(t, err)
		if since := time.Since(st.At); since < -time.Minute || since > time.Minute {
			t.Fatalf("the broker's clock says %v", st.At)
		}
		// Two days ago by the broker's clock nothing was due.
		k.mark = evidenceMark{seq: st.LastSeq, at: st.At.Add(-48 * time.Hour), taken: time.Now()}
		k.behind = time.Now().Add(-behindAtMost)
		if got := decided(k); got != "begun of 1" {
			t.Errorf("by another clock than the broker's: %s", got)
		}
	})
	c.audited()
	c.step(func(_ context.Context, k *custodian) {
		if got := decided(k); got != "begun of 2" {
			t.Errorf("with all evidence: %s", got)
		}
	})
}

// A policy that cannot be applied is applied again after a minute, not at the next hour, and less often if that goes on:
// what becomes due of other tenants meanwhile goes into few erasures.
func TestPoliciesAreAppliedAgain(t *testing.T) {
	c := newCustody(t)
	const faulty, good = "version: 1\nname: [\n", "version: 1\nname: p\nlog: 10d\n"
	c.step(func(ctx context.Context, k *custodian) {
		for i, want := range []struct {
			text  string
			after time.Duration
		}{{faulty, applyAgain}, {faulty, 2 * applyAgain}, {faulty, 4 * applyAgain}, {good, expireEvery}, {faulty, applyAgain}} {
			_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte(want.text))
			servicetest.OK(t, err)
			k.policies.applySoon()
			err = k.policies.applyDue(ctx, time.Now(), true)
			if after := time.Until(k.policies.next); after > want.after || after < want.after-applyAgain/2 || (err != nil) != (want.text == faulty) {
				t.Errorf("%d: again in %v (%v), want %v", i, after, err, want.after)
			}
		}
	})
}

// A database that is older than an erasure is filled up, though the message of its last record was erased since; a
// message that no erasure names is lost.
func TestADatabaseThatIsOlderThanAnErasure(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s2")...)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.audited()
	position := c.of("s1")[len(c.of("s1"))-1]
	c.change(func(s retention.State) (retention.State, error) {
		return s.RequestErasure(retention.Order{Scope: retention.Scope{Session: "s1"}, Note: asked("o1")})
	})
	c.look()
	c.look()
	c.audited()
	seq, _ := last[events.Erasure](c, events.ControlErasure)
	c.consumed(seq)
	c.look()
	if got := c.of("s1"); len(got) != 0 || c.status("o1") != retention.Done {
		t.Fatalf("%v, %s", got, c.status("o1"))
	}
	restoreBackup(t, standing(t, c.f), ownerOf(t, c.dsn), int64(position))
	log, err := streams.StreamState(t.Context(), c.n.JS("auditor"), "GOV")
	servicetest.OK(t, err)
	a := standing(t, c.f)
	if got := uint64(a.tree.Size()); got != position {
		t.Fatalf("it stands at %d, want %d", got, position)
	}
	if err := a.explainMissing(t.Context(), 1); !errors.Is(err, ErrDiffers) {
		t.Errorf("a message that no erasure names: %v", err)
	}
	c.n.Publish(servicetest.Runtime, session(t, "s2")...)
	c.audited()
	if filled, _, err := a.db.Position(t.Context(), a.shard); err != nil || filled <= log.LastSeq {
		t.Errorf("it was filled up to %d of %d (%v)", filled, log.LastSeq, err)
	}
}

// noted is what the log says of the changes of the bucket.
func (c *custody) noted() string {
	c.Helper()
	var list []string
	for next := uint64(1); ; {
		m, err := streams.NextBySubject(c.Context(), c.n.JS("auditor"), "GOV", "gov.control.GOV."+events.ControlRetention, next)
		servicetest.OK(c, err)
		if m == nil {
			return strings.Join(list, " ")
		}
		r, err := events.DecodeRecord[events.RetentionChange](m.Body)
		servicetest.OK(c, err)
		list, next = append(list, r.What), m.Seq+1
	}
}

// An order for a data subject covers what was looked at when it began, and nothing that names the
// person later. Afterwards no revision of the bucket names the person, also if the custodian that
// carried it out has died, and the log has every change, also those made beside it.
func TestErasureOfASubject(t *testing.T) {
	c := newCustody(t)
	named := func(session string) {
		c.n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook." + session + ".PreToolUse", Body: []byte(`{"agent":"dora"}`)})
	}
	named("s1")
	c.n.Publish(servicetest.Runtime, session(t, "s2")...)
	c.audited()
	for id, scope := range map[string]retention.Scope{"o1": {Subject: "dora"}, "o2": {Session: "s2"}} {
		c.change(func(s retention.State) (retention.State, error) {
			return s.RequestErasure(retention.Order{Scope: scope, Note: asked(id)})
		})
	}
	c.look() // both begin
	named("s3")
	c.audited()
	c.look() // both are on the log
	c.audited()
	seq, _ := last[events.Erasure](c, events.ControlErasure)
	c.consumed(seq)
	c.step(func(ctx context.Context, k *custodian) {
		servicetest.OK(c, k.pollBucket(ctx)) // and dies
	})
	for id := range map[string]bool{"o1": true, "o2": true} {
		if c.status(id) != retention.Done {
			t.Errorf("%s is %s", id, c.status(id))
		}
	}
	if a, b := c.of("s1"), c.of("s3"); len(a) != 0 || len(b) != 1 {
		t.Errorf("s1 has %d messages, s3, which was not looked at, %d", len(a), len(b))
	}
	c.look()
	if got := c.noted(); got != "order order begin begin finish finish" {
		t.Errorf("noted on the log: %s", got)
	}
	for m, err := range streams.EachBySubject(t.Context(), c.n.JS("operator"), retentionStream, ">", 1) {
		servicetest.OK(t, err)
		if strings.Contains(string(m.Body), "dora") {
			t.Errorf("revision %d still names the person: %s", m.Seq, m.Body)
		}
	}
}

// Why an order was refused names no data subject: neither that of a hold nor its own. It stands on the
// log, in the evidence and in the bucket, which its person's erasure does not reach.
func TestRefusedOrdersNameNoSubject(t *testing.T) {
	c := newCustody(t)
	order := func(id string, scope retention.Scope) {
		c.change(func(s retention.State) (retention.State, error) {
			return s.RequestErasure(retention.Order{Scope: scope, Note: asked(id)})
		})
	}
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.audited()
	order("o1", retention.Scope{Subject: "dora"}) // of which there is no record yet
	c.look()
	c.n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse", Body: []byte(`{"agent":"dora"}`)})
	c.audited()
	order("o2", retention.Scope{Session: "s1"})
	c.change(func(s retention.State) (retention.State, error) {
		return s.PlaceHold(retention.Hold{Scope: retention.Scope{Subject: "dora"}, Note: asked("h1")})
	})
	c.look()
	for id, why := range map[string]string{"o1": "no record of it", "o2": "legal hold h1"} {
		o, _ := c.state().FindOrder(id)
		if o.Status != retention.Refused || !strings.Contains(o.Problem, why) || strings.Contains(o.Problem, "dora") {
			t.Errorf("%s is %s: %s", id, o.Status, o.Problem)
		}
	}
	c.look()
	noted := 0
	for m, err := range streams.EachBySubject(t.Context(), c.n.JS("auditor"), "GOV", "gov.control.GOV.retention", 1) {
		servicetest.OK(t, err)
		if noted++; strings.Contains(string(m.Body), "dora") {
			t.Errorf("on the log: %s", m.Body)
		}
	}
	if noted < 5 {
		t.Errorf("%d changes noted: %s", noted, c.noted())
	}
}

// A workflow that was stored before the erasure of its session began goes with all of its revisions, though the clock
// of the admitter is ahead, an earlier try died between them, and an admitter adds one meanwhile; one of afterwards stays.
func TestApprovalsOfBeforeAnErasure(t *testing.T) {
	c := newCustody(t)
	kv, err := c.n.JS("admitter").KeyValue(t.Context(), streams.BucketApprovals)
	servicetest.OK(t, err)
	puts := func(id string) {
		t.Helper()
		text, err := json.Marshal(map[string]any{"workflow_id": id, "tenant": "acme", "session": "s1", "requested_at": events.At(time.Now().Add(time.Hour))})
		servicetest.OK(t, err)
		_, err = kv.Put(t.Context(), "acme."+id, text)
		servicetest.OK(t, err)
	}
	puts("wf-before")
	puts("wf-other")
	began := time.Now()
	puts("wf-before")
	puts("wf-after")
	c.step(func(ctx context.Context, k *custodian) {
		before := map[string]bool{}
		revisions, err := k.erasure.approvalRevisions(ctx, "acme", []string{"s1"}, began, before)
		if err != nil || !slices.Equal(revisions, []uint64{3, 2, 1}) {
			t.Fatalf("revisions %v, %v", revisions, err)
		}
		_, err = k.erasure.messages.eraseMessage(ctx, approvalStream, revisions[0]) // and dies
		servicetest.OK(t, err)
		if n, err := k.erasure.eraseApprovals(ctx, "acme", []string{"s1"}, began); n != 2 || err != nil {
			t.Errorf("%d revisions, %v", n, err)
		}
		puts("wf-before") // between the list and the delete
		if revisions, err = k.erasure.approvalRevisions(ctx, "acme", []string{"s1"}, began, before); err != nil || !slices.Equal(revisions, []uint64{5}) {
			t.Fatalf("revisions %v, %v", revisions, err)
		}
		_, err = k.erasure.messages.eraseMessage(ctx, approvalStream, revisions[0])
		servicetest.OK(t, err)
	})
	var left []string
	for m, err := range streams.EachBySubject(t.Context(), c.n.JS("operator"), "KV_"+streams.BucketApprovals, ">", 1) {
		servicetest.OK(t, err)
		left = append(left, m.Subject)
	}
	if !slices.Equal(left, []string{"$KV." + streams.BucketApprovals + ".acme.wf-after"}) {
		t.Errorf("the bucket has %v", left)
	}
}

// The plan counts the calls of the session that are still open: the correlator forgets them.
func TestPlanCountsOpenCalls(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	for _, call := range []events.Call{{CallID: "c1", State: events.CallOpen}, {CallID: "c2", State: events.CallOpen}, {CallID: "c2", State: events.CallCompleted}, {CallID: "c3", State: events.CallAbandoned}} {
		call.Tenant, call.Session, call.Source = "acme", "s1", "rt1"
		body, err := events.Encode(call)
		servicetest.OK(t, err)
		c.n.Publish("correlator", streams.Msg{Subject: fmt.Sprintf("gov.calls.acme.%s.s1", call.State), Body: body})
	}
	c.audited()
	c.step(func(ctx context.Context, k *custodian) {
		p, err := ev(k).NewPlan(ctx, retention.Order{Scope: retention.Scope{Session: "s1"}})
		if err != nil || p.OpenCalls() != 1 || p.Kinds["call"] != 4 {
			t.Errorf("%d open calls of %v, %v", p.OpenCalls(), p.Kinds, err)
		}
	})
}

func ev(k *custodian) erasureplan.Evidence {
	return erasureplan.Evidence{DB: k.db, Shard: k.shard, Tenant: "acme"}
}

func sessionKey(ctx context.Context, k *custodian) ([]byte, error) {
	k.erasure.keys.setContext(ctx)
	return k.erasure.keys.SessionSecret("acme", "s1")
}

// After a full order of a policy the next follows at once, not at the next hour.
func TestFullOrders(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")[0])
	now := events.At(time.Now())
	for _, tt := range []struct {
		expire   string
		sessions int
		more     bool
	}{{"", retention.MaxBatch, true}, {"", retention.MaxBatch - 1, false}, {"p@1", retention.MaxBatch, true}, {"p@1", retention.MaxBatch - 1, false}} {
		sessions := make([]string, tt.sessions)
		for i := range sessions {
			sessions[i] = fmt.Sprint("s", i)
		}
		id := fmt.Sprintf("o-%s-%d", tt.expire, tt.sessions)
		c.change(func(s retention.State) (retention.State, error) {
			s, err := s.RequestErasure(retention.Order{Note: asked(id), Sessions: sessions, Expire: tt.expire})
			servicetest.OK(t, err)
			return s.BeginOrder(id, retention.Planned{}, time.Now())
		})
		c.step(func(ctx context.Context, k *custodian) { // an earlier auditor has carried it out, and died
			var msgs []streams.Msg
			for _, state := range []string{events.ErasureBegun, events.ErasureDone} {
				m, err := k.erasure.signedErasure(events.Erasure{ErasureID: id, Shard: k.shard, State: state, Part: 1, Parts: 1, Tenant: "acme", Sessions: sessions, Cause: "ttl",
					Sequences: []events.Span{{1, 1}}, Messages: 1, Reason: "r", OrderedBy: "p", OrderedAt: now, At: now, Writer: "w"})
				if tt.expire != "" {
					m, err = k.expiry.signedExpiry(events.Expiry{ExpiryID: id, Shard: k.shard, State: state, Part: 1, Parts: 1, Tenant: "acme", Policy: tt.expire,
						Sessions: []events.ExpiredSession{{Session: "s1", Index: 1, Sequences: []events.Span{{1, 1}}}}, Records: 1, At: now, Writer: "w"})
				}
				servicetest.OK(t, err)
				msgs = append(msgs, m)
			}
			servicetest.OK(t, streams.StoreAll(ctx, k.nc, msgs))
			servicetest.OK(t, k.advanceTenant(ctx, "acme", retention.StateKey("acme"), time.Time{}))
			if c.status(id) != retention.Done || k.policies.moreDue["acme"] != tt.more {
				t.Errorf("%s: %s, and more may be due: %v", id, c.status(id), k.policies.moreDue)
			}
		})
	}
}

// An order waits while the evidence is behind the log. If its policy is replaced meanwhile, or removed, nothing is erased.
func TestAnOrderOfAnEarlierPolicy(t *testing.T) {
	const day = 24 * time.Hour
	for name, replace := range map[string]func(*custody) error{
		"by one that keeps the session": func(c *custody) error {
			_, err := c.bucket().Put(c.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 10d\nsessions: [{match: s1, keep: true}]\n"))
			return err
		},
		"by none": func(c *custody) error { return c.bucket().Delete(c.Context(), retention.PolicyKey("acme")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCustody(t)
			c.n.Publish(servicetest.Runtime, session(t, "s1")...)
			c.f.RetentionAhead = 11 * day
			_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 10d\n"))
			servicetest.OK(t, err)
			c.audited()
			c.step(func(ctx context.Context, k *custodian) {
				servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(11*day), everyTenant))
			})
			if o := c.state().Orders; len(o) != 1 || o[0].Status != retention.Ordered {
				t.Fatalf("%+v", o)
			}
			servicetest.OK(t, replace(c))
			c.audited()
			c.look()
			if o := c.state().Orders[0]; o.Status != retention.Refused || !strings.Contains(o.Problem, "policy has changed") {
				t.Errorf("the order is %s: %s", o.Status, o.Problem)
			}
		})
	}
}

// What both an order's policy and the one that replaced it let go is ordered again at once, not at the next hour.
func TestAPolicyThatReplacesAnotherIsAppliedAtOnce(t *testing.T) {
	const day = 24 * time.Hour
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.f.RetentionAhead = 11 * day
	put := func(text string) {
		_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte(text))
		servicetest.OK(t, err)
		c.audited()
	}
	put("version: 1\nname: p\nlog: 10d\n")
	c.step(func(ctx context.Context, k *custodian) {
		servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(11*day), everyTenant))
		put("version: 1\nname: p\nlog: 10d\n# a comment\n")
		for range 4 {
			servicetest.OK(t, k.pollBucket(ctx))
			c.audited()
		}
	})
	var got []retention.Status
	for _, o := range c.state().Orders {
		got = append(got, o.Status)
	}
	if len(got) != 2 || got[0] != retention.Refused || got[1] == retention.Refused {
		t.Errorf("the orders are %v", got)
	}
}

// everyTenant is for applyPolicies when all policies are due.
func everyTenant(string) bool { return true }

// A policy's order that is refused is not requested again at once, though more is due, also of another tenant; and that
// one's policy is applied at once.
func TestARefusedOrderWaits(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	other := session(t, "s1")[0]
	other.Subject = strings.Replace(other.Subject, ".acme.", ".globex.", 1)
	c.n.Publish("admitter", other)
	c.audited()
	c.step(func(ctx context.Context, k *custodian) {
		for _, tenant := range []string{"acme", "globex"} {
			_, err := c.bucket().Put(ctx, retention.PolicyKey(tenant), []byte("version: 1\nname: p\nlog: 1d\nquarantine: 1d\n"))
			servicetest.OK(t, err)
			k.policies.applyMore(tenant)
		}
		p, err := k.bucket.loadPolicy(ctx, "acme")
		servicetest.OK(t, err)
		o := asked("o1")
		o.By = orderedBy(p)
		c.change(func(s retention.State) (retention.State, error) {
			return s.RequestErasure(retention.Order{Note: o, Sessions: []string{"unknown"}})
		})
		next := time.Now().Add(expireEvery / 2)
		k.policies.next = next
		servicetest.OK(t, k.advanceTenant(ctx, "acme", retention.StateKey("acme"), time.Now()))
		if o := c.state().Orders[0]; o.Status != retention.Refused || strings.Contains(o.Problem, "policy has changed") {
			t.Errorf("the order is %s: %s", o.Status, o.Problem)
		}
		var applied []string
		k.policies.ordered = func(tenant string) { applied = append(applied, tenant) }
		servicetest.OK(t, k.policies.applyDue(ctx, time.Now().Add(48*time.Hour), true))
		if !slices.Equal(applied, []string{"globex"}) || k.policies.isDue(true) {
			t.Errorf("policies are applied at once of %q, want of globex, and then none: %v", applied, k.policies.moreDue)
		}
		if !k.policies.next.Equal(next) {
			t.Errorf("all policies are put off until %v", k.policies.next)
		}
		k.policies.applySoon()
		servicetest.OK(t, k.policies.applyDue(ctx, time.Now().Add(48*time.Hour), true))
		if !slices.Contains(applied, "acme") {
			t.Error("at the next hour acme's policy is not applied")
		}
	})
}

// An erasure takes what was checked against holds and idleness when it began, and nothing that came later.
func TestErasureOfWhatWasPlanned(t *testing.T) {
	c := newCustody(t)
	c.n.Publish(servicetest.Runtime, session(t, "s1")...)
	c.audited()
	planned := c.of("s1")
	c.change(func(s retention.State) (retention.State, error) {
		return s.RequestErasure(retention.Order{Scope: retention.Scope{Session: "s1"}, Note: asked("o1")})
	})
	c.step(func(ctx context.Context, k *custodian) {
		servicetest.OK(t, k.pollBucket(ctx)) // marks the end of the log, and begins
		if c.status("o1") != retention.Begun {
			t.Fatalf("the order is %s", c.status("o1"))
		}
		c.n.Publish(servicetest.Runtime, session(t, "s1")[0])
		c.audited()
		servicetest.OK(t, k.pollBucket(ctx))
	})
	if _, e := last[events.Erasure](c, events.ControlErasure); e.Messages != uint64(len(planned)) || !e.Covers(planned[0]) {
		t.Errorf("%d messages planned, recorded %+v", len(planned), e)
	}
}

// What a policy lets go goes together, but for what is held.
func TestRetentionPolicy(t *testing.T) {
	c := newCustody(t)
	for _, s := range []string{"s1", "s2", "s3", "demo-1"} {
		c.n.Publish(servicetest.Runtime, session(t, s)[:2]...)
	}
	c.n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse", Body: []byte("{one")},
		streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s2.PreToolUse", Body: []byte("{two")})
	c.audited()
	_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 10d\nquarantine: 20d\nsessions: [{match: 'demo-*', log: 1d}, {match: s3, keep: true}]\n"))
	servicetest.OK(t, err)
	c.change(func(s retention.State) (retention.State, error) {
		return s.PlaceHold(retention.Hold{Scope: retention.Scope{Session: "s2"}, Note: asked("h1")})
	})
	expire := func(after time.Duration) {
		t.Helper()
		c.step(func(ctx context.Context, k *custodian) {
			servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(after), everyTenant))
		})
	}
	day := 24 * time.Hour
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{{time.Hour, ""}, {2 * day, "demo-1"}, {11 * day, "demo-1 s1"}} {
		expire(tt.after)
		got := ""
		for _, o := range c.state().Orders {
			if o.Status == retention.Ordered {
				got = strings.Join(o.Sessions, " ")
				c.change(func(s retention.State) (retention.State, error) {
					return s.RefuseOrder(o.ID, "the test has seen it", time.Now())
				})
			}
		}
		if got != tt.want {
			t.Errorf("after %v: %q, want %q", tt.after, got, tt.want)
		}
	}
	quarantined := func() (list []string) {
		for next := uint64(1); ; {
			m, err := streams.NextBySubject(t.Context(), c.n.JS("auditor"), streams.StreamQuarantine, ">", next)
			if err != nil || m == nil {
				return list
			}
			list, next = append(list, string(m.Body)), m.Seq+1
		}
	}
	if got := quarantined(); len(got) != 2 {
		t.Errorf("%q", got)
	}
	expire(21 * day)
	if got := quarantined(); !slices.Equal(got, []string{"{two"}) {
		t.Errorf("in quarantine after its time: %q; what is held stays", got)
	}
	expire(22 * day)
	var noted []string
	for _, r := range ofKind(c.n, "gov.control.GOV.retention") {
		if strings.Contains(r, `"what":"quarantine"`) {
			noted = append(noted, r)
		}
	}
	if len(noted) != 1 || !strings.Contains(noted[0], `"quarantined":[[1,1]]`) || !strings.Contains(noted[0], `"id":"p@`) || !strings.Contains(noted[0], `"tenant":"acme"`) {
		t.Errorf("on the log: %q", noted)
	}
}
