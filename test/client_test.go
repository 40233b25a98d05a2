package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/client/guard"
)

// sdk is the client SDK as a runtime uses it.
func sdk(t testing.TB, s *system, nc *nats.Conn) *client.Client {
	t.Helper()
	info := s.info(t)
	c, err := client.New(nc, client.Options{Tenant: info.Tenant, Publisher: info.Roles["runtime"].Publisher, PublicKey: info.PublicKey, Timeout: patience})
	ok(t, err)
	return c
}

func sdkCall(e object) (client.Call, []byte) {
	args, err := json.Marshal(e["tool_input"])
	if err != nil {
		panic(err)
	}
	return client.Call{Protocol: "agenthook", Body: e.bytes(), Tool: e.text("tool_name"), Session: e.text("session_id"),
		ToolCallID: e.text("metadata.tool_call_id"), Arguments: args}, args
}

// The SDK permits exactly what was allowed, once, with these arguments.
func TestClient(t *testing.T) {
	s := shared(t)
	c := sdk(t, s, s.connect(t, "runtime"))
	call, args := sdkCall(allowedCall("s-sdk", "c1"))
	v := c.Admit(context.Background(), call)
	if !v.Allowed() {
		t.Fatalf("%s: %v", v.Reason, v.Err)
	}
	if err := v.Permits([]byte(`{"path":"/etc/passwd"}`)); err == nil {
		t.Error("other arguments are permitted")
	}
	ok(t, v.Permits(args))
	if err := v.Permits(args); !errors.Is(err, guard.ErrReceiptUsed) {
		t.Errorf("a second run: %v", err)
	}
	ok(t, c.Publish(context.Background(), "agenthook", allowedCall("s-sdk", "c1").bytes(), []byte("not an event")))

	for _, e := range []object{askedCall("s-sdk", "c2"), deniedCall("s-sdk", "c3"), unknownCall("s-sdk", "c4")} {
		call, args := sdkCall(e)
		if v := c.Admit(context.Background(), call); v.Allowed() || v.Permits(args) == nil || v.DecisionID == "" {
			t.Errorf("%s: %+v", call.Tool, v)
		}
	}
	// The call that the executor is about to run is not the one in the body.
	swapped, _ := sdkCall(allowedCall("s-sdk", "c5"))
	swapped.Arguments = []byte(`{"path":"/etc/passwd"}`)
	if v := c.Admit(context.Background(), swapped); v.Allowed() || v.Reason != client.ReasonReceiptInvalid {
		t.Errorf("swapped arguments: %+v", v)
	}
}

// Whoever answers without the admitter's key is not believed.
func TestClientBelievesNoImpostor(t *testing.T) {
	t.Parallel()
	s := start(t)
	genuine := s.runtime(t).admit(t, "agenthook", allowedCall("s-impostor", "c1").bytes())
	resume := s.holdDown(t, "admitter")
	defer resume()
	thief := s.service(t, "admitter") // stolen password, no key
	_, err := thief.QueueSubscribe("gov.admit.>", "admitter", func(m *nats.Msg) {
		h := nats.Header{"Countersign-Verdict": {"allow"}, "Countersign-Decision-Id": {"x"}}
		if m.Header.Get("Countersign-Tool-Call-Id") == "replay" {
			h = genuine.msg.Header
		}
		_ = m.RespondMsg(&nats.Msg{Header: h, Data: []byte(`{"decision":"allow"}`)})
	})
	ok(t, err)
	ok(t, thief.Flush())
	c := sdk(t, s, s.connect(t, "runtime"))
	call, args := sdkCall(allowedCall("s-impostor", "replay"))
	// The stopped admitter is in the queue group as well: ask until the impostor
	// has been the one to get it.
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), patience/90)
		v := c.Admit(ctx, call)
		cancel()
		if v.Allowed() || v.Permits(args) == nil {
			t.Fatalf("the impostor is believed: %+v", v)
		}
		if v.Reason == client.ReasonReceiptInvalid {
			return
		}
	}
	t.Error("the impostor never got a request: this test shows nothing")
}

// Without an admitter the verdict is deny.
func TestClientWithoutAdmitter(t *testing.T) {
	t.Parallel()
	s := start(t)
	nc := s.connect(t, "runtime", nats.NoReconnect())
	c := sdk(t, s, nc)
	call, args := sdkCall(allowedCall("s-alone", "c1"))
	ok(t, s.stop())
	v := c.Admit(context.Background(), call)
	if v.Allowed() || v.Permits(args) == nil || v.Reason == "" || v.Err == nil {
		t.Errorf("%+v", v)
	}
	if err := c.Publish(context.Background(), "agenthook", call.Body); err == nil {
		t.Error("publishing to nobody succeeds")
	}
	var zero client.Verdict
	if zero.Allowed() || zero.Permits(nil) == nil {
		t.Error("the zero verdict allows")
	}
}
