package correlation

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

func key(n uint64) (s sum) {
	binary.BigEndian.PutUint64(s[:], n)
	return s
}

// TestWindowNumbers holds a window against a list where chunks end and where numbers
// begin again.
func TestWindowNumbers(t *testing.T) {
	for _, limit := range []int{noLimit, 1, 7, chunkSize, 3 * chunkSize} {
		for _, first := range []uint32{0, chunkSize - 1, 1<<32 - 1, 1<<32 - 700} {
			random := rand.New(rand.NewPCG(uint64(limit), uint64(first)))
			w := newFIFOMap[sum, int](limit)
			w.head = first
			var model []fifoEntry[sum, int]
			for step := range 6000 {
				if n := random.IntN(40); step%50 == 49 && n <= len(model) {
					w.dropOldest(n)
					model = model[n:]
				}
				k := key(random.Uint64N(2000))
				at := slices.IndexFunc(model, func(e fifoEntry[sum, int]) bool { return e.key == k })
				if v, there := w.get(k); there != (at >= 0) || there && v != model[at].value {
					t.Fatalf("limit %d, first %d, step %d: %d, %v", limit, first, step, v, there)
				}
				if w.put(k, step); at >= 0 {
					model[at].value = step
					continue
				}
				if len(model) == limit && limit != noLimit {
					model = model[evictionBatch(limit):]
				}
				model = append(model, fifoEntry[sum, int]{key: k, value: step})
			}
			all := w.all()
			same := slices.EqualFunc(all, model, func(a, b fifoEntry[sum, int]) bool { return a.key == b.key && a.value == b.value })
			if !same || w.len() != len(model) || len(w.chunks) > len(model)/chunkSize+2 {
				t.Errorf("limit %d, first %d: %d entries in %d chunks, want %d", limit, first, len(all), len(w.chunks), len(model))
			}
			for i := range model {
				if w.keyAt(i) != model[i].key {
					t.Fatalf("limit %d, first %d: the entry %d is another one", limit, first, i)
				}
			}
		}
	}
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
	if !slices.ContainsFunc(core.engine.trackers.sessions.all(), func(w *protocolSession) bool { return w.origin.key.tenant == "acme" }) {
		t.Error("the session of the tenant that sent little is not followed any more")
	}
	if core.engine.trackers.storedItems > core.engine.trackers.storedItemLimit {
		t.Errorf("all together remember %d", core.engine.trackers.storedItems)
	}
}

// TestSharesAgree: whatever the order in which sessions come, speak and go, what goes
// is what a plain search finds, and what is counted is there.
func TestSharesAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table := newLRU[sessionKey, *session]()
	counted := map[sourceKey]int{}
	for range 5000 {
		k := sessionKey{fmt.Sprint("t", random.IntN(4)), fmt.Sprint("p", random.IntN(3)), fmt.Sprint("s", random.IntN(30))}
		if s, there := table.get(k); there {
			if random.IntN(3) == 0 {
				table.count(s.share, byCalls, 1)
				counted[k.publisher()]++
			}
		} else {
			table.add(&session{origin: &origin{key: k}})
		}
		if random.IntN(4) == 0 {
			old, _ := table.surplus(byPlaces, k.publisher(), k)
			if want := surplusOf(table, k); old.key != want {
				t.Fatalf("%v goes, want %v", old.key, want)
			}
			if table.len() > 40 {
				table.remove(old.key)
			}
		}
	}
	for k, n := range counted {
		if h := table.held.publishers[k]; h != nil && h.has[byCalls] > n {
			t.Errorf("%v has %d calls, and was given %d", k, h.has[byCalls], n)
		}
	}
	for _, s := range table.all() {
		table.remove(s.key)
	}
	if len(table.held.publishers)+len(table.held.tenants)+len(table.held.ranked[byPlaces])+len(table.held.ranked[byCalls]) != 0 {
		t.Errorf("shares of nothing are left: %+v", table.held)
	}
}

// surplusOf is surplus by places, found by looking at every entry.
func surplusOf(l *lru[sessionKey, *session], k sessionKey) sessionKey {
	most := func(of func(sessionKey) (string, bool), own string) (best string) {
		n := map[string]int{}
		for _, s := range l.all() {
			if name, counts := of(s.key); counts {
				n[name]++
			}
		}
		for name, held := range n {
			if best == "" || held > n[best] || held == n[best] && best != own && (name == own || name < best) {
				best = name
			}
		}
		return best
	}
	tenant := most(func(o sessionKey) (string, bool) { return o.tenant, true }, k.tenant)
	source := most(func(o sessionKey) (string, bool) { return o.source, o.tenant == tenant }, k.source)
	if tenant != k.tenant {
		source = most(func(o sessionKey) (string, bool) { return o.source, o.tenant == tenant }, "")
	}
	for _, s := range l.all() {
		if s.key.publisher() == (sourceKey{tenant, source}) {
			return s.key
		}
	}
	return sessionKey{}
}
