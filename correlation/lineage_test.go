package correlation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
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
		play func(l *testLog)
		want *events.CallParent
	}{
		{"nothing", func(l *testLog) { l.all(child(with("action", "x"))) }, nil},
		{"the id of the parent's event", func(l *testLog) { l.all(child(with("correlation_id", uuid(1)))) },
			&events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"in capitals", func(l *testLog) {
			l.event(in("s1", set(pre(0), "event_id", "abcdef00-0000-4000-8000-00000000000a")))
			l.all(child(with("correlation_id", "ABCDEF00-0000-4000-8000-00000000000A")))
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"the parent's session", func(l *testLog) { l.all(child(with("correlation_id", "s1"))) },
			&events.CallParent{Source: "rt1", Session: "s1", By: "session"}},
		{"an unknown session", func(l *testLog) { l.all(child(with("correlation_id", "s7"))) }, nil},
		{"the parent call's span", func(l *testLog) { l.all(child(with("metadata.traceparent", oneTrace))) },
			&events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "span"}},
		{"its trace", func(l *testLog) { l.all(child(with("metadata.traceparent", sameTrace))) },
			&events.CallParent{Source: "rt1", Session: "s1", By: "trace"}},
		{"another trace", func(l *testLog) { l.all(child(with("metadata.traceparent", otherTrace))) }, nil},
		{"no trace", func(l *testLog) {
			for _, bad := range []string{"", "00", oneTrace + "0", "01" + oneTrace[2:], "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
				l.all(child(with("metadata.traceparent", bad)))
			}
		}, nil},
		{"the goal's parent session", func(l *testLog) {
			l.event(in("child", set(set(hook(49, "GoalSet", 0), "tool_name", nil), "metadata.goal", tree{"goal_id": "g", "parent_session_id": "s1"})))
			l.all(child(with("action", "x")))
		}, &events.CallParent{Source: "rt1", Session: "s1", By: "goal"}},
		{"the surest counts, whatever comes first", func(l *testLog) {
			l.all(child(with("metadata.traceparent", sameTrace)))
			l.event(in("child", set(set(hook(52, "UserPromptSubmit", 0), "tool_name", nil), "correlation_id", uuid(1))))
			l.event(in("child", set(set(hook(53, "UserPromptSubmit", 0), "tool_name", nil), "correlation_id", "s1")))
			l.event(in("child", set(post(54), "metadata.tool_call_id", "k1")))
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"as AAEP", func(l *testLog) {
			l.event(in("sess_child", wire(60, "session.started", 0, tree{"correlation_id": oneTrace})))
			l.event(in("sess_child", invoked(61, "call_1")))
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "span"}},
		{"another publisher's child", func(l *testLog) {
			for _, e := range child(with("correlation_id", uuid(1))) {
				l.eventFrom("acme", "rt2", e)
			}
		}, &events.CallParent{CallID: parentCall, Source: "rt1", Session: "s1", By: "event"}},
		{"another publisher and the name of a session", func(l *testLog) {
			for _, e := range child(with("correlation_id", "s1")) {
				l.eventFrom("acme", "rt2", e)
			}
		}, nil},
		{"another tenant's child", func(l *testLog) {
			for _, e := range child(func(e tree) tree { return set(set(e, "correlation_id", uuid(1)), "metadata.traceparent", oneTrace) }) {
				l.eventFrom("globex", "rt1", e)
			}
		}, nil},
		{"an id that two publishers used", func(l *testLog) {
			l.eventFrom("acme", "rt2", pre(1))
			l.all(child(with("correlation_id", uuid(1))))
		}, nil},
		{"an id that one publisher used in two sessions", func(l *testLog) {
			l.event(in("s9", pre(1)))
			l.all(child(with("correlation_id", uuid(1))))
		}, nil},
		{"its own event", func(l *testLog) {
			l.all(child(with("action", "x")))
			l.event(in("child", set(set(post(52), "metadata.tool_call_id", "k1"), "correlation_id", uuid(51))))
		}, nil},
		{"a correlation id that others have, too", func(l *testLog) {
			l.event(set(pre(3), "correlation_id", "job-7"))
			l.all(child(with("correlation_id", "job-7")))
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
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
					if call = c.CallID; c.Parent != nil || c.Tenant == "acme" && c.Source == "rt1" && c.Traceparent != oneTrace && tc.name != "a correlation id that others have, too" {
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

func (l *testLog) all(list []tree) {
	for _, e := range list {
		l.event(e)
	}
}

// TestTraceSources: a message may carry its traceparent beside its event.
func TestTraceSources(t *testing.T) {
	plain := space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PreToolUse")
	for name, play := range map[string]func(l *testLog){
		"header": func(l *testLog) { l.put(plain, map[string][]string{"traceparent": {oneTrace}}, encode(pre(1))) },
		"header and nothing": func(l *testLog) {
			l.put(plain, map[string][]string{"traceparent": {"x"}}, encode(set(pre(1), "metadata.traceparent", oneTrace)))
		},
		"structured": func(l *testLog) {
			l.put(plain, map[string][]string{"content-type": {"application/cloudevents+json"}}, encode(tree{"specversion": "1.0", "id": "y", "source": "/rt",
				"type": "hook", "traceparent": oneTrace, "data": pre(1)}))
		},
		"decision": func(l *testLog) {
			l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Traceparent = oneTrace })
		},
		"request": func(l *testLog) {
			l.put(space.Request("acme", "rt1", subject.ProtoAgentHook, "s1"), map[string][]string{events.HeaderDecisionID: {"d1"}, events.HeaderTrace: {oneTrace}}, encode(pre(1)))
		},
		"first one counts": func(l *testLog) {
			l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Traceparent = oneTrace })
			l.event(set(pre(1), "metadata.traceparent", otherTrace))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			play(l)
			if c := l.run().only(t); c.Traceparent != oneTrace {
				t.Errorf("trace %q", c.Traceparent)
			}
		})
	}
}

// TestNoCircles: sessions that claim to be each other's parents do not end up so.
func TestNoCircles(t *testing.T) {
	l := newTestLog(t)
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
			p, has := parents.Get(up.Tenant, up)
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

// TestParentKnownLate: when a session's parent link improves, its closed calls are emitted
// again, at most maxReemittedCalls and once for each rank; open calls have the link in their
// last record.
func TestParentKnownLate(t *testing.T) {
	const calls = maxReemittedCalls + 6
	l := newTestLog(t)
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

func (s *sessionsOfTest) hasSession(key fact.SourceSession) bool {
	return s.known[key.Session]
}

func (s *sessionsOfTest) upgradeParentLink(_ fact.SourceSession, rank int8) {
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
		got := x.parentOf(fact.SourceSession{Tenant: "acme", Source: "rt1", Session: "child"})
		if got.rank != s.rank || s.rank > 0 && got.origin.Session != s.parent {
			t.Errorf("%s: rank %d, want %d of %q", s.name, got.rank, s.rank, s.parent)
		}
	}
	x.resolveParentSession(from("planner", fact.LineageRefs{ParentSession: "child"}), register)
	if got := x.parentOf(fact.SourceSession{Tenant: "acme", Source: "rt1", Session: "planner"}); !got.isZero() {
		t.Errorf("a session is its own ancestor: %+v", got)
	}
	if want := []int8{linkBySession, linkByGoal}; !slices.Equal(register.ranks, want) {
		t.Errorf("the register heard of %v, want %v", register.ranks, want)
	}
}

const afterHandoff = "call_after_handoff/medium"

// handsOver logs the decision on a handoff.
func (l *testLog) handsOver(from, to string, v events.Verdict) uint64 {
	n := len(l.msgs)
	return l.signed(events.Decision{
		DecisionID: fmt.Sprint("h", n), Tenant: "acme", Source: "rt1", Session: "s1", Protocol: "handoff", Agent: from,
		Tool: aioc.HandoffToolName(to), ToolCallID: fmt.Sprint("handoff-", n), Verdict: v, Reasons: []events.Reason{},
		RequestDigest: "sha256:00", DecidedAt: events.At(l.now),
	}, signer)
}

// calls logs what an agent asks for; n tells its calls apart.
func (l *testLog) calls(agent string, n int) {
	e := set(set(pre(100+n), "agent_id", agent), "metadata.tool_call_id", fmt.Sprint("c", n))
	l.admit(e, fmt.Sprint("d", n), events.Allow, func(d *events.Decision) { d.Agent = agent })
	l.event(e)
}

func TestCallAfterHandoff(t *testing.T) {
	for _, tc := range []struct {
		name string
		play func(l *testLog)
		want int
	}{
		{"the agent that took over", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.calls("Finance", 1)
		}, 0},
		{"the agent that handed over", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.calls("Triage", 1)
			l.calls("Triage", 2)
		}, 2},
		{"before the handoff", func(l *testLog) {
			l.calls("Triage", 1)
			l.handsOver("Triage", "Finance", events.Allow)
			l.event(set(set(post(300), "agent_id", "Triage"), "metadata.execution", nil))
		}, 0},
		{"asked for before, announced after", func(l *testLog) {
			e := set(pre(1), "agent_id", "Triage")
			l.request(e, "d1")
			l.handsOver("Triage", "Finance", events.Allow)
			l.decide(e, "d1", events.Allow)
			l.event(e)
		}, 0},
		{"a handoff that was refused", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Deny)
			l.calls("Triage", 1)
		}, 0},
		{"a handoff that waits", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Ask)
			l.calls("Triage", 1)
		}, 0},
		{"handed back", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.handsOver("Finance", "Triage", events.Allow)
			l.calls("Triage", 1)
			l.calls("Finance", 2)
		}, 1},
		{"handed on", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.handsOver("Finance", "Legal", events.Allow)
			l.calls("Triage", 1)
			l.calls("Finance", 2)
			l.calls("Legal", 3)
		}, 2},
		{"to itself", func(l *testLog) {
			l.handsOver("Triage", "Triage", events.Allow)
			l.calls("Triage", 1)
		}, 0},
		{"another handoff by who had handed over", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.handsOver("Triage", "Legal", events.Allow)
		}, 1},
		{"an agent that was never heard of, and no agent", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.calls("triage", 1)
			l.event(pre(1))
		}, 0},
		{"another session", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.event(set(set(pre(1), "agent_id", "Triage"), "session_id", "s2"))
		}, 0},
		{"another publisher, another tenant", func(l *testLog) {
			l.handsOver("Triage", "Finance", events.Allow)
			l.eventFrom("acme", "rt2", set(pre(1), "agent_id", "Triage"))
			l.eventFrom("globex", "rt1", set(pre(1), "agent_id", "Triage"))
		}, 0},
		{"a forged handoff", func(l *testLog) {
			d := decisionOn(pre(1), "h1", events.Allow, l.now)
			d.Protocol, d.Agent, d.Tool = "handoff", "Triage", "handoff_to_finance"
			l.signed(d, stranger)
			l.calls("Triage", 1)
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.RequireVerdict = false
			tc.play(l)
			r := l.run()
			got := 0
			for _, f := range r.findings {
				if f.Rule == CallAfterHandoff {
					got++
					if !slices.Contains(f.Seqs, 2) && tc.name != "handed back" && tc.name != "handed on" {
						t.Errorf("%v do not prove it", f.Seqs)
					}
				}
			}
			if got != tc.want {
				t.Errorf("%d findings, want %d: %+v", got, tc.want, r.findings)
			}
			again := *l
			again.msgs = slices.Clone(l.msgs)
			for _, m := range l.msgs[1:] {
				again.put(m.Subject, m.Header, m.Body)
			}
			if diff := cmp.Diff(rulesOf(r.findings), rulesOf(again.run().findings)); diff != "" {
				t.Errorf("all of it redelivered: %s", diff)
			}
		})
	}
}

// TestHandoffWithdrawn: a later message with another agent retracts the finding.
func TestHandoffWithdrawn(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	l.handsOver("Triage", "Finance", events.Allow)
	l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Agent = "Triage" })
	l.event(set(pre(1), "agent_id", "Finance"))
	l.event(post(2))
	r := l.run()
	if len(r.findings) != 2 || r.findings[0].Rule != CallAfterHandoff || r.findings[1].Retracts != r.findings[0].FindingID ||
		r.findings[1].Severity != events.SeverityInfo {
		t.Fatalf("findings %+v", r.findings)
	}
	calls := r.last()
	if c := calls[len(calls)-1]; len(c.Findings) != 0 || c.Agent != "Finance" || c.State != events.CallCompleted {
		t.Errorf("call %+v", c)
	}
	wantRules(t, r.findings, afterHandoff) // nothing is edited: the first record stays
}

// TestHandoffOutlivesItsSession: waiting does not give an agent its turn back.
func TestHandoffOutlivesItsSession(t *testing.T) {
	l := newTestLog(t)
	l.handsOver("Triage", "Finance", events.Allow)
	l.idle(100 * 3600)
	if n := l.run().core.Stats().Sessions; n != 0 {
		t.Fatalf("%d sessions", n)
	}
	l.calls("Triage", 1)
	wantRules(t, l.run().findings, afterHandoff)
}

func parsed(t testing.TB, text string) any {
	t.Helper()
	v, err := strictjson.Parse([]byte(text), strictjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// said gives differences as "kind pointer".
func placesOf(list []events.Difference) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, d.Kind+" "+d.Pointer)
	}
	return out
}

func TestDifferences(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tc := range []struct {
		name, a, b string
		want       []string
		more       int
	}{
		{"nothing", `{"a":1,"b":[1,{"c":null}]}`, `{"b":[1,{"c":null}],"a":1}`, nil, 0},
		{"a value", `{"a":1,"b":2}`, `{"a":1,"b":3}`, []string{"changed /b"}, 0},
		{"added and removed", `{"a":1}`, `{"b":1}`, []string{"removed /a", "added /b"}, 0},
		{"another type", `{"a":"1"}`, `{"a":1}`, []string{"changed /a"}, 0},
		{"null is a value", `{"a":null}`, `{}`, []string{"removed /a"}, 0},
		{"an object instead of a list", `{"a":{}}`, `{"a":[]}`, []string{"changed /a"}, 0},
		{"within a list", `{"a":[1,2,{"b":true}]}`, `{"a":[1,9,{"b":false},4]}`, []string{"changed /a/1", "changed /a/2/b", "added /a/3"}, 0},
		{"a shorter list", `{"a":[1,2]}`, `{"a":[1]}`, []string{"removed /a/1"}, 0},
		{"names that need an escape", `{"a/b":1,"m~n":1,"":1}`, `{"a/b":2,"m~n":2,"":2}`, []string{"changed /", "changed /a~1b", "changed /m~0n"}, 0},
		{"a whole subtree", `{}`, `{"a":{"b":{"c":1}}}`, []string{"added /a"}, 0},
		{"a name that is too long", `{"` + long + `":1,"z":1}`, `{"` + long + `":2,"z":2}`, []string{"changed ", "changed /z"}, 0},
		{"two names that are too long", `{"k":{"` + long + `":1,"` + long + `y":1}}`, `{"k":{"` + long + `":2,"` + long + `y":2}}`, []string{"changed /k"}, 0},
		{"a name that is too long and no difference", `{"` + long + `":1}`, `{"` + long + `":1}`, nil, 0},
		{"too many", `{}`, many(40), nil, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, more := listDifferences(parsed(t, tc.a), parsed(t, tc.b))
			if more != tc.more {
				t.Errorf("%d more, want %d", more, tc.more)
			}
			if tc.name == "too many" {
				if len(got) != maxDifferences {
					t.Errorf("%d differences", len(got))
				}
				return
			}
			if diff := cmp.Diff(append([]string{}, tc.want...), placesOf(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%02d":1`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// FuzzDifferences: arguments differ where the list says, and nowhere else; no
// value is in the list; the order of the arguments only changes what was added
// into what was removed.
func FuzzDifferences(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"secret"}]}`), []byte(`{"a":[1,{"b":"other"}],"c":1}`))
	f.Add([]byte(`{"a/b":{"~":1}}`), []byte(`{"a/b":[]}`))
	f.Add([]byte(many(50)), []byte(`{}`))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := strictjson.CanonicalBytes(x)
		b, err2 := strictjson.CanonicalBytes(y)
		if err != nil || err2 != nil {
			t.Skip()
		}
		list, more := listDifferences(parsed(t, string(a)), parsed(t, string(b)))
		if same := string(a) == string(b); same != (len(list)+more == 0) {
			t.Fatalf("%s and %s: %v and %d more", a, b, list, more)
		}
		back, backMore := listDifferences(parsed(t, string(b)), parsed(t, string(a)))
		turned := map[string]string{events.DifferenceAdded: events.DifferenceRemoved, events.DifferenceRemoved: events.DifferenceAdded, events.DifferenceChanged: events.DifferenceChanged}
		if len(list) != len(back) || more != backMore || len(list) > maxDifferences {
			t.Fatalf("%v and %d more; turned round %v and %d more", list, more, back, backMore)
		}
		for i, d := range list {
			if len(d.Pointer) > maxPointer || back[i].Pointer != d.Pointer || back[i].Kind != turned[d.Kind] {
				t.Fatalf("%v turned round is %v", d, back[i])
			}
		}
	})
}

// TestMatch: what a record says of admitted and executed arguments, and why it
// says no more.
func TestMatch(t *testing.T) {
	ran := func(v any) tree { return set(post(2), "metadata.tool_input_executed", v) }
	redact := func(e tree, path string) tree {
		return set(e, "metadata.redaction", tree{"applied": true, "fields": []any{path}})
	}
	for _, tc := range []struct {
		name          string
		play          func(l *testLog)
		match, reason string
		places        []string
		more          int
	}{
		{"the same", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(post(2))
		}, matchEqual, "", nil, 0},
		{"another amount", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(ran(tree{"invoice": "A-17", "amount": 999}))
		}, matchDrift, "", []string{"changed /amount"}, 0},
		{"announced only, and something more", func(l *testLog) {
			l.event(pre(1))
			l.event(ran(tree{"invoice": "A-17", "amount": 120, "to": tree{"iban": "secret"}}))
		}, matchDrift, "", []string{"added /to"}, 0},
		{"very many", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			args := tree{"amount": 120, "invoice": "A-17"}
			for i := range 40 {
				args[fmt.Sprint("k", i)] = i
			}
			l.event(ran(args))
		}, matchDrift, "", nil, 8},
		{"another tool", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(set(post(2), "tool_name", "other"))
		}, matchDrift, "", nil, 0},
		{"redacted where it may differ", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(redact(ran(tree{"invoice": "***", "amount": 120}), "/tool_input_executed/invoice"))
		}, matchInconclusive, events.MatchRedacted, nil, 0},
		{"redacted there, and different elsewhere", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(redact(ran(tree{"invoice": "***", "amount": 121}), "/tool_input_executed/invoice"))
		}, matchDrift, "", []string{"changed /amount"}, 0},
		{"redacted, and too large to be kept", func(l *testLog) {
			l.opts.MaxArgsBytes = 10
			l.event(pre(1))
			l.event(redact(ran(tree{"invoice": "***", "amount": 121}), "/tool_input_executed/invoice"))
		}, matchInconclusive, events.MatchNotKept, nil, 0},
		{"different, and not kept", func(l *testLog) {
			l.opts.MaxArgsBytes = 10
			l.admit(pre(1), "d1", events.Allow)
			l.event(ran(tree{"amount": 1}))
		}, matchDrift, events.MatchNotKept, nil, 0},
		{"different, and only the digest of what was admitted", func(l *testLog) {
			l.decide(pre(1), "d1", events.Allow)
			l.event(ran(tree{"amount": 1}))
		}, matchDrift, events.MatchDigestOnly, nil, 0},
		{"announced with other arguments than were admitted", func(l *testLog) {
			l.decide(pre(1), "d1", events.Allow)
			l.event(set(pre(1), "tool_input.amount", 5))
			l.event(ran(tree{"amount": 1}))
		}, matchDrift, events.MatchDigestOnly, nil, 0},
		{"no key for the digest", func(l *testLog) {
			l.opts.TenantKey = nil
			l.decide(pre(1), "d1", events.Allow)
			l.event(post(2))
		}, matchInconclusive, events.MatchDigestForm, nil, 0},
		{"what ran is not stated", func(l *testLog) {
			l.admit(pre(1), "d1", events.Allow)
			l.event(set(post(2), "metadata.tool_input_executed", nil))
		}, matchInconclusive, events.MatchNotReported, nil, 0},
		{"what was admitted is not stated", func(l *testLog) {
			l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.ArgsDigest = "" })
			l.event(post(2))
		}, matchInconclusive, events.MatchNotReported, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.RequireVerdict = false
			tc.play(l)
			r := l.run()
			calls := r.last()
			c := calls[len(calls)-1]
			if c.Match != tc.match || c.MatchReason != tc.reason || c.MoreDifferences != tc.more {
				t.Errorf("match %q because %q, %d more; want %q, %q, %d", c.Match, c.MatchReason, c.MoreDifferences, tc.match, tc.reason, tc.more)
			}
			if tc.more == 0 {
				if diff := cmp.Diff(append([]string{}, tc.places...), placesOf(c.Differences)); diff != "" {
					t.Error(diff)
				}
			}
			body, err := json.Marshal(c)
			if err != nil || strings.Contains(string(body), "secret") || strings.Contains(string(body), "999") {
				t.Errorf("a value is in %s", body)
			}
			if s := r.core.Stats(); s.ArgsBytes < 0 || (len(c.Differences) == 0 && s.ArgsBytes != 0) {
				t.Errorf("%d bytes of arguments are counted", s.ArgsBytes)
			}
		})
	}
}

// TestDifferencesAreBounded: differences count against the same bound as arguments, until
// their call is forgotten.
func TestDifferencesAreBounded(t *testing.T) {
	l := newTestLog(t)
	l.opts.MaxArgsBytes, l.opts.MaxClosedPerSession = 20_000, 8
	for i := range 200 {
		id := fmt.Sprint("c", i)
		before := set(pre(10+2*i), "metadata.tool_call_id", id)
		args := tree{}
		for k := range 40 {
			args[fmt.Sprint("a name of some length ", k)] = k
		}
		l.admit(before, "d"+id, events.Allow)
		l.event(set(set(post(11+2*i), "metadata.tool_call_id", id), "metadata.tool_input_executed", args))
	}
	core := New(l.opts)
	for _, m := range l.msgs {
		core.Apply(m)
		if s := core.Stats(); s.ArgsBytes > l.opts.MaxArgsBytes {
			t.Fatalf("%d bytes", s.ArgsBytes)
		}
	}
	reasons := map[string]int{}
	for _, c := range l.run().last() {
		reasons[c.MatchReason]++
	}
	if reasons[""] < 8 {
		t.Errorf("differences are known of %v", reasons)
	}
	l.idle(30 * 3600)
	if s := l.run().core.Stats(); s.ArgsBytes != 0 || s.Calls != 0 {
		t.Errorf("%d bytes, %d calls are left", s.ArgsBytes, s.Calls)
	}
}

// TestAllowWithoutArguments: an allow that binds no arguments, as in AAEP, allows none that were asked about
// and not allowed.
func TestAllowWithoutArguments(t *testing.T) {
	const session, id = "sess_0123456789abcdef", "call_abc1"
	hook := func(e tree) tree { return set(set(e, "session_id", session), "metadata.tool_call_id", id) }
	bare := func(n int) tree { return set(set(invoked(n, id), "tool", "pay_invoice"), "session_id", session) }
	asked, again, ran, announced := hook(pre(1)), set(hook(pre(4)), "metadata.x", 1), hook(post(3)), bare(2)
	other := set(ran, "metadata.tool_input_executed", tree{"invoice": "A-18"})
	ask := func(l *testLog) { l.admit(asked, "d1", events.Ask, waiting("wf1", "pending")) }
	allowBare := func(l *testLog) { l.admit(announced, "d2", events.Allow, receipted) }
	allow := func(l *testLog) { l.admit(again, "d3", events.Allow) }
	invoke := func(l *testLog) { l.event(announced) }
	end := func(e tree) func(*testLog) {
		return func(l *testLog) {
			l.at(30).event(set(set(e, "metadata.execution.started_at", stamp(20)), "metadata.execution.completed_at", stamp(25)))
		}
	}
	type steps []func(*testLog)
	for _, tc := range []struct {
		name    string
		steps   steps
		call    string // of the call that ran: verdict, match, its reason, whether it has an admitted digest
		finding string
	}{
		{"asked before", steps{ask, allowBare, end(ran)}, "ask equal  true", "executed_while_ask_pending"},
		{"asked before, and invoked", steps{ask, allowBare, invoke, end(ran)}, "ask equal  true", "executed_while_ask_pending"},
		{"asked before, and ran otherwise", steps{ask, allowBare, end(other)}, "ask drift  true", "executed_while_ask_pending input_drift"},
		{"asked before, and allowed very often", steps{ask, func(l *testLog) {
			for i := range 2 * maxCallDecisions {
				l.admit(bare(10+i), fmt.Sprint("more", i), events.Allow)
			}
		}, end(ran)}, "ask equal  true", "executed_while_ask_pending"},
		{"asked before, asked in AAEP, too, and allowed there", steps{ask, func(l *testLog) { l.admit(bare(9), "d9", events.Ask) }, allowBare, end(ran)}, "ask equal  true", "executed_while_ask_pending"},
		{"denied before", steps{func(l *testLog) { l.admit(asked, "d1", events.Deny) }, allowBare, invoke, end(ran)}, "deny   true", "executed_despite_deny"},
		{"denied before, and ran otherwise", steps{func(l *testLog) { l.admit(asked, "d1", events.Deny) }, allowBare, invoke, end(other)}, "allow inconclusive not_reported false", ""},
		{"denied before, and allowed with a digest that cannot be compared", steps{func(l *testLog) { l.admit(asked, "d1", events.Deny) }, func(l *testLog) {
			l.decide(again, "d3", events.Allow, func(d *events.Decision) { d.ArgsDigest = "session-hmac-sha256:00" })
		}, end(ran)}, "allow inconclusive digest_form true", ""},
		{"invoked, and then asked", steps{allowBare, invoke, ask, end(ran)}, "allow inconclusive not_reported false", ""},
		{"invoked, then asked, and ran otherwise", steps{allowBare, invoke, ask, end(other)}, "allow drift  false", "input_drift"},
		{"asked afterwards", steps{allowBare, ask, end(ran)}, "ask equal  true", "executed_while_ask_pending"},
		{"allowed, too", steps{allow, allowBare, invoke, end(ran)}, "allow equal  true", ""},
		{"allowed afterwards, too", steps{allowBare, invoke, allow, end(ran)}, "allow equal  true", ""},
		{"asked, allowed, too", steps{ask, allow, allowBare, invoke, end(ran)}, "allow equal  true", ""},
		{"asked, and allowed afterwards, too", steps{ask, allowBare, allow, invoke, end(ran)}, "allow equal  true", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			for i, step := range tc.steps {
				step(l.at(float64(i)))
			}
			r := l.run()
			var rules []string
			for _, f := range r.findings {
				rules = append(rules, f.Rule)
			}
			slices.Sort(rules)
			if got := strings.Join(rules, " "); got != tc.finding {
				t.Errorf("findings: %s", got)
			}
			for _, c := range r.last() {
				if got := fmt.Sprint(c.Verdict, " ", c.Match, " ", c.MatchReason, " ", c.AdmittedDigest != ""); c.ExecutionSeq != 0 && got != tc.call {
					t.Errorf("#%d %s", c.Occurrence, got)
				}
			}
		})
	}
}
