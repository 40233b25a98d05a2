package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/streams"
)

func TestAdmit(t *testing.T) {
	w := start(t, streams.Shard{})
	var change func(*grant)
	ok(t, w.answer(func(*nats.Msg) *nats.Msg { return w.allow(change) }))
	set := func(name, value string) func(*grant) {
		return func(g *grant) {
			g.header[name] = nil
			if value != "" {
				g.header[name] = []string{value}
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*grant)
		reason string // of a deny; empty: allowed
	}{
		"good":                             {},
		"good, arguments in another order": {change: func(g *grant) { g.args = []byte(` { "amount" : 1.0e1, "to":"dana@acme.example"}`) }},
		"no verdict":                       {set(events.HeaderVerdict, ""), client.ReasonBadReply},
		"unknown verdict":                  {set(events.HeaderVerdict, "ALLOW"), client.ReasonBadReply},
		"garbage": {func(g *grant) {
			g.body = "\x00\xff"
			set(events.HeaderVerdict, "yes")(g)
		}, client.ReasonBadReply},
		"allow in the body alone": {set(events.HeaderVerdict, ""), client.ReasonBadReply},
		"no receipt":              {set(events.HeaderReceipt, ""), client.ReasonReceiptMissing},
		"receipt that is no JWS":  {set(events.HeaderReceipt, "trust me"), client.ReasonReceiptInvalid},
		"no key":                  {set(events.HeaderKey, ""), client.ReasonReceiptInvalid},
		"key that is no record":   {set(events.HeaderKey, "{"), client.ReasonReceiptInvalid},
		"key nobody vouches for":  {func(g *grant) { g.key.Vouch = "" }, client.ReasonReceiptInvalid},
		"key another vouches for": {func(g *grant) { g.key.Vouch = strings.Replace(g.key.Vouch, g.key.KeyID, "x", 1) }, client.ReasonReceiptInvalid},
		"key of somebody else":    {forgedKey, client.ReasonReceiptInvalid},
		"signed by somebody else": {func(g *grant) { g.signer = other() }, client.ReasonReceiptInvalid},
		"other arguments":         {func(g *grant) { g.args = []byte(`{"to":"dana@acme.example","amount":1000}`) }, client.ReasonReceiptInvalid},
		"no arguments":            {func(g *grant) { g.args = nil }, client.ReasonReceiptInvalid},
		"other call":              {func(g *grant) { g.claims.ToolCallID = "c2" }, client.ReasonReceiptInvalid},
		"other tool":              {func(g *grant) { g.claims.Tool = "delete_database" }, client.ReasonReceiptInvalid},
		"other session":           {func(g *grant) { g.claims.Session = "s2" }, client.ReasonReceiptInvalid},
		"other tenant":            {func(g *grant) { g.claims.Tenant = "globex" }, client.ReasonReceiptInvalid},
		"other source":            {func(g *grant) { g.claims.Source = "rt2" }, client.ReasonReceiptInvalid},
		"expired":                 {aged(2 * time.Minute), client.ReasonReceiptInvalid},
		"from the future":         {aged(-2 * time.Minute), client.ReasonReceiptInvalid},
		"receipt of a deny":       {func(g *grant) { g.claims.Verdict = events.Deny; set(events.HeaderVerdict, "allow")(g) }, client.ReasonReceiptInvalid},
		"receipt of an ask":       {func(g *grant) { g.claims.Verdict = events.Ask; set(events.HeaderVerdict, "allow")(g) }, client.ReasonReceiptInvalid},
		"deny, reason in the reply": {func(g *grant) {
			g.claims.Verdict, g.body = events.Deny, `{"decision":"deny","reason":"no_policy_match"}`
		}, "no_policy_match"},
		"ask, reason in the record": {func(g *grant) { g.claims.Verdict, g.body = events.Ask, `{"reasons":[{"code":"external_recipient"}]}` }, "external_recipient"},
		"deny, reason in the error": {func(g *grant) {
			g.claims.Verdict, g.body = events.Deny, ``
			set("Nats-Service-Error", "overloaded")(g)
		}, "overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			change = c.change
			v := w.client(t, testTimeout).Admit(t.Context(), theCall) // a client that knows no key yet
			if v.Allowed() != (c.reason == "") || c.reason != "" && v.Reason != c.reason {
				t.Fatalf("%s, reason %q, %v", v.Decision, v.Reason, v.Err)
			}
			err := v.Permits(arguments)
			if (err == nil) != v.Allowed() || !v.Allowed() && !errors.Is(err, client.ErrNotAllowed) {
				t.Errorf("Permits: %v", err)
			}
			if (v.Err != nil) != strings.HasPrefix(v.Reason, "receipt_") && v.Reason != client.ReasonBadReply {
				t.Errorf("reason %q with error %v", v.Reason, v.Err)
			}
		})
	}
}

// forgedKey is a key record whose vouch is for another key.
func forgedKey(g *grant) {
	k := other()
	g.signer, g.key.KeyID, g.key.PublicKey = k, k.ID, signing.EncodePublic(k.Public())
}

func aged(by time.Duration) func(*grant) {
	return func(g *grant) {
		g.claims.IssuedAt = events.At(g.claims.IssuedAt.Add(-by))
		g.claims.ExpiresAt = events.At(g.claims.ExpiresAt.Add(-by))
	}
}

func TestAdmitWithoutAnAnswer(t *testing.T) {
	w := start(t, streams.Shard{})
	if v := w.client(t, testTimeout).Admit(t.Context(), theCall); v.Allowed() || v.Reason != client.ReasonNoResponders || v.Err == nil {
		t.Errorf("nobody listens: %+v", v)
	}
	asked := make(chan struct{}, 8) // four requests each; on a busy machine the first ones come late, or not at all
	ok(t, w.answer(func(*nats.Msg) *nats.Msg { asked <- struct{}{}; return nil }))
	if v := w.client(t, 20*time.Millisecond).Admit(t.Context(), theCall); v.Allowed() || v.Reason != client.ReasonTimeout {
		t.Errorf("nobody answers: %+v", v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if v := w.client(t, testTimeout).Admit(ctx, theCall); v.Allowed() || v.Reason != client.ReasonCanceled {
		t.Errorf("the caller gives up: %+v", v)
	}
	c := w.client(t, time.Second) // the loss may be noticed only after the request is sent
	w.srv.Shutdown()
	if v := c.Admit(t.Context(), theCall); v.Allowed() || v.Err == nil {
		t.Errorf("no server: %+v", v)
	}
	c = w.closed(t)
	if v := c.Admit(t.Context(), theCall); v.Allowed() || v.Reason != client.ReasonNotSent {
		t.Errorf("a closed connection: %+v", v)
	}
}

// closed is a client whose connection was closed.
func (w *world) closed(t *testing.T) *client.Client {
	t.Helper()
	nc := w.conns[len(w.conns)-1]
	nc.Close()
	c, err := client.New(nc, client.Options{Tenant: "acme", Publisher: "rt1", PublicKey: w.publicKey})
	ok(t, err)
	return c
}

func TestAdmitSendsWhatTheBodyHasNoFieldFor(t *testing.T) {
	w := start(t, streams.Shard{})
	got := make(chan *nats.Msg, 1)
	ok(t, w.answer(func(m *nats.Msg) *nats.Msg { got <- m; return w.allow(nil) }))
	call := theCall
	call.Agent, call.Traceparent = "agent-7", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	w.client(t, testTimeout).Admit(t.Context(), call)
	m := <-got
	if m.Subject != "gov.admit.acme.agenthook" || string(m.Data) != string(theCall.Body) {
		t.Errorf("%s %s", m.Subject, m.Data)
	}
	for name, want := range map[string]string{
		events.HeaderSession: "s1", events.HeaderToolCallID: "c1", events.HeaderAgent: "agent-7", events.HeaderTrace: call.Traceparent,
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPermits(t *testing.T) {
	w := start(t, streams.Shard{})
	ok(t, w.answer(func(m *nats.Msg) *nats.Msg {
		return w.allow(func(g *grant) {
			if string(m.Data) == "aaep" {
				g.args = nil
			}
		})
	}))
	later := time.Duration(0)
	c := w.asking(t, client.Options{Timeout: testTimeout, Now: func() time.Time { return time.Now().Add(later) }})
	admit := func(call client.Call) client.Verdict {
		t.Helper()
		v := c.Admit(t.Context(), call)
		if !v.Allowed() {
			t.Fatalf("not allowed: %+v", v)
		}
		return v
	}
	v := admit(theCall)
	for name, args := range map[string]string{
		"changed": `{"to":"dana@acme.example","amount":11}`, "emptied": `{}`, "null": `null`, "not JSON": `{`,
		"doubled key": `{"to":"dana@acme.example","amount":10,"amount":10}`, "other case": `{"To":"dana@acme.example","amount":10}`,
	} {
		if err := v.Permits([]byte(args)); err == nil || errors.Is(err, guard.ErrReceiptUsed) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "dana@") {
			t.Errorf("%s: the error quotes an argument: %v", name, err)
		}
	}
	if err := v.Permits(nil); err == nil {
		t.Error("no arguments where some were admitted")
	}
	ok(t, v.Permits(arguments)) // what was refused does not count as use
	if err := v.Permits(arguments); !errors.Is(err, guard.ErrReceiptUsed) {
		t.Errorf("a second use: %v", err)
	}
	copied := v
	if err := copied.Permits(arguments); !errors.Is(err, guard.ErrReceiptUsed) {
		t.Errorf("a copy of the verdict: %v", err)
	}
	plain := theCall
	plain.Body, plain.Arguments = []byte("aaep"), nil
	if v := admit(plain); v.Permits(arguments) == nil {
		t.Error("arguments where none were admitted")
	} else {
		ok(t, v.Permits(nil))
	}
	expiring := admit(theCall)
	later = time.Minute // as long as a receipt holds
	if err := expiring.Permits(arguments); !errors.Is(err, receipt.ErrExpired) {
		t.Errorf("an expired receipt: %v", err)
	}
}

func TestZeroVerdictIsDeny(t *testing.T) {
	var v client.Verdict
	if v.Allowed() || !errors.Is(v.Permits(nil), client.ErrNotAllowed) {
		t.Error("the zero verdict permits")
	}
	v = client.Verdict{Decision: events.Allow} // made by hand: no receipt was checked
	if !errors.Is(v.Permits(nil), client.ErrNotAllowed) {
		t.Error("a verdict made by hand permits")
	}
}

func TestNew(t *testing.T) {
	w := start(t, streams.Shard{})
	nc, err := w.conn("rt1")
	ok(t, err)
	for name, o := range map[string]client.Options{
		"no key":       {Tenant: "acme", Publisher: "rt1"},
		"bad key":      {Tenant: "acme", Publisher: "rt1", PublicKey: "nonsense"},
		"no tenant":    {Publisher: "rt1", PublicKey: w.publicKey},
		"no publisher": {Tenant: "acme", PublicKey: w.publicKey},
	} {
		if _, err := client.New(nc, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
