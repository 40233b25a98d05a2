package correlation

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
)

func key(n uint64) (s fact.Sum) {
	binary.BigEndian.PutUint64(s[:], n)
	return s
}

// flooded is a log in which calls of one tenant are open and denied while another
// publisher sends events of sessions that it invents, until they run.
func flooded(t *testing.T, tenant, source string, inFlood func(i int) []tree) *ledger {
	l := newLedger(t)
	of := func(e tree, i int) tree {
		return set(set(e, "session_id", fmt.Sprint("mine-", i)), "metadata.tool_call_id", fmt.Sprint("c", i))
	}
	for i := range 8 {
		verdict := events.Allow
		if i%2 == 0 {
			verdict = events.Deny
		}
		l.admit(of(pre(100+i), i), fmt.Sprint("d", i), verdict)
		l.event(of(pre(100+i), i))
	}
	for i := range 300 {
		for _, e := range inFlood(i) {
			l.eventFrom(tenant, source, e)
		}
	}
	for i := range 8 {
		l.event(of(post(200+i), i))
	}
	return l
}

// inventing is a flood of sessions with one open call each.
func inventing(i int) []tree {
	return []tree{set(pre(5000+i), "session_id", fmt.Sprint("invented-", i))}
}

// TestSharedFairly: what one publisher sends pushes nothing out of what others,
// of its tenant or another, have in the tables that all share.
func TestSharedFairly(t *testing.T) {
	manyCalls := func(i int) []tree {
		return []tree{set(set(pre(5000+i), "session_id", fmt.Sprint("invented-", i/20)), "metadata.tool_call_id", fmt.Sprint("x", i))}
	}
	for name, flood := range map[string]struct {
		tenant, source string
		bound          func(*Options)
		events         func(int) []tree
	}{
		"sessions of another tenant":         {"other", "rt1", func(o *Options) { o.MaxSessions = 32 }, inventing},
		"sessions of the tenant's publisher": {"acme", "rt9", func(o *Options) { o.MaxSessions = 32 }, inventing},
		"calls of another tenant":            {"other", "rt1", func(o *Options) { o.MaxCalls = 64 }, manyCalls},
		"calls of the tenant's publisher":    {"acme", "rt9", func(o *Options) { o.MaxCalls = 64 }, manyCalls},
		"ids of another tenant":              {"other", "rt1", func(o *Options) { o.MaxIDs = 64 }, manyCalls},
		"ids of the tenant's publisher":      {"acme", "rt9", func(o *Options) { o.MaxIDs = 64 }, manyCalls},
	} {
		t.Run(name, func(t *testing.T) {
			l := flooded(t, flood.tenant, flood.source, flood.events)
			flood.bound(&l.opts)
			whole := l.run()
			var mine []events.Finding
			for _, f := range whole.findings {
				if f.Tenant == "acme" && f.Source == "rt1" {
					mine = append(mine, f)
				}
			}
			wantRules(t, mine, despiteDeny, despiteDeny, despiteDeny, despiteDeny)
			st := whole.core.Stats()
			if st.Evicted == 0 {
				t.Errorf("nothing had to make room: %+v", st)
			}
			for _, at := range []int{20, 150, 320} {
				resumed, _ := goingOn(t, l, at)
				sameOutputs(t, fmt.Sprint("resumed at ", at), resumed, whole.outputs)
			}
		})
	}
}

// TestFloodKeepsOrder: sessions whose order is followed share their table likewise.
func TestFloodKeepsOrder(t *testing.T) {
	l := newLedger(t)
	l.opts.RequireVerdict, l.opts.MaxSessions = false, 16
	l.event(wire(1, "session.started", 0, nil))
	for i := range 100 {
		l.eventFrom("other", "rt1", set(wire(100+i, "session.started", 0, nil), "session_id", fmt.Sprint("sess_x", i)))
	}
	l.event(wire(2, "session.started", 1, nil))
	core := New(l.opts)
	core.engine.trackers.storedItemLimit = 40
	for _, m := range l.msgs {
		core.Apply(m)
	}
	for i := range 400 {
		l.eventFrom("other", "rt1", wire(1000+i, "tool.invoked", 1, tree{"tool": "lookup", "tool_call_id": fmt.Sprint("call_", i), "session_id": fmt.Sprint("sess_x", 95+i%5)}))
		core.Apply(l.msgs[len(l.msgs)-1])
	}
	if !slices.ContainsFunc(core.engine.trackers.sessions.All(), func(w *protocolSession) bool { return w.origin.Key.Tenant == "acme" }) {
		t.Error("the session of the tenant that sent little is not followed any more")
	}
	if core.engine.trackers.storedItems > core.engine.trackers.storedItemLimit {
		t.Errorf("all together remember %d", core.engine.trackers.storedItems)
	}
}
