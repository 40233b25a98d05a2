package client_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

func (w *world) asking(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	nc, err := w.conn("rt1")
	ok(t, err)
	return askingBy(t, w, nc, o)
}

func askingBy(t *testing.T, w *world, nc *nats.Conn, o client.Options) *client.Client {
	t.Helper()
	o.Tenant, o.Publisher, o.PublicKey = "acme", "rt1", w.publicKey
	c, err := client.New(nc, o)
	ok(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestAdmitAsksAgain: a request whose answer does not come is sent again within the
// time-out, if it names a tool call; one that does not is a call of its own each
// time and is sent once.
func TestAdmitAsksAgain(t *testing.T) {
	w := start(t, streams.Shard{})
	var asked, silent atomic.Int64
	ok(t, w.answer(func(*nats.Msg) *nats.Msg {
		if asked.Add(1) <= silent.Load() {
			return nil
		}
		return w.allow(nil)
	}))
	unnamed := theCall
	unnamed.ToolCallID = ""
	inBody := func(text string) client.Call {
		c := unnamed
		c.Body = []byte(text)
		return c
	}
	for _, tt := range []struct {
		name   string
		call   client.Call
		silent int64
		again  time.Duration
		want   int64 // times asked
		reason string
	}{
		{"answered at once", theCall, 0, testTimeout / 2, 1, ""}, // however busy the machine is
		{"one answer lost", theCall, 1, time.Second, 2, ""},
		{"three answers lost", theCall, 3, 50 * time.Millisecond, 4, ""},
		{"all answers lost", theCall, 99, time.Millisecond, 4, client.ReasonTimeout},
		{"told not to", theCall, 1, -1, 1, client.ReasonTimeout},
		{"without a tool call", unnamed, 1, 50 * time.Millisecond, 1, client.ReasonTimeout},
		{"the tool call in the body", inBody(`{"event_id":"e1","tool_call_id":"c1"}`), 99, time.Millisecond, 4, client.ReasonTimeout},
		{"the tool call in the metadata", inBody(`{"event_id":"e1","metadata":{"tool_call_id":"c1"}}`), 99, time.Millisecond, 4, client.ReasonTimeout},
		{"the tool call of a tool event", inBody(`{"toolName":"t","callId":"c1"}`), 99, time.Millisecond, 4, client.ReasonTimeout},
		{"an empty tool call", inBody(`{"tool_call_id":"","metadata":{},"callId":null}`), 99, time.Millisecond, 1, client.ReasonTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked.Store(0)
			silent.Store(tt.silent)
			timeout := 600 * time.Millisecond
			if tt.reason == "" {
				timeout = testTimeout
			}
			v := w.asking(t, client.Options{Timeout: timeout, ResendAfter: tt.again}).Admit(t.Context(), tt.call)
			if v.Allowed() != (tt.reason == "") || tt.reason != "" && v.Reason != tt.reason || asked.Load() != tt.want {
				t.Errorf("%s %s %v, asked %d times, want %d", v.Decision, v.Reason, v.Err, asked.Load(), tt.want)
			}
		})
	}
}

// stopping is the answer of an admitter that stops.
func stopping() *nats.Msg {
	m := nats.NewMsg("")
	m.Header.Set(events.HeaderVerdict, string(events.Deny))
	m.Header.Set("Nats-Service-Error", "stopping")
	return m
}

// TestAdmitAsksAnotherAdmitterThanTheOneThatStops: it has not begun with the request.
func TestAdmitAsksAnotherAdmitterThanTheOneThatStops(t *testing.T) {
	w := start(t, streams.Shard{})
	var asked atomic.Int64
	ok(t, w.answer(func(*nats.Msg) *nats.Msg {
		if asked.Add(1) == 1 {
			return stopping()
		}
		return w.allow(nil)
	}))
	unnamed := theCall
	if v := w.asking(t, client.Options{Timeout: testTimeout, ResendAfter: -1}).Admit(t.Context(), unnamed); !v.Allowed() || asked.Load() != 2 {
		t.Errorf("%s %s %v, asked %d times", v.Decision, v.Reason, v.Err, asked.Load())
	}
}

// TestAdmitWithoutAnAnswerOfTheOther: one admitter refuses because it stops, and another one, which may have allowed the
// call, does not answer. That is no refusal.
func TestAdmitWithoutAnAnswerOfTheOther(t *testing.T) {
	for name, c := range map[string]struct {
		refused     int64 // the attempt, from 1
		resendAfter time.Duration
	}{
		"the first one stops":                    {1, -1},
		"the first one stops, and it asks again": {1, 50 * time.Millisecond},
		"the second one stops":                   {2, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, streams.Shard{})
			var asked atomic.Int64
			ok(t, w.answer(func(*nats.Msg) *nats.Msg {
				if asked.Add(1) == c.refused {
					return stopping()
				}
				return nil
			}))
			v := w.asking(t, client.Options{Timeout: 500 * time.Millisecond, ResendAfter: c.resendAfter}).Admit(t.Context(), theCall)
			if v.Allowed() || v.Reason != client.ReasonTimeout || asked.Load() < 2 {
				t.Errorf("%s %s %v, asked %d times", v.Decision, v.Reason, v.Err, asked.Load())
			}
		})
	}
}

// TestAdmitAsksOnAnotherServer: the server that the client is on has no admitter, or
// lets no answer through; another one that the connection knows has.
func TestAdmitAsksOnAnotherServer(t *testing.T) {
	good := start(t, streams.Shard{})
	ok(t, good.answer(func(*nats.Msg) *nats.Msg { return good.allow(nil) }))
	unavailable := nats.NewMsg("")
	unavailable.Header.Set(events.HeaderVerdict, string(events.Deny))
	unavailable.Header.Set("Nats-Service-Error", "audit_unavailable")
	for name, answer := range map[string]func(*nats.Msg) *nats.Msg{
		"no admitter here":         nil,
		"no answer here":           func(*nats.Msg) *nats.Msg { return nil },
		"nothing is recorded here": func(*nats.Msg) *nats.Msg { return unavailable },
	} {
		t.Run(name, func(t *testing.T) {
			bad := start(t, streams.Shard{})
			if answer != nil {
				ok(t, bad.answer(answer))
			}
			var nc *nats.Conn
			for nc == nil || nc.ConnectedUrl() != bad.srv.ClientURL() {
				if nc != nil {
					nc.Close()
				}
				var err error
				nc, err = streams.Connect(t.Context(), streams.ConnectOptions{
					URL: bad.srv.ClientURL() + "," + good.srv.ClientURL(), User: "rt1", Password: "pw-rt1", Log: zerolog.Nop(),
				})
				ok(t, err)
			}
			defer nc.Close()
			c := askingBy(t, good, nc, client.Options{Timeout: testTimeout, ResendAfter: 100 * time.Millisecond})
			for range 3 {
				if v := c.Admit(t.Context(), theCall); !v.Allowed() {
					t.Errorf("%s %s %v", v.Decision, v.Reason, v.Err)
				}
			}
			if nc.ConnectedUrl() != bad.srv.ClientURL() || nc.IsClosed() {
				t.Error("the caller's connection was changed")
			}
		})
	}
}

// TestAdmitWhileTheConnectionMoves: the request was sent, and its connection then moves to another server. An
// admitter may have it: only a request that names a tool call is sent again.
func TestAdmitWhileTheConnectionMoves(t *testing.T) {
	here, there := start(t, streams.Shard{}), start(t, streams.Shard{})
	nc, err := streams.Connect(t.Context(), streams.ConnectOptions{
		URL: here.srv.ClientURL() + "," + there.srv.ClientURL(), User: "rt1", Password: "pw-rt1", Log: zerolog.Nop(),
	})
	ok(t, err)
	defer nc.Close()
	moved := make(chan struct{}, 2)
	nc.SetReconnectHandler(func(*nats.Conn) { moved <- struct{}{} })
	var asked atomic.Int64
	for _, w := range []*world{here, there} {
		ok(t, w.answer(func(*nats.Msg) *nats.Msg {
			if asked.Add(1) == 1 {
				_ = nc.ForceReconnect() // a test that cannot fails
				return nil
			}
			return w.allow(nil)
		}))
	}
	c := askingBy(t, here, nc, client.Options{Timeout: testTimeout, ResendAfter: testTimeout / 2})
	unnamed := theCall
	unnamed.ToolCallID = ""
	if v := c.Admit(t.Context(), unnamed); v.Allowed() || v.Reason != client.ReasonTimeout || asked.Load() != 1 {
		t.Errorf("without a tool call: %s %s %v, asked %d times", v.Decision, v.Reason, v.Err, asked.Load())
	}
	<-moved
	asked.Store(0)
	if v := c.Admit(t.Context(), theCall); !v.Allowed() || asked.Load() != 2 {
		t.Errorf("with a tool call: %s %s %v, asked %d times", v.Decision, v.Reason, v.Err, asked.Load())
	}
}

// TestAdmitWhoseConnectionIsLost: the request was sent, and its connection is closed, or moves to where no admitter
// is. The verdict may be on the log.
func TestAdmitWhoseConnectionIsLost(t *testing.T) {
	noAdmitter := nats.NewMsg("")
	noAdmitter.Header.Set("Status", "503") // as a server answers for an admitter that is not there
	for name, c := range map[string]struct {
		lose        func(*nats.Conn)
		resendAfter time.Duration
		then        *nats.Msg
	}{
		"closed":                              {func(nc *nats.Conn) { nc.Close() }, -1, noAdmitter},
		"moved":                               {func(nc *nats.Conn) { _ = nc.ForceReconnect() }, 50 * time.Millisecond, noAdmitter}, // a test that cannot fails
		"moved, and the admitter there stops": {func(nc *nats.Conn) { _ = nc.ForceReconnect() }, 50 * time.Millisecond, stopping()},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := start(t, streams.Shard{}), start(t, streams.Shard{})
			nc, err := streams.Connect(t.Context(), streams.ConnectOptions{
				URL: here.srv.ClientURL() + "," + there.srv.ClientURL(), User: "rt1", Password: "pw-rt1", Log: zerolog.Nop(),
			})
			ok(t, err)
			defer nc.Close()
			var asked atomic.Int64
			for _, w := range []*world{here, there} {
				ok(t, w.answer(func(*nats.Msg) *nats.Msg {
					if asked.Add(1) > 1 {
						return c.then
					}
					go c.lose(nc)
					return nil
				}))
			}
			v := askingBy(t, here, nc, client.Options{Timeout: testTimeout, ResendAfter: c.resendAfter}).Admit(t.Context(), theCall)
			if v.Allowed() || v.Reason != client.ReasonTimeout || !errors.Is(v.Err, nats.ErrDisconnected) {
				t.Errorf("%s %s %v", v.Decision, v.Reason, v.Err)
			}
		})
	}
}

// TestAdmitWhileHandlersChange: the application may set handlers of its connection at any time. The race detector
// sees a client that reads them.
func TestAdmitWhileHandlersChange(t *testing.T) {
	here, there := start(t, streams.Shard{}), start(t, streams.Shard{})
	ok(t, there.answer(func(*nats.Msg) *nats.Msg { return there.allow(nil) }))
	nc, err := streams.Connect(t.Context(), streams.ConnectOptions{URL: here.srv.ClientURL(), User: "rt1", Password: "pw-rt1", Log: zerolog.Nop()})
	ok(t, err)
	defer nc.Close()
	nc.Opts.Servers = append(nc.Opts.Servers, there.srv.ClientURL())
	c := askingBy(t, there, nc, client.Options{Timeout: testTimeout})
	admitted, changed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		for {
			select {
			case <-admitted:
				return
			default:
				nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
			}
		}
	}()
	v := c.Admit(t.Context(), theCall)
	close(admitted)
	if <-changed; !v.Allowed() {
		t.Errorf("%s %s %v", v.Decision, v.Reason, v.Err)
	}
}

// TestNothingIsSentLater: an ordinary connection of NATS keeps what is sent while it reconnects. A request whose caller
// was told deny, or an event that is not stored, must not come afterwards.
func TestNothingIsSentLater(t *testing.T) {
	w := start(t, streams.Shard{})
	var asked atomic.Int64
	ok(t, w.answer(func(*nats.Msg) *nats.Msg {
		asked.Add(1)
		return w.allow(nil)
	}))
	door := &dialer{}
	nc, err := nats.Connect(w.srv.ClientURL(), nats.UserInfo("rt1", "pw-rt1"), nats.CustomInboxPrefix(streams.User{Name: "rt1"}.Inbox()),
		nats.SetCustomDialer(door), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0))
	ok(t, err)
	defer nc.Close()
	c := askingBy(t, w, nc, client.Options{Timeout: testTimeout, ResendAfter: -1})
	back := nc.StatusChanged(nats.CONNECTED)
	door.shut.Store(true)
	ok(t, nc.ForceReconnect())
	if v := c.Admit(t.Context(), theCall); v.Allowed() || v.Reason != client.ReasonNotSent {
		t.Errorf("a request without a connection: %s %s %v", v.Decision, v.Reason, v.Err)
	}
	if err := c.Publish(t.Context(), "agenthook", []byte(`{"event_type":"late"}`)); !errors.Is(err, streams.ErrRefused) {
		t.Errorf("an event without a connection: %v, want %v", err, streams.ErrRefused)
	}
	door.shut.Store(false)
	<-back
	if v := c.Admit(t.Context(), theCall); !v.Allowed() || asked.Load() != 1 {
		t.Errorf("%s %s %v, and the admitter had %d requests, want 1", v.Decision, v.Reason, v.Err, asked.Load())
	}
	ok(t, c.Publish(t.Context(), "agenthook", []byte(`{"event_type":"now"}`)))
	for _, m := range w.log(t) {
		if strings.HasSuffix(m.Subject, ".late") {
			t.Error("an event came after its caller was told that it is not stored")
		}
	}
}

// dialer refuses to connect while it is shut.
type dialer struct{ shut atomic.Bool }

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if d.shut.Load() {
		return nil, syscall.ECONNREFUSED
	}
	return net.Dial(network, address) //nolint:noctx // the interface has no context
}
