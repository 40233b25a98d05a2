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
		servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(9*24*time.Hour)))
		if len(c.state().Orders) > 0 {
			t.Fatal("ordered before its time")
		}
		servicetest.OK(t, k.policies.applyPolicies(ctx, time.Now().Add(11*24*time.Hour)))
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
