package gateway

import (
	"testing"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
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
