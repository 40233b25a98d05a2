package gateway

import (
	"context"
	"testing"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/follow"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A position that the hub no longer holds, or that is of another log, is not answered from memory.
func TestHubKnowsWhatItHolds(t *testing.T) {
	h := newOutputHub(nil, Flags{}, daemon.Env{Health: daemon.NewHealth()})
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
		if held != c.held || len(list) != c.n || held && next.After != end {
			t.Errorf("%+v: %d outputs, %+v, %v", c.at, len(list), next, held)
		}
	}
	h.reset()
	if _, _, _, held := h.after(client.Position{Log: "L", After: end}); held {
		t.Error("a hub without a log answers")
	}
}

// The hub rests after a page that no stream waits for. A stream that reads ends the rest, and a
// stream that waits prevents it.
func TestHubRestsUnlessAStreamReads(t *testing.T) {
	h := newOutputHub(nil, Flags{}, daemon.Env{Health: daemon.NewHealth()})
	at := client.Position{Log: "L", After: 1}
	ended, end := context.WithCancel(t.Context())
	end() // so that a rest is over at once
	h.add([]events.Output{{Seq: 1}}, at)
	if h.rest(ended); !h.behind || h.resting != nil {
		t.Errorf("without a stream: behind %v, resting %v", h.behind, h.resting)
	}
	rest := make(chan struct{})
	h.resting = rest
	h.after(at)
	select {
	case <-rest:
	default:
		t.Error("a stream reads and the hub still rests")
	}
	h.add([]events.Output{{Seq: 2}}, client.Position{Log: "L", After: 2})
	if h.rest(ended); h.behind {
		t.Error("the hub rests while a stream waits")
	}
	h.add([]events.Output{{Seq: 3}}, client.Position{Log: "L", After: 3})
	if h.rest(ended); !h.behind {
		t.Error("the hub does not rest although the stream has not read since")
	}
}

// A stream begins at the end of the log, also if the hub has rested.
func TestPositionOfAHubThatRested(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	stop, err := follow.Serve(t.Context(), n.JS("correlator"), streams.DefaultShard, subject.Space{Prefix: "gov"}, zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(stop)
	for range 3 {
		n.Publish("admitter", streams.Msg{Subject: subject.Space{}.Decision(servicetest.Tenant, "deny", "s"), Body: []byte(`{}`)})
	}
	st, err := streams.StreamState(t.Context(), n.JS("auditor"), streams.DefaultShard)
	servicetest.OK(t, err)
	log := streams.EpochName(streams.DefaultShard, st.Created)
	h := newOutputHub(n.Conn(servicetest.Gateway), Flags{Flags: n.Flags(servicetest.Gateway), Tenant: servicetest.Tenant}, daemon.Env{Health: daemon.NewHealth()})
	h.add(nil, client.Position{Log: log, After: 1})
	if at, known := h.position(t.Context()); !known || at != (client.Position{Log: log, After: 1}) {
		t.Errorf("a current hub: %+v, %v", at, known)
	}
	h.behind = true
	if at, known := h.position(t.Context()); !known || at != (client.Position{Log: log, After: st.LastSeq}) {
		t.Errorf("a hub that has rested: %+v, %v, want %d", at, known, st.LastSeq)
	}
}
