package rollout

import (
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A process whose entry was removed while it was away enters itself again, and a removal that was decided
// before does not take the new entry.
func TestAProcessThatWasAwayIsEnteredAgain(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	nc, js := n.Conn("admitter"), n.JS("admitter")
	kv, err := js.KeyValue(t.Context(), streams.BucketLeases)
	servicetest.OK(t, err)
	stop, err := Register(t.Context(), nc, js, func() State { return State{} })
	servicetest.OK(t, err)
	entered := func() []Instance {
		list, err := listInstances(t.Context(), js)
		servicetest.OK(t, err)
		return list
	}
	before := entered()
	if len(before) != 1 {
		t.Fatalf("%+v", before)
	}
	servicetest.OK(t, kv.Delete(t.Context(), entryPrefix+before[0].ID))
	servicetest.OK(t, nc.ForceReconnect())
	servicetest.Eventually(t, "the process is entered again", func() bool { return len(entered()) == 1 })

	away := Instance{ID: "AWAY"}
	for range 2 {
		away.revision, err = kv.Put(t.Context(), entryPrefix+away.ID, nil)
		servicetest.OK(t, err)
		forgetGone(t.Context(), nc, kv, []Instance{{ID: away.ID, revision: away.revision - 1}})
		if got := entered(); len(got) != 2 {
			t.Fatalf("an entry that was made since was removed: %+v", got)
		}
	}
	forgetGone(t.Context(), nc, kv, []Instance{away})
	if got := entered(); len(got) != 1 || got[0].ID != before[0].ID {
		t.Errorf("%+v", got)
	}
	stop()
	if got := entered(); len(got) != 0 {
		t.Errorf("%+v after the end", got)
	}
}
