package correlation

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/subject"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

const (
	oneTrace   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	sameTrace  = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	otherTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

func in(session string, e tree) tree { return set(e, "session_id", session) }

// child is a session that says what it belongs to, and calls a tool.
func child(change func(tree) tree) []tree {
	return []tree{change(in("child", set(hook(50, "SessionStart", 0), "tool_name", nil))), in("child", set(pre(51), "metadata.tool_call_id", "k1"))}
}

func with(path string, v any) func(tree) tree { return func(e tree) tree { return set(e, path, v) } }

// TestParents: what a session belongs to, by its own word.
func TestParents(t *testing.T) {
	parentCall := "the parent's call"
	for _, tc := range []struct {
		name string
		play func(l *ledger)
		want *events.CallParent
	}{
		{"nothing", func(l *ledger) { l.all(child(with("action", "x"))) }, nil},
		{"the id of the parent's event", func(l *ledger) { l.all(child(with("correlation_id", uuid(1)))) },
			&events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"in capitals", func(l *ledger) {
			l.event(in("s1", set(pre(0), "event_id", "abcdef00-0000-4000-8000-00000000000a")))
			l.all(child(with("correlation_id", "ABCDEF00-0000-4000-8000-00000000000A")))
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"the parent's session", func(l *ledger) { l.all(child(with("correlation_id", "s1"))) },
			&events.CallParent{Source: "rt1", Session: "s1", By: "session"}},
		{"a session that nobody knows", func(l *ledger) { l.all(child(with("correlation_id", "s7"))) }, nil},
		{"the parent call's span", func(l *ledger) { l.all(child(with("metadata.traceparent", oneTrace))) },
			&events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "span"}},
		{"its trace", func(l *ledger) { l.all(child(with("metadata.traceparent", sameTrace))) },
			&events.CallParent{Source: "rt1", Session: "s1", By: "trace"}},
		{"another trace", func(l *ledger) { l.all(child(with("metadata.traceparent", otherTrace))) }, nil},
		{"no trace", func(l *ledger) {
			for _, bad := range []string{"", "00", oneTrace + "0", "01" + oneTrace[2:], "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
				l.all(child(with("metadata.traceparent", bad)))
			}
		}, nil},
		{"the goal's parent session", func(l *ledger) {
			l.event(in("child", set(set(hook(49, "GoalSet", 0), "tool_name", nil), "metadata.goal", tree{"goal_id": "g", "parent_session_id": "s1"})))
			l.all(child(with("action", "x")))
		}, &events.CallParent{Source: "rt1", Session: "s1", By: "goal"}},
		{"the surest counts, whatever comes first", func(l *ledger) {
			l.all(child(with("metadata.traceparent", sameTrace)))
			l.event(in("child", set(set(hook(52, "UserPromptSubmit", 0), "tool_name", nil), "correlation_id", uuid(1))))
			l.event(in("child", set(set(hook(53, "UserPromptSubmit", 0), "tool_name", nil), "correlation_id", "s1")))
			l.event(in("child", set(post(54), "metadata.tool_call_id", "k1")))
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"as AAEP", func(l *ledger) {
			l.event(in("sess_child", wire(60, "session.started", 0, tree{"correlation_id": oneTrace})))
			l.event(in("sess_child", invoked(61, "call_1")))
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "span"}},
		{"another publisher's child", func(l *ledger) {
			for _, e := range child(with("correlation_id", uuid(1))) {
				l.eventFrom("acme", "rt2", e)
			}
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"another publisher and the name of a session", func(l *ledger) {
			for _, e := range child(with("correlation_id", "s1")) {
				l.eventFrom("acme", "rt2", e)
			}
		}, nil},
		{"another tenant's child", func(l *ledger) {
			for _, e := range child(func(e tree) tree { return set(set(e, "correlation_id", uuid(1)), "metadata.traceparent", oneTrace) }) {
				l.eventFrom("globex", "rt1", e)
			}
		}, nil},
		{"an id that two publishers used", func(l *ledger) {
			l.eventFrom("acme", "rt2", pre(1))
			l.all(child(with("correlation_id", uuid(1))))
		}, nil},
		{"an id that one publisher used in two sessions", func(l *ledger) {
			l.event(in("s9", pre(1)))
			l.all(child(with("correlation_id", uuid(1))))
		}, nil},
		{"its own event", func(l *ledger) {
			l.all(child(with("action", "x")))
			l.event(in("child", set(set(post(52), "metadata.tool_call_id", "k1"), "correlation_id", uuid(51))))
		}, nil},
		{"a correlation id that others have, too", func(l *ledger) {
			l.event(set(pre(3), "correlation_id", "job-7"))
			l.all(child(with("correlation_id", "job-7")))
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			l.opts.RequireVerdict = false
			l.event(set(pre(1), "metadata.traceparent", oneTrace))
			tc.play(l)
			var got *events.CallParent
			call := ""
			for _, c := range l.run().last() {
				switch c.Session {
				case "child", "sess_child":
					got = c.Parent
				case "s1":
					if call = c.CallID; c.Parent != nil || c.Tenant == "acme" && c.Source == "rt1" && c.Trace != oneTrace && tc.name != "a correlation id that others have, too" {
						t.Errorf("the parent is %+v", c)
					}
				}
			}
			if got != nil && got.CallID == call && call != "" {
				got.CallID = parentCall
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func (l *ledger) all(list []tree) {
	for _, e := range list {
		l.event(e)
	}
}

// TestTraceSources: a message may carry its traceparent beside its event.
func TestTraceSources(t *testing.T) {
	plain := space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PreToolUse")
	for name, play := range map[string]func(l *ledger){
		"header": func(l *ledger) { l.put(plain, map[string][]string{"traceparent": {oneTrace}}, encode(pre(1))) },
		"header and nothing": func(l *ledger) {
			l.put(plain, map[string][]string{"traceparent": {"x"}}, encode(set(pre(1), "metadata.traceparent", oneTrace)))
		},
		"structured": func(l *ledger) {
			l.put(plain, map[string][]string{"content-type": {"application/cloudevents+json"}}, encode(tree{"specversion": "1.0", "id": "y", "source": "/rt",
				"type": "hook", "traceparent": oneTrace, "data": pre(1)}))
		},
		"decision": func(l *ledger) {
			l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Trace = oneTrace })
		},
		"request": func(l *ledger) {
			l.put(space.Request("acme", "rt1", subject.ProtoAgentHook, "s1"), map[string][]string{events.HeaderDecisionID: {"d1"}, events.HeaderTrace: {oneTrace}}, encode(pre(1)))
		},
		"first one counts": func(l *ledger) {
			l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Trace = oneTrace })
			l.event(set(pre(1), "metadata.traceparent", otherTrace))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			play(l)
			if c := l.run().only(t); c.Trace != oneTrace {
				t.Errorf("trace %q", c.Trace)
			}
		})
	}
}

// TestNoCircles: sessions that claim to be each other's parents do not end up so.
func TestNoCircles(t *testing.T) {
	l := newLedger(t)
	const n = 80
	call := func(i int, e tree) { l.event(in(fmt.Sprint("s", i), e)) }
	for i := range n {
		call(i, set(pre(i), "metadata.tool_call_id", fmt.Sprint("c", i)))
	}
	for round := range 3 {
		for i := range n {
			call(i, set(set(hook(1000+round*n+i, "UserPromptSubmit", 0), "tool_name", nil), "correlation_id", uuid((i+1+round)%n)))
		}
	}
	parents := l.run().core.engine.lineage.parentLinks
	for _, e := range parents.All() {
		k := e.Key
		up, steps := k, 0
		for {
			p, has := parents.Get(up)
			if !has {
				break
			}
			if up, steps = p.origin.Key, steps+1; steps > n {
				t.Fatalf("%s is its own ancestor", k.Session)
			}
		}
	}
	if parents.Len() < n/2 {
		t.Errorf("%d sessions have parents", parents.Len())
	}
}

// TestKinIsBounded: sessions and marks without end.
func TestKinIsBounded(t *testing.T) {
	l := newLedger(t)
	l.opts.RequireVerdict = false
	l.event(pre(1))
	core := l.run().core
	core.engine.lineage.parentLinks, core.engine.lineage.linkTargets = tables.NewFIFO[fact.SessionKey, parentLink](8), tables.NewFIFO[linkKey, sessionLink](16)
	for i := range 200 {
		l.event(in(fmt.Sprint("k", i), set(set(pre(10+i), "correlation_id", uuid(9+i)), "metadata.traceparent", fmt.Sprintf("00-%032x-%016x-01", i/3+1, i+1))))
	}
	for _, m := range l.msgs {
		core.Apply(m)
	}
	if p, k := core.engine.lineage.parentLinks.Len(), core.engine.lineage.linkTargets.Len(); p != 8 || k != 16 {
		t.Errorf("%d parents and %d marks", p, k)
	}
}

// TestParentKnownLate: when it becomes known what a session belongs to, its calls
// that are over are put out again, so many and no more, once for each better way of
// knowing it; open ones say it when they end.
func TestParentKnownLate(t *testing.T) {
	const calls = maxReemittedCalls + 6
	l := newLedger(t)
	l.opts.RequireVerdict = false
	l.event(set(pre(1), "metadata.traceparent", oneTrace))
	call := func(i int, change func(tree) tree) {
		id := "k" + strconv.Itoa(i)
		l.event(change(in("child", set(pre(100+2*i), "metadata.tool_call_id", id))))
		l.event(in("child", set(post(101+2*i), "metadata.tool_call_id", id)))
	}
	same := func(e tree) tree { return e }
	for i := range calls {
		call(i, same)
	}
	l.event(in("child", set(pre(90), "metadata.tool_call_id", "open")))
	say := func(n int, path string, v any) {
		l.event(in("child", set(set(hook(n, "UserPromptSubmit", 0), "tool_name", nil), path, v)))
	}
	var at []uint64
	for _, s := range []struct {
		path string
		v    any
	}{{"metadata.traceparent", sameTrace}, {"correlation_id", "s1"}, {"correlation_id", uuid(1)}, {"correlation_id", uuid(1)}} {
		say(500+len(at), s.path, s.v)
		at = append(at, l.msgs[len(l.msgs)-1].Seq)
	}
	l.event(in("child", set(post(91), "metadata.tool_call_id", "open")))
	core, again := New(l.opts), map[uint64][]*events.Call{}
	var outs []Output
	for _, m := range l.msgs {
		for _, o := range core.Apply(m) {
			outs = append(outs, o)
			if o.Finding == nil {
				again[m.Seq] = append(again[m.Seq], recordOf(t, o))
			}
		}
	}
	for i, by := range []string{events.LinkTrace, events.LinkSession, events.LinkEvent} {
		list := again[at[i]]
		if len(list) != maxReemittedCalls || list[0].ToolCallID != "k6" || list[maxReemittedCalls-1].ToolCallID != "k"+strconv.Itoa(calls-1) {
			t.Fatalf("%s: %d calls are put out again, from %+v", by, len(list), list)
		}
		for _, c := range list {
			if c.State != events.CallCompleted || c.Parent == nil || c.Parent.By != by || c.Parent.Session != "s1" {
				t.Fatalf("%s: %+v", by, c)
			}
		}
	}
	if n := len(again[at[3]]); n != 0 {
		t.Errorf("%d calls are put out again although nothing is new", n)
	}
	last := recordOf(t, outs[len(outs)-1])
	if last.ToolCallID != "open" || last.Parent == nil || last.Parent.By != events.LinkEvent {
		t.Errorf("the open call: %+v", last)
	}
	ids := map[string]bool{}
	for _, o := range outs {
		if ids[o.ID] {
			t.Errorf("the id %s is there twice", o.ID)
		}
		ids[o.ID] = true
	}
	for cut := 0; cut <= len(l.msgs); cut += 9 {
		got, _ := goingOn(t, l, cut)
		sameOutputs(t, fmt.Sprint("resumed at ", cut), got, outs)
	}
}

// sessionsOfTest is a sessionRegister: the sessions that it has, and the ranks that it was
// told of.
type sessionsOfTest struct {
	known map[string]bool
	ranks []int8
}

func (s *sessionsOfTest) hasSession(key fact.SessionKey, _ uint32) bool { return s.known[key.Session] }

func (s *sessionsOfTest) upgradeParentLink(_ fact.SessionKey, rank int8) {
	s.ranks = append(s.ranks, rank)
}

// TestParentLinkRanks: a surer link replaces another one, never the other way round, and
// the register hears of each.
func TestParentLinkRanks(t *testing.T) {
	x, register := newLineage(), &sessionsOfTest{known: map[string]bool{"sibling": true}}
	from := func(session string, refs fact.LineageRefs) *fact.Fact {
		return &fact.Fact{Origin: fact.OriginOf("acme", "rt1", session), EventID: session, LineageRefs: refs}
	}
	steps := []struct {
		name   string
		refs   fact.LineageRefs
		parent string
		rank   int8
	}{
		{"a session that is not known", fact.LineageRefs{Correlation: "stranger"}, "", 0},
		{"a sibling", fact.LineageRefs{Correlation: "sibling"}, "sibling", linkBySession},
		{"a goal", fact.LineageRefs{ParentSession: "planner"}, "planner", linkByGoal},
		{"a sibling again", fact.LineageRefs{Correlation: "sibling"}, "planner", linkByGoal},
	}
	for _, s := range steps {
		x.resolveParentSession(from("child", s.refs), register)
		got := x.parentOf(fact.SessionKey{Tenant: "acme", Source: "rt1", Session: "child"})
		if got.rank != s.rank || s.rank > 0 && got.origin.Session != s.parent {
			t.Errorf("%s: rank %d, want %d of %q", s.name, got.rank, s.rank, s.parent)
		}
	}
	x.resolveParentSession(from("planner", fact.LineageRefs{ParentSession: "child"}), register)
	if got := x.parentOf(fact.SessionKey{Tenant: "acme", Source: "rt1", Session: "planner"}); !got.isZero() {
		t.Errorf("a session is its own ancestor: %+v", got)
	}
	if want := []int8{linkBySession, linkByGoal}; !slices.Equal(register.ranks, want) {
		t.Errorf("the register heard of %v, want %v", register.ranks, want)
	}
}
