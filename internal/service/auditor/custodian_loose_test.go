package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// Messages without a session are found by sequence, by the session that their header
// names, by a data subject in bytes that the evidence does not have, and by age; holds
// reach them; and an erasure takes them off the log and out of quarantine.
func TestMessagesWithoutSession(t *testing.T) {
	c := newCustody(t)
	at := map[string]uint64{}
	put := func(name, subject, header, body string) {
		m := streams.Msg{Subject: subject, Body: []byte(body)}
		if header != "" {
			m.Header = map[string][]string{events.HeaderSession: {header}}
		}
		c.n.Publish(servicetest.Runtime, m)
		st, err := streams.StreamState(t.Context(), c.n.JS("auditor"), "GOV")
		servicetest.OK(t, err)
		at[name] = st.LastSeq
	}
	const loose = "gov.events.acme.rt1.agenthook.~.PreToolUse"
	put("s1", "gov.events.acme.rt1.agenthook.s1.PreToolUse", "", `{"a":1}`)
	put("headed", loose, "s1", `{"broken": "one`)
	put("other", loose, "s2", `{"broken": "two`)
	put("dora", loose, "", `{"user": "dora", "broken`)
	put("adora", loose, "", `{"user": "adora", "broken`)
	put("plain", loose, "", `{"a":2}`)
	put("foreign", "gov.events.acme.rt1.x", "", `{"a":3}`)
	put("s3", "gov.events.acme.rt1.agenthook.s3.PreToolUse", "", `{"user": "dora", "broken`)
	c.audited()
	names := func(seqs []uint64) (list []string) {
		for name, seq := range at {
			if slices.Contains(seqs, seq) {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	later := events.At(time.Now().Add(time.Hour))
	c.step(func(ctx context.Context, k *custodian) {
		reads := map[uint64]int{}
		e := k.evidenceFor("acme")
		e.Read = func(_ context.Context, seq uint64) (*events.LogMessage, error) {
			reads[seq]++
			return c.n.At("GOV", seq), nil
		}
		p, err := e.NewPlan(ctx, retention.Order{Sessions: []string{"s1", "s2", "s3"}})
		if got := fmt.Sprint(names(p.Seqs)); err != nil || got != "[headed other s1 s3]" || reads[at["headed"]] != 1 {
			t.Errorf("three sessions at once: %s, reading %v (%v)", got, reads, err)
		}
		for _, tt := range []struct {
			order retention.Order
			holds []retention.Scope
			want  string
		}{
			{order: retention.Order{Scope: retention.Scope{Session: "s1"}}, want: "[headed s1]"},
			{order: retention.Order{Scope: retention.Scope{Subject: "dora"}}, want: "[dora s3]"},
			{order: retention.Order{Scope: retention.Scope{Seqs: fmt.Sprintf("%d-%d,%d", at["headed"], at["other"], at["foreign"])}}, want: "[foreign headed other]"},
			{order: retention.Order{SessionlessBefore: later}, want: "[adora dora foreign headed other plain]"},
			{order: retention.Order{SessionlessBefore: later}, holds: []retention.Scope{{Session: "s1"}, {Subject: "dora"}}, want: "[adora foreign other plain]"},
			{order: retention.Order{SessionlessBefore: later}, holds: []retention.Scope{{}}, want: "[]"},
			{order: retention.Order{Sessions: []string{"s1", "s2"}}, holds: []retention.Scope{{Session: "s1"}}, want: "[other s1]"}, // sessions are judged before
		} {
			e := k.evidenceFor("acme")
			for _, s := range tt.holds {
				e.Holds = append(e.Holds, retention.Hold{Scope: s})
			}
			p, err := e.NewPlan(ctx, tt.order)
			if err != nil && !errors.Is(err, erasureplan.ErrNothing) {
				t.Fatal(err)
			}
			if got := fmt.Sprint(names(p.Seqs)); got != tt.want {
				t.Errorf("%+v with %v: %s, want %s", tt.order, tt.holds, got, tt.want)
			}
		}
		for _, seqs := range []string{"1", fmt.Sprint(at["s1"]), "99999"} {
			if seqs == "1" && at["s1"] == 1 {
				continue
			}
			if _, err := k.evidenceFor("acme").NewPlan(ctx, retention.Order{Scope: retention.Scope{Seqs: seqs}}); !errors.Is(err, erasureplan.ErrHasSession) {
				t.Errorf("sequence %s: %v", seqs, err)
			}
		}
		if _, err := k.evidenceFor("umbrella").NewPlan(ctx, retention.Order{Scope: retention.Scope{Seqs: fmt.Sprint(at["plain"])}}); !errors.Is(err, erasureplan.ErrHasSession) {
			t.Errorf("another tenant's: %v", err)
		}
	})

	// A policy orders it, but for what is held; then it is carried out.
	_, err := c.bucket().Put(t.Context(), retention.PolicyKey("acme"), []byte("version: 1\nname: p\nlog: 10d\nsessions: [{match: 's*', keep: true}]\n"))
	servicetest.OK(t, err)
	c.change(func(s retention.State) (retention.State, error) {
		return s.PlaceHold(retention.Hold{Scope: retention.Scope{Session: "s2"}, Note: asked("h1")})
	})
	c.step(func(ctx context.Context, k *custodian) {
		servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(9*24*time.Hour), everyTenant))
		if len(c.state().Orders) > 0 {
			t.Fatal("ordered before its time")
		}
		servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(11*24*time.Hour), everyTenant))
	})
	orders := c.state().Orders
	if len(orders) != 1 || len(orders[0].Sessions) > 0 || orders[0].SessionlessBefore.IsZero() {
		t.Fatalf("%+v", orders)
	}
	c.change(func(s retention.State) (retention.State, error) { s.Orders[0].IdleSeconds = 0; return s, nil })
	c.look() // begins
	c.look() // announces
	c.audited()
	seq, e := last[events.Erasure](c, events.ControlErasure)
	if e.Cause != "ttl" || seq == 0 {
		t.Fatalf("%+v", e)
	}
	c.consumed(seq)
	c.look()
	if s := c.status(orders[0].ID); s != retention.Done {
		t.Fatalf("the order is %s", s)
	}
	for name, seq := range at {
		m, err := streams.MessageAt(t.Context(), c.n.JS("auditor"), "GOV", seq)
		servicetest.OK(t, err)
		if kept := name == "other" || name[0] == 's'; (m != nil) != kept {
			t.Errorf("%s is on the log: %v", name, m != nil)
		}
	}
	var left []string
	for next := uint64(1); ; {
		m, err := streams.NextBySubject(t.Context(), c.n.JS("auditor"), streams.StreamQuarantine, ">", next)
		servicetest.OK(t, err)
		if m == nil {
			break
		}
		left, next = append(left, string(m.Body)), m.Seq+1
	}
	if len(left) != 2 || left[0] != `{"broken": "two` {
		t.Errorf("in quarantine: %q", left)
	}
}

// The decision of a request without a session goes with it, unless a hold covers the decision: then a policy's erasure
// leaves it out and takes the request.
func TestHeldDecisionOfARequestWithoutSession(t *testing.T) {
	c := newCustody(t)
	c.step(func(ctx context.Context, k *custodian) {
		e := k.evidenceFor("acme")
		e.Shard = "GOV@decided"
		e.Read = func(_ context.Context, seq uint64) (*events.LogMessage, error) {
			return &events.LogMessage{Seq: seq, Subject: "gov.events.acme.rt1.agenthook.~.request", Body: []byte(`{"decision_id":"d1"}`), Time: time.Unix(int64(seq), 0), Header: map[string][]string{events.HeaderSession: {"s1"}, events.HeaderDecisionID: {"d1"}}}, nil
		}
		row := func(seq uint64, kind string, rec evidence.Record) storage.EvidenceRow {
			rec.V, rec.BrokerTime = evidence.Version, events.At(time.Unix(int64(seq), 0))
			text, err := rec.Canonical()
			servicetest.OK(t, err)
			return storage.EvidenceRow{Shard: e.Shard, Tenant: "acme", Seq: seq, Subject: "gov.events.acme.rt1.agenthook.~.request", Kind: kind, BrokerTime: rec.BrokerTime.Time,
				Record: string(text), RecordHash: [32]byte{1}}
		}
		servicetest.OK(t, k.writer.CommitEvidence(ctx, []storage.EvidenceRow{
			row(1, evidence.KindRequest, evidence.Record{Body: []byte("{}"), Headers: map[string][]string{events.HeaderSession: {"s1"}}}),
			row(2, evidence.KindDecision, evidence.Record{Body: []byte(`{"decision_id":"d1","agent":"dora"}`)}),
		}))
		for _, tt := range []struct {
			holds []retention.Hold
			want  []uint64
		}{{nil, []uint64{1, 2}}, {[]retention.Hold{{Scope: retention.Scope{Subject: "dora"}}}, []uint64{1}}} {
			e.Holds = tt.holds
			if p, err := e.NewPlan(ctx, retention.Order{Sessions: []string{"s1"}}); !slices.Equal(p.Seqs, tt.want) || err != nil {
				t.Errorf("with %d holds %v goes, want %v (%v)", len(tt.holds), p.Seqs, tt.want, err)
			}
		}
	})
}

// Messages without a session that are held, however many, do not keep younger ones on the log; erased ones are not
// looked at again.
func TestHeldMessagesWithoutSession(t *testing.T) {
	c := newCustody(t)
	c.step(func(ctx context.Context, k *custodian) {
		e := k.evidenceFor("acme")
		e.Shard, e.Read, e.Holds = "GOV@held", nil, []retention.Hold{{Scope: retention.Scope{Session: "s1"}}}
		const held = erasureplan.MaxSessionless
		var rows []storage.EvidenceRow
		for seq := uint64(1); seq <= held+2; seq++ {
			names := "s1"
			if seq > held {
				names = "s2"
			}
			at := time.Unix(int64(seq), 0)
			rec := evidence.Record{V: evidence.Version, Reason: "not_json", Body: []byte("null"), BrokerTime: events.At(at), Headers: map[string][]string{events.HeaderSession: {names}}}
			text, err := rec.Canonical()
			servicetest.OK(t, err)
			rows = append(rows, storage.EvidenceRow{Shard: e.Shard, Tenant: "acme", Seq: seq, Kind: evidence.KindUnparseable, BrokerTime: at,
				Record: string(text), RecordHash: [32]byte{1}})
		}
		servicetest.OK(t, k.writer.CommitEvidence(ctx, rows))
		order := retention.Order{SessionlessBefore: events.At(time.Now())}
		p, err := e.NewPlan(ctx, order)
		if !slices.Equal(p.Seqs, []uint64{held + 1, held + 2}) || err != nil {
			t.Errorf("%d messages are due (%v)", len(p.Seqs), err)
		}
		looked := 0
		e.Erased = func(seq uint64) bool { looked++; return seq <= held }
		for _, want := range []int{held + 2, 2} {
			looked = 0
			p, err = e.NewPlan(ctx, order)
			if e.SessionlessFrom = p.SessionlessFrom; looked != want || len(p.Seqs) != 2 || err != nil {
				t.Errorf("%d messages are due, looked at %d, want %d (%v)", len(p.Seqs), looked, want, err)
			}
		}
	})
}
