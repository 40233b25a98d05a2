package correlation

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// A snapshot fits into the room that is made for it: copying what is written of a
// large one takes as long as a third of the rest.
func TestSnapshotHasRoom(t *testing.T) {
	for _, c := range []struct {
		name       string
		perSession int
		closed     bool
	}{
		{"open calls", 50, false}, {"open calls, one a session", 1, false},
		{"closed calls", 50, true}, {"closed calls, one a session", 1, true},
	} {
		l := newLedger(t)
		core := New(l.opts)
		const calls = 1000
		for i := range calls {
			at := func(e tree) tree {
				return set(set(set(e, "session_id", "session-"+itoa(1000+i/c.perSession)), "metadata.tool_call_id", "call-"+itoa(100_000+i)),
					"tool_input", tree{"path": "/data/" + itoa(i) + strings.Repeat("x", 110)})
			}
			l.admit(at(pre(2*i)), "decision-"+itoa(100_000+i), events.Allow)
			l.event(at(pre(2 * i)))
			if c.closed {
				l.event(at(post(2*i + 1)))
			}
		}
		for _, m := range l.msgs {
			core.Apply(m)
		}
		if room, size := core.snapshotSize(), len(core.Snapshot()); size > room {
			t.Errorf("%s: %d bytes a call, room for %d", c.name, size/calls, room/calls)
		} else {
			t.Logf("%s: %d bytes a call, room for %d", c.name, size/calls, room/calls)
		}
	}
}
