package gateway

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/aaep"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/follow"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A position that the hub no longer holds, or that is of another log, is not answered from memory.
func TestHubKnowsWhatItHolds(t *testing.T) {
	h := newOutputHub(nil, Flags{}, daemon.Env{Health: daemon.NewHealth()}, "outputs")
	h.add(nil, client.Position{Log: "L", After: 10})
	for seq := uint64(11); seq <= 10+2*hubOutputs; seq++ {
		h.add([]events.Output{{Seq: seq}}, client.Position{Log: "L", After: seq})
	}
	end := uint64(10 + 2*hubOutputs)
	for _, c := range []struct {
		at   client.Position
		held bool
		n    int
	}{
		{client.Position{Log: "L", After: 10}, false, 0},
		{client.Position{Log: "L", After: end - hubOutputs - 1}, false, 0},
		{client.Position{Log: "L", After: end - hubOutputs}, true, hubOutputs},
		{client.Position{Log: "L", After: end - 1}, true, 1},
		{client.Position{Log: "L", After: end}, true, 0},
		{client.Position{Log: "M", After: end - 1}, false, 0},
	} {
		list, next, _, held := h.after(c.at)
		for more := list; len(more) > 0 && next.After < end; {
			more, next, _, _ = h.after(next)
			list = slices.Concat(list, more)
		}
		if held != c.held || len(list) != c.n || held && next.After != end {
			t.Errorf("%+v: %d outputs, %+v, %v", c.at, len(list), next, held)
		}
	}
	h.reset()
	if _, _, _, held := h.after(client.Position{Log: "L", After: end}); held {
		t.Error("a hub without a log answers")
	}
}

// TestAttackStreamsThatDoNotRead: a client comes back with many streams from a position that the hub still has, and
// reads none of them. A client that reads gets everything once.
func TestAttackStreamsThatDoNotRead(t *testing.T) {
	h := newOutputHub(nil, Flags{}, daemon.Env{Health: daemon.NewHealth()}, "outputs")
	outs := make([]events.Output, hubOutputs)
	for i := range outs {
		outs[i] = events.Output{Seq: uint64(i) + 1, Subject: "gov.decisions.acme.deny.s", Record: fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", 3<<10))}
	}
	end := client.Position{Log: "L", After: hubOutputs}
	h.add(outs, end)
	o := &outputStreams{server: &server{stopped: make(chan struct{})}, outputs: h}
	f := followed{hub: h, kind: string(subject.Decisions)}
	const unread = 16
	var texts [unread][]byte // what each holds while its client reads nothing
	before := heapMiB()
	for i := range texts {
		list, at, _ := o.nextOutputs(t.Context(), f, client.Position{Log: "L"}, nil)
		texts[i] = textOf(list, at)
	}
	if more := heapMiB() - before; more > unread/2 {
		t.Errorf("%d streams hold %d MiB", unread, more)
	}
	runtime.KeepAlive(texts)
	seq := uint64(0)
	for at := (client.Position{Log: "L"}); at != end; {
		list, next, ok := o.nextOutputs(t.Context(), f, at, nil)
		for _, r := range list {
			if seq++; r.Seq != seq {
				t.Fatalf("%d comes behind %d", r.Seq, seq-1)
			}
		}
		if at = next; !ok || len(textOf(list, at)) > pieceBytes {
			t.Fatalf("%t: %d bytes at once", ok, len(textOf(list, at)))
		}
	}
	if seq != hubOutputs {
		t.Errorf("%d of %d", seq, hubOutputs)
	}
	h.add([]events.Output{{Seq: hubOutputs + 1, Subject: "gov.findings.acme.low.s", Record: []byte(`{}`)}}, client.Position{Log: "L", After: hubOutputs + 1})
	f.kind = string(subject.Findings)
	if list, _, _ := o.nextOutputs(t.Context(), f, client.Position{Log: "L", After: 1}, nil); len(list) != 1 {
		t.Errorf("%d findings behind more than a piece of others", len(list))
	}
}

func heapMiB() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 20)
}

// stateChanged is an event of AAEP on the log.
func stateChanged(seq uint64) events.Output {
	return events.Output{Seq: seq, Subject: "gov.events.acme.rt1.aaep.sess_1.agent.state.changed", Record: fmt.Appendf(nil,
		`{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.state.changed","event_id":"evt_%d","session_id":"sess_1","timestamp":"2026-11-20T12:00:00.000Z","producer":{"agent_id":"a"},"from_state":"idle","to_state":"thinking"}`, seq)}
}

func newSubscription(tb testing.TB) *aaepSubscription {
	tb.Helper()
	m, err := aaep.Decode([]byte(subscribe))
	servicetest.OK(tb, err)
	sub, refused := aaep.Negotiate(aaep.Terms{AgentID: aaepAgent, Languages: []string{"en"}}, m, "sub_1")
	if refused != nil {
		tb.Fatal(refused)
	}
	return &aaepSubscription{sub: sub, at: client.Position{Log: "L"}}
}

// A subscription goes on behind any of the last events that it sent; it does not remember all of them.
func TestSubscriptionRemembersItsLastEvents(t *testing.T) {
	const sent = 5 * aaepSent
	a := newSubscription(t)
	for seq := range uint64(sent) {
		a.choose([]record{newRecord(subject.Space{}, "L", stateChanged(seq+1))}, client.Position{Log: "L", After: seq + 1}, time.Now())
		if n := len(a.sent); n < min(int(seq), aaepSent) || n > 2*aaepSent {
			t.Fatalf("it remembers %d of %d events", n, seq+1)
		}
	}
	a.resume(fmt.Sprintf("evt_%d", sent-aaepSent+1))
	if a.at.After != sent-aaepSent+1 {
		t.Errorf("behind a known event: %d", a.at.After)
	}
	a.marks = slices.Repeat([]uint64{7}, aaepMarks)
	for seq := range uint64(2 * aaepSent) {
		a.choose([]record{newRecord(subject.Space{}, "L", stateChanged(sent+seq+1))}, client.Position{Log: "L", After: sent + seq + 1}, time.Now())
	}
	if len(a.marks) != aaepMarks {
		t.Errorf("it remembers %d marks", len(a.marks))
	}
	oldest := a.marks[0]
	a.resume("evt_1")
	if a.at.After != oldest-1 {
		t.Errorf("behind a forgotten event: %d, want %d", a.at.After, oldest-1)
	}
}

// A subscriber that lags by as many events as the hub holds, and breaks off anywhere in what it is given, goes on
// behind the event that it had last.
func TestLaggingSubscriberLosesNothing(t *testing.T) {
	h := newOutputHub(nil, Flags{}, daemon.Env{Health: daemon.NewHealth()}, "events", events.KindAAEP)
	outs := make([]events.Output, hubOutputs)
	for i := range outs {
		outs[i] = stateChanged(uint64(i) + 1)
	}
	h.add(outs, client.Position{Log: "L", After: hubOutputs})
	a := newSubscription(t)
	for last := uint64(0); last < hubOutputs; {
		list, next, _, _ := h.after(a.at)
		given := a.choose(list, next, time.Now())
		for _, e := range given {
			if last++; e.ID != fmt.Sprintf("evt_%d", last) {
				t.Fatalf("after %d events comes %s", last-1, e.ID)
			}
		}
		at, sent := a.at, slices.Clone(a.sent)
		for i, e := range given {
			seq := last - uint64(len(given)-i) + 1
			if a.resume(e.ID); a.at.After != seq {
				t.Fatalf("behind event %d it goes on at %d", seq, a.at.After)
			}
			a.at, a.sent = at, sent
		}
	}
	for _, last := range []string{"evt_10", ""} { // all of it was on its way to the subscriber
		if a.resume(last); a.at.After > 10 {
			t.Errorf("behind %q it goes on at %d", last, a.at.After)
		}
	}
}

// An event goes to a thousand subscriptions.
func BenchmarkSubscriptions(b *testing.B) {
	h := newOutputHub(nil, Flags{}, daemon.Env{Health: daemon.NewHealth()}, "events", events.KindAAEP)
	subs := make([]*aaepSubscription, 1000)
	for i := range subs {
		subs[i] = newSubscription(b)
	}
	b.ReportAllocs()
	for seq := uint64(1); b.Loop(); seq++ {
		h.add([]events.Output{stateChanged(seq)}, client.Position{Log: "L", After: seq})
		for _, a := range subs {
			outs, next, _, _ := h.after(a.at)
			if len(a.choose(outs, next, time.Now())) != 1 {
				b.Fatal("an event is left out")
			}
		}
	}
}

// A hub that no stream reads asks for nothing. The next stream begins at the end that the log has then, and a
// stream that waited meanwhile gets what it missed.
func TestHubPausesWithoutReaders(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	stop, err := follow.Serve(t.Context(), n.JS("correlator"), streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	write := func(session string) {
		n.Publish("admitter", streams.Msg{Subject: subject.Space{Prefix: "gov"}.Decision(servicetest.Tenant, "deny", session), Body: []byte(`{}`)})
	}
	var f Flags
	f.Prefix, f.Tenant = "gov", servicetest.Tenant
	nc := n.Conn(servicetest.Gateway)
	h := newOutputHub(nc, f, daemon.Env{Health: daemon.NewHealth()}, "outputs")
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { h.follow(ctx) })
	t.Cleanup(func() { cancel(); following.Wait() })
	paused := func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.paused }
	servicetest.Eventually(t, "it pauses: no stream has read", paused)
	write("s1")
	at, known := h.position(t.Context())
	if !known || at.After != 1 {
		t.Fatalf("a stream begins at %d, %t", at.After, known)
	}
	_, _, changed, held := h.after(at)
	if !held {
		t.Fatal("the hub does not hold the end of the log")
	}
	h.mu.Lock()
	h.read = time.Now().Add(-2 * hubLinger) // the stream waits, and reads at its next heartbeat only
	h.mu.Unlock()
	servicetest.Eventually(t, "the waiting stream wakes", func() bool {
		write("s2")
		select {
		case <-changed:
			return true
		default:
			return false
		}
	})
	servicetest.Eventually(t, "it pauses again", paused)
	asked := nc.Stats().OutMsgs
	write("s3")
	if now := nc.Stats().OutMsgs; now != asked {
		t.Errorf("%d requests while it pauses", now-asked)
	}
	if _, _, _, held := h.after(at); held {
		t.Error("a hub that pauses answers from memory")
	}
	list, next, err := h.page(t.Context(), "decisions", at)
	if err != nil || len(list) < 2 || list[0].Seq != 2 {
		t.Errorf("%d outputs, %+v, %v", len(list), next, err)
	}
	servicetest.Eventually(t, "the hub goes on", func() bool { _, _, _, held := h.after(next); return held })
}
