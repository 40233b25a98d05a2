package correlation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
)

// TestCallRecord: what a call's record says, from beginning to end.
func TestCallRecord(t *testing.T) {
	l := newTestLog(t)
	l.admit(set(pre(1), "agent_id", "agent-7"), "d1", events.Allow)
	l.event(set(pre(1), "agent_id", "agent-7"))
	l.at(2).event(post(2))
	r := l.run()
	var states []string
	for _, o := range r.outputs {
		if o.Type != events.TypeCall {
			t.Fatalf("unexpected output %s: %s", o.ID, o.Body)
		}
		states = append(states, strings.TrimPrefix(o.ID, "call_"))
	}
	c := r.only(t)
	id := strings.TrimPrefix(c.CallID, "call_")
	if want := []string{id + "-open", id + "-completed"}; !slices.Equal(states, want) {
		t.Errorf("outputs %v, want %v", states, want)
	}
	canonical := []byte(`{"amount":120,"invoice":"A-17"}`)
	step := func(name string, seq uint64, millis int, n int) events.TimelineEntry {
		return events.TimelineEntry{Step: name, Seq: seq, At: events.At(epoch.Add(time.Duration(millis) * time.Millisecond)), EventID: uuid(n)}
	}
	want := events.Call{
		CallID: c.CallID, Tenant: "acme", Source: "rt1", Protocol: "agenthook", Agent: "agent-7", Session: "s1", ToolCallID: "c1",
		Occurrence: 1, Tool: "pay_invoice", State: events.CallCompleted, Outcome: "succeeded", Verdict: events.Allow, DecisionID: "d1",
		DecisionSeq: 3, ExecutionSeq: 5, AdmittedDigest: digest.Keyed(tenantKey, canonical), ExecutedDigest: digest.Keyed(tenantKey, canonical),
		Match: "equal", Timeline: []events.TimelineEntry{
			step("requested", 2, 20, 1), step("decided", 3, 30, 1), step("invoked", 4, 40, 1), step("completed", 5, 2010, 2),
		},
		Durations: &events.CallDurations{Decided: micros(10_000), Started: micros(10_000), Ran: micros(1_970_000)},
		Claimed:   &events.CallClaim{StartedAt: events.At(epoch.Add(time.Second)), CompletedAt: events.At(epoch.Add(2 * time.Second))},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if r.outputs[1].Subject != "gov.calls.acme.completed.s1" {
		t.Errorf("subject %s", r.outputs[1].Subject)
	}
	body, err := events.Encode(c)
	if err != nil || !bytes.Equal(body, r.outputs[1].Body) {
		t.Errorf("body %s is not the record's canonical form", r.outputs[1].Body)
	}
}

func micros(n int64) *int64 { return &n }

// TestOrder: whatever the order in which request, decision and pre event come,
// the call ends the same.
func TestOrder(t *testing.T) {
	for _, verdict := range []events.Verdict{events.Allow, events.Deny, events.Ask} {
		for _, protocol := range []string{subject.ProtoAgentHook, subject.ProtoAAEP} {
			var want *events.Call
			for _, order := range permutations("rdp") {
				l := newTestLog(t)
				before, after := pre(1), post(2)
				if protocol == subject.ProtoAAEP {
					before, after = invoked(1, "call_1"), completed(2, "call_1", "success")
				}
				for _, part := range order {
					switch part {
					case 'r':
						l.request(before, "d1")
					case 'd':
						l.decide(before, "d1", verdict)
					case 'p':
						l.event(before)
					}
				}
				l.at(2).event(after)
				r := l.run()
				got := r.only(t)
				slices.SortFunc(got.Timeline, func(a, b events.TimelineEntry) int { return strings.Compare(a.Step, b.Step) })
				for i := range got.Timeline {
					got.Timeline[i].Seq, got.Timeline[i].At = 0, events.Time{}
				}
				got.DecisionSeq, got.ExecutionSeq, got.Durations = 0, 0, nil // which depend on the order
				if want == nil {
					want = &got
				}
				if diff := cmp.Diff(*want, got); diff != "" {
					t.Errorf("%s %s, order %s: %s", protocol, verdict, order, diff)
				}
			}
		}
	}
}

func permutations(s string) []string {
	if len(s) <= 1 {
		return []string{s}
	}
	var list []string
	for i := range s {
		for _, rest := range permutations(s[:i] + s[i+1:]) {
			list = append(list, s[i:i+1]+rest)
		}
	}
	return list
}

// TestRedelivery: an equal message or event that comes again changes nothing.
func TestRedelivery(t *testing.T) {
	l := newTestLog(t)
	l.admit(pre(1), "d1", events.Deny)
	l.event(pre(1))
	l.event(set(pre(5), "metadata.tool_call_id", "c5"))
	l.at(2).event(post(2))
	l.put(space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PostToolUse"), nil, []byte("{"))
	l.put(space.Decision("acme", "allow", "s1"), nil, []byte("{"))
	once := l.run()
	for _, m := range slices.Clone(l.msgs[1:]) {
		if m.Subject != "gov.events.acme.rt1.agenthook.s1.request" {
			l.put(m.Subject, m.Header, m.Body)
		}
	}
	twice := l.run()
	if diff := cmp.Diff(once.findings, twice.findings); diff != "" {
		t.Error(diff)
	}
	if len(once.findings) == 0 || len(once.outputs) != len(twice.outputs) {
		t.Errorf("%d outputs, then %d", len(once.outputs), len(twice.outputs))
	}
	core := New(l.opts)
	for _, m := range l.msgs {
		core.Apply(m)
		before := core.Stats()
		if outs := core.Apply(m); outs != nil || core.Stats() != before {
			t.Fatalf("sequence %d applied again gave %v", m.Seq, outs)
		}
	}
	// Another log that holds the same violation names it alike.
	other := newTestLog(t)
	other.tick()
	other.admit(pre(1), "d1", events.Deny)
	other.event(pre(1))
	other.at(7).event(post(2))
	if a, b := once.findings[0], other.run().findings[0]; a.FindingID != b.FindingID || a.Rule != ExecutedDespiteDeny {
		t.Errorf("ids %s and %s", a.FindingID, b.FindingID)
	}
}

// TestNeverAcross: nothing links tenants, sources or sessions.
func TestNeverAcross(t *testing.T) {
	for name, event := range map[string]func(l *testLog){
		"another tenant":           func(l *testLog) { l.eventFrom("globex", "rt1", post(2)) },
		"another source":           func(l *testLog) { l.eventFrom("acme", "rt2", post(2)) },
		"another session":          func(l *testLog) { l.event(set(post(2), "session_id", "s2")) },
		"no session":               func(l *testLog) { l.event(set(post(2), "session_id", nil)) },
		"session in another case":  func(l *testLog) { l.event(set(post(2), "session_id", "S1")) },
		"a token that looks alike": func(l *testLog) { l.eventFrom("acme", "~cnQx", post(2)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.admit(pre(1), "d1", events.Allow)
			l.at(2)
			event(l)
			r := l.run()
			wantRules(t, r.findings, orphan)
			if calls := r.last(); len(calls) != 2 || calls[0].State != events.CallOpen || calls[1].State != events.CallOrphaned {
				t.Errorf("calls %+v", calls)
			}
		})
	}
}

// TestIDsFromHell: ids that repeat, that are huge, that look alike.
func TestIDsFromHell(t *testing.T) {
	t.Run("one constant id, one call after the other", func(t *testing.T) {
		l := newTestLog(t)
		for i := range 40 {
			before := set(pre(100+i), "tool_input.amount", i)
			l.admit(before, fmt.Sprint("d", i), events.Allow)
			l.event(before)
			l.event(set(set(post(200+i), "metadata.tool_input_executed.amount", i), "metadata.execution.started_at", nil))
		}
		r := l.run()
		wantRules(t, r.findings)
		calls := r.last()
		if len(calls) != 40 || calls[39].Occurrence != 40 || calls[39].State != events.CallCompleted {
			t.Errorf("%d calls, last %+v", len(calls), calls[len(calls)-1])
		}
	})
	t.Run("one constant id, all calls at once", func(t *testing.T) {
		l := newTestLog(t)
		for i := range 5 {
			l.admit(set(pre(100+i), "tool_input.amount", i), fmt.Sprint("d", i), events.Allow)
		}
		for i := range 5 {
			l.event(set(set(post(200+i), "metadata.tool_input_executed.amount", i), "metadata.execution.started_at", nil))
		}
		r := l.run()
		wantRules(t, r.findings, reused, reused, reused, reused)
		for _, c := range r.last() {
			if c.State != events.CallCompleted || c.Match != matchEqual {
				t.Errorf("call %+v", c)
			}
		}
	})
	t.Run("one constant event id", func(t *testing.T) {
		l := newTestLog(t)
		for i := range 3 {
			id := fmt.Sprint("c", i)
			l.admit(set(pre(1), "metadata.tool_call_id", id), fmt.Sprint("d", i), events.Allow)
			l.event(set(pre(1), "metadata.tool_call_id", id))
			l.event(set(set(post(1), "metadata.tool_call_id", id), "metadata.execution.started_at", nil))
		}
		r := l.run()
		wantRules(t, r.findings, slices.Repeat([]string{conflicting}, 5)...)
		for _, f := range r.findings {
			if len(f.Seqs) != 2 || f.Seqs[0] >= f.Seqs[1] {
				t.Errorf("%s is proved by %v, want both events", f.FindingID, f.Seqs)
			}
		}
		if calls := r.last(); len(calls) != 3 || calls[2].State != events.CallCompleted {
			t.Errorf("calls %+v", calls)
		}
	})
	t.Run("alike but not the same", func(t *testing.T) {
		for _, id := range []string{"C1", "c1 ", "\u0441" + "1", "c1\u200b", "c1\u0000", "~YzE", "c\u00e9", "ce\u0301"} {
			l := newTestLog(t)
			first := "c1"
			if id == "ce\u0301" {
				first = "c\u00e9"
			}
			l.admit(set(pre(1), "metadata.tool_call_id", first), "d1", events.Allow)
			l.at(2).event(set(post(2), "metadata.tool_call_id", id))
			wantRules(t, l.run().findings, orphan)
		}
	})
	t.Run("10 KB", func(t *testing.T) {
		for _, size := range []int{65, 1000, 10_000} {
			id := strings.Repeat("x", size)
			l := newTestLog(t)
			long := func(e tree) tree { return set(set(e, "metadata.tool_call_id", id), "session_id", id) }
			l.admit(long(pre(1)), "d1", events.Allow)
			l.event(long(pre(1)))
			l.at(2).event(long(post(2)))
			r := l.run()
			wantRules(t, r.findings)
			c := r.only(t)
			if len(c.ToolCallID) > fact.MaxIDBytes || c.State != events.CallCompleted || (size <= fact.MaxIDBytes && c.Session != id) {
				t.Errorf("call %+v", c)
			}
			if last := r.outputs[len(r.outputs)-1]; last.Subject != space.Call("acme", "completed", id) {
				t.Errorf("subject %s", last.Subject)
			}
		}
	})
	t.Run("no ids at all", func(t *testing.T) {
		l := newTestLog(t)
		bare := func(e tree) tree { return set(set(e, "metadata.tool_call_id", nil), "session_id", nil) }
		for i := range 3 {
			before := set(bare(pre(100+i)), "tool_input.amount", i)
			l.admit(before, fmt.Sprint("d", i), events.Allow)
			l.event(before)
		}
		for i := range 3 {
			l.event(set(set(bare(post(200+i)), "metadata.tool_input_executed.amount", i), "metadata.execution.started_at", nil))
		}
		r := l.run()
		wantRules(t, r.findings)
		for i, c := range r.last() {
			if c.State != events.CallCompleted || !c.Inferred || !c.WeakScope || c.Occurrence != i+1 || c.Verdict != events.Allow {
				t.Errorf("call %+v", c)
			}
		}
	})
}

// TestCloudEvents: producers may wrap their events.
func TestCloudEvents(t *testing.T) {
	l := newTestLog(t)
	l.admit(pre(1), "d1", events.Deny)
	attrs := cloudevents.Attributes{ID: "x", Source: "/rt", Type: "hook"}
	l.at(2).put(space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PostToolUse"), cloudevents.Binary(attrs), encode(post(2)))
	structured := encode(tree{"specversion": "1.0", "id": "y", "source": "/rt", "type": "hook", "data": post(3)})
	l.put(space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PostToolUse"), map[string][]string{"content-type": {"application/cloudevents+json"}}, structured)
	l.put(space.Event("acme", "rt1", subject.ProtoAgentHook, "s1", "PostToolUse"), map[string][]string{"content-type": {"application/cloudevents-batch+json"}}, structured)
	r := l.run()
	wantRules(t, r.findings, despiteDeny, despiteDeny, schema)
}

// TestHeaders: a request may carry its session and id in headers.
func TestHeaders(t *testing.T) {
	l := newTestLog(t)
	bare := set(set(pre(1), "session_id", nil), "metadata", nil)
	l.put(space.Request("acme", "rt1", subject.ProtoAgentHook, "s1"), map[string][]string{
		events.HeaderDecisionID: {"d1"}, events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}, encode(bare))
	l.decide(pre(1), "d1", events.Deny)
	l.at(2).event(post(2))
	r := l.run()
	wantRules(t, r.findings, despiteDeny)
	r.only(t)
}

// TestDeadlines: time is the log's, and an idle shard can be told when to look.
func TestDeadlines(t *testing.T) {
	l := newTestLog(t)
	l.opts.MissingAfter = time.Minute
	l.event(pre(1))
	r := l.run()
	due, ok := r.core.NextDeadline()
	if want := l.now.Add(time.Minute); !ok || !due.Equal(want) {
		t.Fatalf("deadline %v %v, want %v", due, ok, want)
	}
	own := events.LogMessage{Seq: 50, Subject: space.Call("acme", "open", "s1"), Time: due.Add(time.Hour), Body: []byte("{}")}
	if outs := r.core.Apply(own); outs != nil || !r.core.Stats().EventTime.Equal(l.now) {
		t.Errorf("an own record let time pass: %v", outs)
	}
	tick := func(seq uint64, at time.Time) []Output {
		return r.core.Apply(events.LogMessage{Seq: seq, Subject: space.Control("GOV", events.ControlTick), Time: at, Body: []byte("{}")})
	}
	if outs := tick(51, due.Add(-1)); outs != nil {
		t.Errorf("fired too early: %v", outs)
	}
	if outs := tick(52, due); len(outs) != 3 {
		t.Errorf("%d outputs at the deadline, want a finding, its check and a call", len(outs))
	}
	if _, ok := r.core.NextDeadline(); ok || r.core.Stats().Open != 0 {
		t.Error("something is still open")
	}
	if outs := tick(53, due.Add(-time.Hour)); outs != nil || r.core.engine.timers.Now().Before(due) {
		t.Error("time went back")
	}
}

// TestDeadlineOrder: calls that come due together are abandoned in the order in which they were opened.
func TestDeadlineOrder(t *testing.T) {
	l := newTestLog(t)
	var want []string
	for i := range 20 {
		id := fmt.Sprint("c", i)
		want = append(want, id)
		l.event(set(pre(100+i), "metadata.tool_call_id", id))
		l.msgs[len(l.msgs)-1].Time = epoch.Add(time.Second)
	}
	l.at(4000).tick()
	var got []string
	for _, f := range l.run().findings {
		got = append(got, f.ToolCallID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
}

// TestLateCompletion: a completion that arrives after all takes the finding back.
func TestLateCompletion(t *testing.T) {
	l := newTestLog(t)
	l.admit(pre(1), "d1", events.Allow)
	l.at(4000).tick()
	l.event(post(2))
	r := l.run()
	if len(r.findings) != 2 || r.findings[1].Severity != events.SeverityInfo || r.findings[1].Retracts != r.findings[0].FindingID {
		t.Errorf("findings %+v", r.findings)
	}
	c := r.only(t)
	if c.State != events.CallCompleted || len(c.Findings) != 0 {
		t.Errorf("call %+v", c)
	}
	var states []events.CallState
	for _, c := range r.calls {
		states = append(states, c.State)
	}
	if want := []events.CallState{events.CallOpen, events.CallAbandoned, events.CallCompleted}; !slices.Equal(states, want) {
		t.Errorf("states %v", states)
	}
}

// TestRanAndDeniedLater: a call that ran before it was denied is a finding.
func TestRanAndDeniedLater(t *testing.T) {
	for v, want := range map[events.Verdict]string{events.Deny: "afterwards it was denied.", events.Allow: "afterwards a verdict was recorded."} {
		l := newTestLog(t)
		l.event(pre(1))
		l.at(2).event(post(2))
		l.admit(pre(1), "d1", v)
		r := l.run()
		told := 0
		for _, f := range r.findings {
			if f.Rule == ExecutedBeforeVerdict && strings.HasSuffix(f.Explanation, want) {
				told++
			}
		}
		if told != 1 || !slices.ContainsFunc(r.checks, func(f events.Finding) bool { return f.Rule == "AH-C-083" }) {
			t.Errorf("%s: %+v", v, r.findings)
		}
	}
}

// TestLateDenial: a denial may come after the deadline of its call.
func TestLateDenial(t *testing.T) {
	l := newTestLog(t)
	l.request(pre(1), "d1")
	l.at(4000).tick()
	l.decide(pre(1), "d1", events.Deny)
	r := l.run()
	if len(r.findings) != 2 || r.findings[1].Retracts != r.findings[0].FindingID {
		t.Errorf("findings %+v", r.findings)
	}
	if c := r.only(t); c.State != events.CallDenied || len(c.Findings) != 0 {
		t.Errorf("call %+v", c)
	}
}

// TestFailModeIsInfo: a request without a verdict, which a fail mode let pass, is a finding of
// severity info.
func TestFailModeIsInfo(t *testing.T) {
	l := newTestLog(t)
	l.request(pre(1), "d1")
	l.event(pre(1))
	l.event(failMode("allow"))
	l.at(2).event(post(2))
	r := l.run()
	if len(r.findings) != 1 || r.findings[0].Rule != ExecutedWithoutVerdict || r.findings[0].Severity != events.SeverityInfo {
		t.Errorf("findings %+v", r.findings)
	}
	if c := r.only(t); len(c.Findings) != 0 {
		t.Errorf("call %+v", c)
	}
}

// TestBounds: nothing grows without a limit, and what is forgotten is reported.
func TestBounds(t *testing.T) {
	open := func(i int) tree { return set(pre(1000+i), "metadata.tool_call_id", fmt.Sprint("c", i)) }
	t.Run("open calls of a session", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxOpenPerSession = 3
		for i := range 5 {
			l.event(open(i))
		}
		r := l.run()
		wantRules(t, r.findings, missingHook, missingHook)
		if r.core.Stats().Open != 3 {
			t.Errorf("%d open", r.core.Stats().Open)
		}
	})
	t.Run("open calls of a session that were denied first", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxOpenPerSession = 3
		for i := range 5 {
			l.admit(invoked(i, fmt.Sprint("call_", i)), fmt.Sprint("d", i), events.Deny)
		}
		for i := range 5 {
			l.event(invoked(i, fmt.Sprint("call_", i)))
		}
		r := l.run()
		wantRules(t, r.findings, despiteDeny, despiteDeny, despiteDeny, despiteDeny, despiteDeny, missingAAEP, missingAAEP)
		if r.core.Stats().Open != 3 {
			t.Errorf("%d open", r.core.Stats().Open)
		}
	})
	t.Run("sessions", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxSessions = 2
		for i := range 4 {
			l.event(set(open(i), "session_id", fmt.Sprint("s", i)))
		}
		l.event(set(open(0), "session_id", "s0b"))
		r := l.run()
		if s := r.core.Stats(); s.Sessions != 2 || s.Evicted != 3 || s.Open != 2 {
			t.Errorf("stats %+v", s)
		}
	})
	t.Run("an abandoned call stays while its session closes others", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxClosedPerSession = 4
		l.event(open(0))
		for i := 1; i < 10; i++ {
			l.at(3600).event(open(i))
			l.at(3600).event(set(post(2000+i), "metadata.tool_call_id", fmt.Sprint("c", i)))
		}
		l.at(3601).event(set(post(2000), "metadata.tool_call_id", "c0"))
		r := l.run()
		for _, f := range r.findings {
			if f.Rule == OrphanCompletion {
				t.Errorf("finding %+v", f)
			}
		}
		if r.core.Stats().Open != 0 {
			t.Errorf("%d open", r.core.Stats().Open)
		}
	})
	t.Run("abandoned calls take half of the places", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxClosedPerSession = 4
		for i := range 9 {
			l.event(open(i))
		}
		l.at(3600).event(open(9))
		l.at(3600).event(set(post(2009), "metadata.tool_call_id", "c9"))
		l.at(3601).event(set(set(post(3009), "metadata.tool_call_id", "c9"), "metadata.outcome", "failed"))
		for _, f := range l.run().findings {
			if f.Rule == OrphanCompletion && f.Severity == events.SeverityHigh && !strings.Contains(f.Explanation, "no call of that id open any more") {
				t.Errorf("finding %+v", f)
			}
		}
	})
	t.Run("a session with an open call outlasts those without", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxCalls = 4
		l.event(set(open(0), "session_id", "long"))
		for i := 1; i < 20; i++ {
			l.event(set(open(i), "session_id", fmt.Sprint("s", i)))
			l.at(2).event(set(set(post(2000+i), "metadata.tool_call_id", fmt.Sprint("c", i)), "session_id", fmt.Sprint("s", i)))
		}
		l.at(3).event(set(set(post(2000), "metadata.tool_call_id", "c0"), "session_id", "long"))
		r := l.run()
		for _, f := range r.findings {
			if f.Rule == OrphanCompletion || f.Rule == MissingCompletion {
				t.Errorf("finding %+v", f)
			}
		}
		if s := r.core.Stats(); s.Evicted == 0 || s.Calls > 4 {
			t.Errorf("stats %+v", s)
		}
	})
	t.Run("the end of a call that was forgotten for want of room", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxSessions = 1
		l.event(set(open(0), "session_id", "s0"))
		l.event(set(open(1), "session_id", "s1"))
		l.at(2).event(set(set(post(2000), "metadata.tool_call_id", "c0"), "session_id", "s0"))
		l.at(3).event(set(set(post(3000), "metadata.tool_call_id", "z"), "session_id", "s0"))
		r := l.run()
		orphans := 0
		for _, f := range r.findings {
			if f.Rule == OrphanCompletion {
				orphans++
				excused := f.Severity == events.SeverityLow && strings.Contains(f.Explanation, "forgotten for want of room")
				if excused != (f.ToolCallID == "c0") {
					t.Errorf("finding %+v", f)
				}
			}
		}
		if orphans != 2 {
			t.Errorf("%d findings in %+v", orphans, r.findings)
		}
	})
	t.Run("the end of a call of an erased session", func(t *testing.T) {
		l := newTestLog(t)
		end := func(n int, tenant, session string) {
			l.at(float64(n)).eventFrom(tenant, "rt1", set(set(post(n), "metadata.tool_call_id", fmt.Sprint("c", n)), "session_id", session))
		}
		erase := func(state string, sessions ...string) {
			body, err := events.Encode(events.Erasure{State: state, Tenant: "acme", Sessions: sessions})
			if err != nil {
				t.Fatal(err)
			}
			l.put(space.Control("GOV", events.ControlErasure), nil, body)
		}
		erase(events.ErasureBegun, "s1", "s2")
		erase(events.ErasureDone, "s3")
		end(1000, "acme", "s1")
		end(1001, "globex", "s1")
		end(1002, "acme", "s3")
		end(1003, "acme", "s2")
		end(86_500, "acme", "s2")
		found, r := map[string]string{}, l.run()
		for _, f := range slices.Concat(r.findings, r.checks) {
			if f.Rule == OrphanCompletion || f.Rule == "AH-C-078" {
				found[f.ToolCallID] += string(f.Severity) + " "
			}
			if f.Rule == OrphanCompletion && strings.Contains(f.Explanation, "was erased") != (f.Severity == events.SeverityLow) {
				t.Errorf("finding %+v", f)
			}
		}
		if want := map[string]string{"c1000": "low ", "c1001": "high high ", "c1002": "high high ", "c1003": "low ", "c86500": "high high "}; !maps.Equal(found, want) {
			t.Errorf("%v, want %v", found, want)
		}
	})
	t.Run("an end without a call in a session that was silent for a day", func(t *testing.T) {
		l := newTestLog(t)
		l.event(open(0))
		l.at(2).event(set(post(2000), "metadata.tool_call_id", "c0"))
		l.at(100_000).event(set(post(3000), "metadata.tool_call_id", "z"))
		unannounced := 0
		for _, f := range l.run().findings {
			if f.Rule == OrphanCompletion && strings.Contains(f.Explanation, "neither asked for it nor announced it") {
				unannounced++
			}
		}
		if unannounced != 1 {
			t.Errorf("%d findings of an end that nothing announced", unannounced)
		}
	})
	t.Run("a forgotten session that comes back has new occurrences", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxSessions = 1
		seen := map[string]bool{}
		for i := range 6 {
			l.event(set(set(pre(1000+i), "session_id", fmt.Sprint("s", i%2)), "tool_input.amount", i))
		}
		for _, c := range l.run().last() {
			if seen[c.CallID] {
				t.Errorf("two calls have the id %s", c.CallID)
			}
			seen[c.CallID] = true
		}
		if len(seen) != 6 {
			t.Errorf("%d calls", len(seen))
		}
	})
	t.Run("ids", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxIDsPerSession, l.opts.MaxClosedPerSession, l.opts.MaxOpenPerSession = 4, 2, 1
		seen := map[string]bool{}
		for i := range 60 {
			id := fmt.Sprint("c", i%9)
			l.event(set(set(pre(1000+i), "metadata.tool_call_id", id), "tool_input.amount", i))
			l.event(set(set(post(2000+i), "metadata.tool_call_id", id), "metadata.tool_input_executed.amount", i))
		}
		r := l.run()
		for _, c := range r.last() {
			seen[c.CallID] = true
			if c.State != events.CallCompleted {
				t.Errorf("call %+v", c)
			}
		}
		s, _ := r.core.engine.calls.sessions.Oldest()
		if len(seen) != 60 || s.groups.len() > 4 || len(s.closed) > 2 {
			t.Errorf("%d calls, %d ids, %d closed", len(seen), s.groups.len(), len(s.closed))
		}
	})
	t.Run("kept arguments", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxArgsBytes = 100
		for i := range 10 {
			l.event(open(i))
		}
		r := l.run()
		if n := r.core.Stats().ArgsBytes; n == 0 || n > 100 {
			t.Errorf("%d bytes", n)
		}
		for i := range 10 {
			l.event(set(post(2000+i), "metadata.tool_call_id", fmt.Sprint("c", i)))
		}
		if n := l.run().core.Stats().ArgsBytes; n != 0 {
			t.Errorf("%d bytes after all calls were closed", n)
		}
	})
	t.Run("asked again and again", func(t *testing.T) {
		l := newTestLog(t)
		l.event(open(2))
		for i := range 500 {
			l.request(pre(1), fmt.Sprint("d", i))
		}
		core := l.run().core
		s, _ := core.engine.calls.sessions.Oldest()
		if len(core.engine.timers.callDeadlines) > 100 || len(s.decisionIndex) > maxCallDecisions || len(s.open[1].timeline) > maxTimeline {
			t.Errorf("%d deadlines, %d decisions, %d steps", len(core.engine.timers.callDeadlines), len(s.decisionIndex), len(s.open[1].timeline))
		}
	})
	t.Run("calls and ids of all sessions", func(t *testing.T) {
		for name, bound := range map[string]func(*Options){
			"calls": func(o *Options) { o.MaxCalls = 10 },
			"ids":   func(o *Options) { o.MaxIDs = 10 },
		} {
			l := newTestLog(t)
			bound(&l.opts)
			for i := range 60 {
				session := fmt.Sprint("s", i/3)
				l.event(set(open(i), "session_id", session))
				if i%2 == 0 {
					l.event(set(set(post(2000+i), "metadata.tool_call_id", fmt.Sprint("c", i)), "session_id", session))
				}
				l.event(set(set(post(3000+i), "metadata.tool_call_id", "x"), "session_id", session))
			}
			core := l.run().core
			s, calls, ids := core.Stats(), 0, 0
			for _, s := range core.engine.calls.sessions.All() {
				calls += len(s.open) + len(s.closed)
				ids += s.groups.len()
			}
			if s.Calls != calls || s.IDs != ids || (name == "calls" && calls > 10) || (name == "ids" && ids > 10) {
				t.Errorf("%s: stats %+v, %d calls, %d ids", name, s, calls, ids)
			}
		}
	})
	t.Run("open calls of an id", func(t *testing.T) {
		l := newTestLog(t)
		for i := range maxOpenPerID + 5 {
			l.event(set(pre(1000+i), "tool_input.amount", i))
		}
		r := l.run()
		if n := r.core.Stats().Open; n != maxOpenPerID {
			t.Errorf("%d open", n)
		}
	})
	t.Run("sources", func(t *testing.T) {
		l := newTestLog(t)
		l.opts.MaxPublishers, l.opts.MaxEventsPerSource, l.opts.MaxEvents = 2, 3, 1
		for i := range 5 {
			l.eventFrom("acme", fmt.Sprint("rt", i), open(i))
			l.eventFrom("acme", "rt0", open(100+i))
		}
		core := l.run().core
		if n := core.Stats().Sources; n != 2 {
			t.Errorf("%d sources", n)
		}
		if s, ok := core.engine.history.sources.Get(fact.PublisherKey{Tenant: "acme", Source: "rt0"}); !ok || s.firstContents.Len() > 3 {
			t.Error("the busy source was forgotten, or remembers too much")
		}
	})
	t.Run("idle sessions", func(t *testing.T) {
		l := newTestLog(t)
		l.event(pre(1))
		l.event(post(2))
		l.idle(25 * 3600)
		if s := l.run().core.Stats(); s.Sessions != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestCatalogue: the catalogue is complete and says something.
func TestCatalogue(t *testing.T) {
	for _, r := range Rules() {
		if r.Explanation == "" || r.Remedy == "" || r.Severity == "" || len(r.Refs) == 0 {
			t.Errorf("rule %s is not complete", r.Name)
		}
	}
	if len(Rules()) != 14 {
		t.Errorf("%d rules", len(Rules()))
	}
}

// TestPrefix: another prefix is another space.
func TestPrefix(t *testing.T) {
	l := newTestLog(t)
	l.opts.Space = subject.Space{Prefix: "a.b"}
	for i := range l.msgs {
		l.msgs[i].Subject = "a.b" + strings.TrimPrefix(l.msgs[i].Subject, "gov")
	}
	l.put("a.b.events.acme.rt1.agenthook.s1.PostToolUse", nil, encode(post(2)))
	l.put("a.b.events.acme", nil, encode(post(2)))
	core := New(l.opts)
	var subjects []string
	for _, m := range l.msgs {
		for _, o := range core.Apply(m) {
			subjects = append(subjects, o.Subject)
		}
	}
	want := []string{"a.b.findings.acme.high.s1", "a.b.findings.acme.high.s1", "a.b.calls.acme.orphaned.s1", "a.b.findings.acme.medium.~"}
	if !slices.Equal(subjects, want) {
		t.Errorf("subjects %v, want %v", subjects, want)
	}
}

// TestOtherMessages: the other messages of a log.
func TestOtherMessages(t *testing.T) {
	approval := events.Approval{WorkflowID: "w", Tenant: "acme", Status: "approved", ActionDigest: "x", RequestedAt: events.At(epoch)}
	encoded, err := events.Encode(approval)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, subject, body string
		want                []string
	}{
		{"AUMP event", space.Event("acme", "rt1", subject.ProtoAUMP, "s1", "mandate"), `{}`, []string{schema}},
		{"broken AUMP event", space.Event("acme", "rt1", subject.ProtoAUMP, "s1", "mandate"), `[`, []string{schema}},
		{"tool request", space.Request("acme", "rt1", subject.ProtoTool, "s1"), `{}`, nil},
		{"request in no protocol", space.Request("acme", "rt1", "gossip", "s1"), `{}`, []string{schema}},
		{"unsigned approval", space.Approval("acme", "approved", "w"), string(encoded), []string{forged}},
		{"broken approval", space.Approval("acme", "approved", "w"), `{}x`, []string{schema}},
		{"reply", space.Event("acme", "rt1", subject.ProtoAAEP, "s1", "confirmation.reply"), string(encode(tree{
			"type": "confirmation.reply", "reply_token": "rpl_1", "decision": "accept", "subscription_id": "sub_1", "timestamp": stamp(1)})), nil},
		{"foreign AAEP event", space.Event("acme", "rt1", subject.ProtoAAEP, "sess_1", "medai:alert.raised"), string(encode(set(wire(1, "x", 1, tree{
			"@context": []any{"https://aaep-protocol.org/context/v1", "https://med.example/v1"}}), "type", "medai:alert.raised"))), nil},
		{"policy", space.Control("GOV", events.ControlPolicy), `{}`, nil},
		{"own finding", space.Finding("acme", "low", "s1"), `{}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.put(tc.subject, nil, []byte(tc.body))
			r := l.run()
			wantRules(t, r.findings, tc.want...)
			if len(r.calls) != 0 {
				t.Errorf("calls %+v", r.calls)
			}
		})
	}
}

// TestForeignDecision: decisions in protocols without decoded events open calls, and are
// compared with nothing.
func TestForeignDecision(t *testing.T) {
	l := newTestLog(t)
	l.decide(pre(1), "d1", events.Allow, func(d *events.Decision) { d.Protocol = subject.ProtoAANA })
	l.at(4000).tick()
	r := l.run()
	wantRules(t, r.findings)
	if c := r.only(t); c.State != events.CallAbandoned {
		t.Errorf("call %+v", c)
	}
}

// TestApprovalDeniedEvent: a refusal that the publisher reports is no approval.
func TestApprovalDeniedEvent(t *testing.T) {
	before, after := golden()
	refusal := set(hook(8, "ApprovalDenied", 1), "metadata.approval", nil)
	wantRules(t, check(t, subject.ProtoAgentHook, before, refusal, set(after, "metadata.approval", nil)), askPending)
	granted := set(hook(8, "ApprovalGranted", 1), "metadata.approval", nil)
	wantRules(t, check(t, subject.ProtoAgentHook, before, granted, set(after, "metadata.approval", nil)))
}

// What a retired key signs is a forged record, also when its key record is
// published again; what it signed before stays a verdict. A retirement that the
// checkpoint key did not sign retires nothing and is a finding itself.
func TestRetiredKey(t *testing.T) {
	for name, c := range map[string]struct {
		vouch         string
		before, after int // forged records, up to the retirement and behind it
	}{
		"retired":               {"ok", 0, 1},
		"retired by a stranger": {"no", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.RetireVoucher = func(k events.KeyRetirement) bool { return k.Vouch == "ok" && k.KeyID == signer.ID }
			l.admit(pre(1), "d1", events.Deny)
			b, err := events.Encode(events.KeyRetirement{KeyID: signer.ID, Use: "receipt", RetiredAt: events.At(epoch), Vouch: c.vouch})
			if err != nil {
				t.Fatal(err)
			}
			l.put(space.Control("GOV", events.ControlKeyRetired), nil, b)
			l.key(signer, "ok")
			if got := l.forgeries(); got != c.before {
				t.Errorf("%d forged records before", got)
			}
			l.admit(set(pre(2), "metadata.tool_call_id", "c2"), "d2", events.Deny)
			if got := l.forgeries(); got != c.after {
				t.Errorf("%d forged records after", got)
			}
		})
	}
}

func (l *testLog) forgeries() (n int) {
	for _, f := range l.run().findings {
		if f.Rule == ruleForged.Name {
			n++
		}
	}
	return n
}
