package correlation

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// TestDenialOutlivesItsSession: that a call was denied is known when it runs, also
// where everything else of it had to be forgotten.
func TestDenialOutlivesItsSession(t *testing.T) {
	denied := func(l *ledger) {
		l.admit(pre(1), "d1", events.Deny)
		l.event(pre(1))
	}
	crowd := func(l *ledger) {
		for i := range 40 {
			l.event(set(pre(5000+i), "session_id", fmt.Sprint("crowd-", i)))
		}
	}
	unstarted := set(set(set(post(2), "metadata.execution.outcome", "cancelled"), "metadata.execution.started_at", nil), "metadata.tool_input_executed", tree{})
	for name, tc := range map[string]struct {
		before, between func(*ledger)
		end             tree
		want            []string
	}{
		"pushed out":                    {denied, crowd, post(2), []string{despiteDeny}},
		"pushed out, and ended unbegun": {denied, crowd, unstarted, []string{orphan}},
		"idle for days":                 {denied, func(l *ledger) { l.idle(3 * 24 * 3600) }, post(2), []string{despiteDeny}},
		"many calls since": {denied, func(l *ledger) {
			for i := range DefaultMaxClosedPerSession + 1 {
				other := func(e tree) tree { return set(e, "metadata.tool_call_id", fmt.Sprint("x", i)) }
				l.admit(other(pre(100+2*i)), fmt.Sprint("x", i), events.Allow)
				l.event(other(pre(100 + 2*i)))
				l.event(other(set(post(101+2*i), "metadata.execution.started_at", nil)))
			}
		}, post(2), []string{despiteDeny}},
		"stopped by its own runtime": {func(l *ledger) {
			l.event(pre(1))
			l.event(hook(3, "ToolUseBlocked", 1))
		}, crowd, post(2), []string{despiteDeny}},
		"allowed": {func(l *ledger) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(pre(1))
		}, crowd, post(2), []string{missingHook, orphan}},
		"asked for again since, and allowed": {denied, func(l *ledger) {
			crowd(l)
			l.admit(pre(3), "d2", events.Allow)
			l.event(pre(3))
		}, post(2), []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.opts.MaxSessions = 8
			tc.before(l)
			tc.between(l)
			at := len(l.msgs)
			l.event(tc.end)
			whole := l.run()
			var mine []events.Finding
			for _, f := range whole.findings {
				if f.Session == pre(1)["session_id"] {
					mine = append(mine, f)
				}
			}
			wantRules(t, mine, tc.want...)
			resumed, _ := goingOn(t, l, at)
			sameOutputs(t, "resumed", resumed, whole.outputs)
			seen := map[string]bool{}
			for _, o := range whole.outputs {
				o.Encode()
				if seen[o.ID] {
					t.Errorf("%s is put out twice", o.ID)
				}
				seen[o.ID] = true
			}
		})
	}
}

// TestDenialsAreBounded: no tenant fills the places that all share.
func TestDenialsAreBounded(t *testing.T) {
	cs := newEngine(Options{}).calls
	keep := func(tenant string, i int) {
		s := &session{calls: cs, Origin: &fact.Origin{Key: fact.SessionKey{Tenant: tenant, Source: "rt1", Session: fmt.Sprint("s", i)}}}
		c := &call{session: s, group: newCallGroup(fact.CallKeyOf("c1", ""), 0), occurrence: 1, closeReason: closedByDeny, details: new(details)}
		c.verdictClaim.Verdict = events.Deny
		cs.keepDenial(c)
	}
	keep("acme", 0)
	for i := range maxDenials + 100 {
		keep("other", i)
	}
	if n := cs.denials.Len(); n != maxDenials {
		t.Errorf("%d are kept, of at most %d", n, maxDenials)
	}
	if _, kept := cs.denials.Peek(denialKey(fact.SessionKey{Tenant: "acme", Source: "rt1", Session: "s0"}, fact.CallKeyOf("c1", ""))); !kept {
		t.Error("a tenant with one denial lost it to another")
	}
}

// TestMemoryOfWhatIsOver measures, and prints, what a closed call and a closed
// session take, their ids and indexes included. The bounds of Options are to be
// multiplied with these.
func TestMemoryOfWhatIsOver(t *testing.T) {
	const calls, mostCall, mostSession = 1500, 1024, 1280
	perCall := usedFor(t, calls, 100) / calls
	perSession := (usedFor(t, calls, 1) - usedFor(t, calls, 100)) / (calls - calls/100)
	t.Logf("%d bytes a closed call, %d bytes a session more", perCall, perSession)
	if perCall > mostCall || perSession > mostSession {
		t.Errorf("want at most %d and %d bytes", mostCall, mostSession)
	}
}

// usedFor is the heap that a correlator takes after so many calls that were
// admitted, announced and completed.
func usedFor(t *testing.T, calls, perSession int) int {
	l := newLedger(t)
	// What is bounded however many calls there are is full before it is measured.
	l.opts.MaxEvents, l.opts.MaxEventsPerSource = 256, 256
	core := New(l.opts)
	core.engine.lineage.linkTargets, core.engine.receipts.holders = tables.NewFIFO[linkKey, sessionLink](512), tables.NewFIFO[fact.Sum, fact.Sum](512)
	seq := uint64(0)
	apply := func() {
		for _, m := range l.msgs {
			seq++
			m.Seq = seq
			core.Apply(m)
		}
		l.msgs = l.msgs[:0]
	}
	apply()
	play := func(from, to int) {
		for i := from; i < to; i++ {
			at := func(e tree) tree {
				return set(set(e, "session_id", "session-"+strconv.Itoa(1000+i/perSession)), "metadata.tool_call_id", "call-"+strconv.Itoa(100_000+i))
			}
			l.admit(at(pre(2*i)), "decision-"+strconv.Itoa(100_000+i), events.Allow)
			l.event(at(pre(2 * i)))
			l.event(at(post(2*i + 1)))
			apply()
		}
	}
	play(0, 300)
	before := heapInUse()
	play(300, 300+calls)
	used := heapInUse() - before
	if st := core.Stats(); st.Open != 0 || st.Calls != 300+calls {
		t.Fatalf("%+v", st)
	}
	return used
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestCallsCountWhatTheyHold: whatever is opened, closed and forgotten, what the part counts
// is what its sessions hold, and nothing is left of nothing.
func TestCallsCountWhatTheyHold(t *testing.T) {
	cs := newEngine(Options{MaxClosedPerSession: 2}).calls
	held := func(what string, sessions, open, calls, ids, bytes int) {
		t.Helper()
		s, o, c, i, b := cs.held()
		if got, want := [...]int{s, o, c, i, b}, [...]int{sessions, open, calls, ids, bytes}; got != want {
			t.Errorf("%s: sessions, open, calls, ids and bytes are %v, want %v", what, got, want)
		}
	}
	for n := range 2 {
		f := &fact.Fact{Kind: fact.KindPre, Origin: fact.OriginOf("acme", "rt1", fmt.Sprint("s", n))}
		s := cs.addSession(&f.Origin, 0)
		for i := range 4 {
			f := &fact.Fact{Kind: fact.KindPre, Origin: f.Origin, Tool: "pay", Args: fact.Arguments{Known: true, Canonical: []byte(`{"a":1}`)}}
			f.SetCallKey(fact.CallKeyOf(fmt.Sprint("c", i), ""))
			c := cs.newOccurrence(s, f)
			c.state = events.CallOpen
			cs.addOpen(c)
			c.attachFact(f)
		}
	}
	held("opened", 2, 8, 8, 8, 8*len(`{"a":1}`))
	s := cs.find(fact.SessionKey{Tenant: "acme", Source: "rt1", Session: "s0"})
	for len(s.open) > 0 {
		cs.closeCall(s.open[0], events.CallCompleted, closedByPost)
	}
	held("closed, of which two are remembered", 2, 4, 6, 8, 4*len(`{"a":1}`))
	cs.compactCalls()
	cs.forgetSession(s)
	held("forgotten", 1, 4, 4, 4, 4*len(`{"a":1}`))
	other := cs.touch(fact.SessionKey{Tenant: "acme", Source: "rt1", Session: "s1"})
	for len(other.open) > 0 {
		cs.closeCall(other.open[0], events.CallAbandoned, closedByDeadline)
	}
	cs.forgetSession(other)
	held("empty", 0, 0, 0, 0, 0)
}
