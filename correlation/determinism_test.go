package correlation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// printed is what a shell would write of outputs.
func printed(outs []Output) []string {
	var list []string
	for _, o := range outs {
		list = append(list, o.Subject+" "+o.Type+" "+o.ID+" "+string(o.Body))
	}
	return list
}

// scenario is a log in which much happens at once: many sessions, all verdicts,
// every rule, deadlines, both protocols.
func scenario(t testing.TB, sessions int) *testLog { return scenarioDated(t, sessions, 0) }

// scenarioDated is a scenario whose producers' clocks are wrong.
func scenarioDated(t testing.TB, sessions int, by time.Duration) *testLog {
	l := newTestLog(t)
	dated := func(e tree) tree { return set(e, "timestamp", stamp(by.Seconds())) }
	if by == 0 {
		dated = func(e tree) tree { return e }
	}
	for i := range sessions {
		session := func(e tree) tree { return dated(set(e, "session_id", fmt.Sprint("s", i))) }
		verdict := events.Verdicts[i%4]
		l.admit(session(pre(10*i)), fmt.Sprint("d", i), verdict)
		l.event(session(pre(10 * i)))
		if i%5 != 0 {
			l.event(session(set(post(10*i+1), "metadata.tool_input_executed.amount", 120+i%3)))
		}
		if i%7 == 0 {
			l.put(space.Event("acme", "rt1", subject.ProtoAgentHook, "x", "PreToolUse"), nil, []byte("{"))
			l.put(space.Decision("acme", "allow", "x"), nil, []byte("{"))
			l.event(session(set(pre(10*i+2), "tool_input.amount", 1)))
			l.event(session(set(pre(10*i), "action", "x")))
		}
		l.event(dated(set(invoked(10*i+3, "call_1"), "session_id", fmt.Sprint("sess_", i))))
		if i%3 == 0 {
			l.event(dated(set(completed(10*i+4, "call_1", "success"), "session_id", fmt.Sprint("sess_", i))))
		}
		if i%11 == 0 {
			l.at(float64(i) * 100)
		}
	}
	l.at(1e6).tick()
	return l
}

// linked is a scenario whose calls lead to each other: handoffs, sub-agents,
// retries, one call in two protocols.
func linked(t testing.TB, sessions int) *testLog {
	l := scenario(t, sessions)
	for i := range sessions {
		s := fmt.Sprint("l", i)
		session := func(e tree) tree { return set(e, "session_id", s) }
		n := 100_000 + 20*i
		l.event(set(session(pre(n)), "metadata.traceparent", fmt.Sprintf("00-%032x-%016x-01", i/2+1, i+1)))
		l.event(set(session(post(n+1)), "metadata.tool_input_executed", tree{"amount": 1, "to": []int{i}}))
		switch i % 3 {
		case 0:
			l.signed(events.Decision{DecisionID: fmt.Sprint("h", i), Tenant: "acme", Source: "rt1", Session: s, Protocol: "handoff", Agent: "old", Tool: "handoff_to_new",
				ToolCallID: "h1", Verdict: events.Allow, Reasons: []events.Reason{}, RequestDigest: "sha256:00", DecidedAt: events.At(l.now)}, signer)
			l.decide(set(session(pre(n+5)), "metadata.tool_call_id", "c9"), fmt.Sprint("o", i), events.Allow, func(d *events.Decision) { d.Agent = "old" })
			l.event(set(set(session(pre(n+5)), "agent_id", "new"), "metadata.tool_call_id", "c9"))
		case 1:
			l.event(set(set(hook(n+6, "SessionStart", 0), "session_id", s+"-child"), "correlation_id", uuid(n)))
			l.event(set(pre(n+7), "session_id", s+"-child"))
		case 2:
			e := set(session(pre(n+5)), "metadata", tree{"tool_call_id": "call_9", "retry": tree{"previous_tool_call_id": "c1"}})
			l.event(set(e, "tool_name", "lookup"))
			l.event(session(invoked(n+6, "call_9")))
			l.event(session(completed(n+7, "call_9", "success")))
		}
	}
	l.at(2e6).tick()
	return l
}

// TestReplay: the same log gives the same outputs, byte for byte, however often and in
// whatever parts it is read.
func TestReplay(t *testing.T) {
	l := linked(t, 60)
	want := l.run()
	seen := map[string]bool{}
	for _, f := range want.findings {
		seen[f.Rule] = true
	}
	if len(want.outputs) < 200 || len(seen) < 8 {
		t.Fatalf("a poor scenario: %d outputs, rules %v", len(want.outputs), seen)
	}
	ids := map[string]bool{}
	for _, o := range want.outputs {
		if ids[o.ID] {
			t.Errorf("the id %s is there twice", o.ID)
		}
		ids[o.ID] = true
	}
	if diff := cmp.Diff(printed(want.outputs), printed(l.run().outputs)); diff != "" {
		t.Error(diff)
	}
	// A shell that starts again replays from the beginning and drops what it had written. The
	// rest must be what was still to come.
	for cut := 0; cut <= len(l.msgs); cut += rounds(17, 170) {
		core, done := New(l.opts), 0
		for _, m := range l.msgs[:cut] {
			done += len(core.Apply(m))
		}
		again, n := New(l.opts), 0
		var rest []Output
		for _, m := range l.msgs {
			for _, o := range again.Apply(m) {
				if n++; n > done {
					rest = append(rest, o)
				}
			}
		}
		if diff := cmp.Diff(printed(want.outputs[done:]), printed(rest)); diff != "" {
			t.Fatalf("cut at %d: %s", cut, diff)
		}
	}
	// Own outputs on the log are no input.
	woven := New(l.opts)
	var outs []Output
	seq := uint64(0)
	next := func(m events.LogMessage) []Output { seq++; m.Seq = seq; return woven.Apply(m) }
	for _, m := range l.msgs {
		news := next(m)
		outs = append(outs, news...)
		for _, o := range news {
			if more := next(events.LogMessage{Subject: o.Subject, Time: m.Time.Add(1 << 50), Body: o.Body}); more != nil {
				t.Fatalf("own output gave %v", more)
			}
		}
	}
	if len(outs) != len(want.outputs) {
		t.Errorf("%d outputs with own records between, %d without", len(outs), len(want.outputs))
	}
}

// step of a random session; see TestModel.
type action struct {
	what    string // admit pre post tick handoff
	id      int
	amount  int
	verdict events.Verdict
	sameID  bool // a pre event with the event id of the last request
	late    bool // a request or pre event that says that it is older than everything else
	agent   int
}

// modelCall is a call in the naive model: plain lists, looked through from end
// to end.
type modelCall struct {
	id, amount int
	verdicts   []events.Verdict
	expires    float64
	open       bool
	denied     bool
	pre, post  bool
	orphan     bool
	lastEvent  int
	previous   *modelCall
	match      string
	places     int // where the arguments differ; -1 if that is not known

	openedAt  int // by which action
	agent     int // 0 if nobody said
	agentRank int
	tooLate   int // the agent that had handed over
	handoff   bool
}

func agentName(n int) string { return fmt.Sprint("Agent ", n) }

func (c *modelCall) effectiveVerdict() events.Verdict {
	if n := len(c.verdicts); n > 0 {
		return c.verdicts[n-1]
	}
	if c.previous != nil {
		return c.previous.effectiveVerdict()
	}
	return ""
}

func (c *modelCall) validUntil() float64 {
	if len(c.verdicts) > 0 || c.previous == nil {
		return c.expires
	}
	return c.previous.validUntil()
}

type model struct {
	calls    []*modelCall
	findings map[string]int
	now      int         // the number of the action
	left     map[int]int // agents that have handed over, and when
}

// said notes whom a message of a call says that it is by.
func (m *model) said(c *modelCall, agent, rank int) {
	if agent != 0 && rank >= c.agentRank || c.agent == 0 {
		c.agent = agent
	}
	c.agentRank = max(c.agentRank, rank)
	if c.tooLate != 0 {
		if c.agent != c.tooLate {
			c.tooLate = 0 // taken back
		}
		return
	}
	if at, gone := m.left[c.agent]; gone && c.openedAt > at {
		c.tooLate = c.agent
		m.findings[afterHandoff]++
	}
}

func (m *model) handoff(a action) {
	c := &modelCall{id: -1, handoff: true, openedAt: m.now, open: a.verdict != events.Deny}
	m.calls = append(m.calls, c)
	m.said(c, a.agent, 1)
	if a.verdict == events.Allow {
		delete(m.left, 1+a.id)
		if m.left[a.agent] = m.now; a.agent == 1+a.id {
			delete(m.left, a.agent)
		}
	}
}

func (m *model) of(id int, fits func(*modelCall) bool) (first, last *modelCall) {
	for _, c := range m.calls {
		if c.id == id && fits(c) {
			if first == nil {
				first = c
			}
			last = c
		}
	}
	return first, last
}

func (m *model) announce(a action, event int, now float64) {
	c, _ := m.of(a.id, func(c *modelCall) bool { return c.open && c.amount == a.amount })
	if c == nil && a.what == "pre" {
		_, c = m.of(a.id, func(c *modelCall) bool {
			return !c.open && !c.orphan && c.amount == a.amount && (c.lastEvent == event || !c.pre && (c.denied && !c.post || a.late && c.post))
		})
	}
	if c == nil && a.what != "pre" && a.late {
		_, c = m.of(a.id, func(c *modelCall) bool { return c.post && !c.orphan && c.amount == a.amount && len(c.verdicts) == 0 })
	}
	if c == nil && a.late {
		if c, _ = m.of(a.id, func(c *modelCall) bool { return c.orphan }); c != nil {
			_, before := m.of(a.id, func(o *modelCall) bool { return !o.open && !o.orphan && o.amount == a.amount })
			if before != nil && slices.Index(m.calls, before) < slices.Index(m.calls, c) && before.effectiveVerdict() != "" && before.effectiveVerdict() != events.Allow {
				c.previous = before
			}
			c.orphan, c.match, c.places = false, matchEqual, 0
			switch c.effectiveVerdict() {
			case "":
				m.findings[noVerdict]++
			case events.Deny:
				m.findings[despiteDeny]++
				c.match = ""
			default:
				m.findings[askPending]++
			}
			if c.amount != a.amount && c.effectiveVerdict() != events.Deny {
				m.findings[driftHigh]++
				c.match, c.places = matchDrift, -1
			}
			c.amount = a.amount
		}
	}
	if c == nil {
		other, _ := m.of(a.id, func(c *modelCall) bool { return c.open })
		if other != nil {
			m.findings[reused]++
		}
		_, before := m.of(a.id, func(c *modelCall) bool { return !c.open && !c.orphan && c.amount == a.amount })
		c = &modelCall{id: a.id, amount: a.amount, open: true, openedAt: m.now}
		if before != nil && before.effectiveVerdict() != "" && before.effectiveVerdict() != events.Allow {
			c.previous = before
		}
		m.calls = append(m.calls, c)
	}
	if a.what == "pre" {
		c.pre = true
		m.said(c, a.agent, 3)
		return
	}
	m.said(c, a.agent, 2)
	c.lastEvent = event
	c.verdicts, c.expires = append(c.verdicts, a.verdict), now+60
	if c.post && len(c.verdicts) == 1 {
		m.findings[afterTheFact]++
	}
	if a.verdict == events.Deny {
		c.open, c.denied = false, true
	}
}

func (m *model) post(a action, now float64) {
	c, _ := m.of(a.id, func(c *modelCall) bool { return c.open })
	if c != nil && c.amount != a.amount {
		_, d := m.of(a.id, func(c *modelCall) bool { return !c.open && c.denied && !c.post && c.amount == a.amount })
		if d != nil {
			c = d
		}
	}
	if c == nil {
		_, c = m.of(a.id, func(c *modelCall) bool { return !c.orphan && !c.post && c.amount == a.amount })
	}
	if c == nil {
		_, c = m.of(a.id, func(c *modelCall) bool { return !c.orphan && !c.post })
	}
	if c == nil {
		_, c = m.of(a.id, func(c *modelCall) bool { return c.effectiveVerdict() == events.Deny })
	}
	if c == nil {
		m.findings[orphan]++
		m.calls = append(m.calls, &modelCall{id: a.id, amount: a.amount, orphan: true, post: true, openedAt: m.now})
		return
	}
	switch v := c.effectiveVerdict(); {
	case v == "":
		m.findings[noVerdict]++
	case v == events.Deny:
		m.findings[despiteDeny]++
	case v != events.Allow:
		m.findings[askPending]++
	case now > c.validUntil():
		m.findings[afterExpiry0]++
	}
	if c.effectiveVerdict() != events.Deny {
		c.match, c.places = matchEqual, 0
		if c.amount != a.amount {
			m.findings[driftHigh]++
			if c.match, c.places = matchDrift, 1; !c.open {
				c.places = -1
			}
		}
	}
	c.open, c.post = false, true
}

func (m *model) tick() {
	for _, c := range m.calls {
		if c.open {
			c.open = false
			if !c.handoff {
				m.findings[missingHook]++
			}
		}
	}
}

// compare holds what a record says of attempts and arguments against the model.
func (m *model) compare(t *rapid.T, records []events.Call, i int) {
	c, r := m.calls[i], records[i]
	from, attempt := "", 0
	for b := c.previous; b != nil; b = b.previous {
		attempt++
	}
	if c.previous != nil {
		from, attempt = records[slices.Index(m.calls, c.previous)].CallID, attempt+1
	}
	places := len(r.Differences)
	if r.MatchReason == events.MatchNotKept {
		places = -1
	}
	// A record of an open call was written before its predecessor was known of.
	if !c.open && (r.RetriedFrom != from || r.Attempt != attempt) || !c.orphan && (r.Match != c.match || places != c.places) {
		t.Fatalf("call %d is %+v in the model and %+v", i, c, r)
	}
	if from != "" && records[slices.Index(m.calls, c.previous)].RetriedTo == "" {
		t.Fatalf("call %d does not name its next attempt", i)
	}
}

// TestModel: against a model that is too simple to be wrong in the same way,
// over random sessions with few ids and few arguments, so that they collide.
func TestModel(t *testing.T) {
	actions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) action {
		return action{
			what:    rapid.SampledFrom([]string{"admit", "admit", "pre", "post", "post", "tick", "handoff"}).Draw(t, "what"),
			id:      rapid.IntRange(0, 1).Draw(t, "id"),
			amount:  rapid.IntRange(0, 1).Draw(t, "amount"),
			verdict: rapid.SampledFrom(events.Verdicts).Draw(t, "verdict"),
			sameID:  rapid.Bool().Draw(t, "sameID"),
			late:    rapid.Bool().Draw(t, "late"),
			agent:   rapid.IntRange(0, 2).Draw(t, "agent"),
		}
	}), 1, 40)
	rapid.Check(t, func(rt *rapid.T) {
		l, m := newTestLog(t), &model{findings: map[string]int{}, left: map[int]int{}}
		lastRequest, askedBy, stamps := map[[2]int]int{}, map[int]int{}, map[int]string{}
		for i, a := range actions.Draw(rt, "actions") {
			l.now = l.now.Add(1e9)
			event := 1000 + i
			m.now, stamps[event] = i, stamp(l.now.Sub(epoch).Seconds())
			build := func(e tree) tree {
				e = set(e, "timestamp", stamps[event])
				if a.agent != 0 && a.what != "post" {
					e = set(e, "agent_id", agentName(a.agent))
				}
				return set(e, "metadata.tool_call_id", fmt.Sprint("c", a.id))
			}
			now := func() float64 { return l.now.Sub(epoch).Seconds() }
			if a.late && a.what != "post" {
				stamps[event] = stamp(0)
			}
			switch a.what {
			case "admit":
				lastRequest[[2]int{a.id, a.amount}], askedBy[event] = event, a.agent
				l.request(set(build(pre(event)), "tool_input.amount", a.amount), fmt.Sprint("d", i))
				at := now()
				l.decide(set(build(pre(event)), "tool_input.amount", a.amount), fmt.Sprint("d", i), a.verdict, func(d *events.Decision) {
					if a.agent != 0 {
						d.Agent = agentName(a.agent)
					}
				})
				m.announce(a, event, at)
			case "pre":
				if a.sameID && lastRequest[[2]int{a.id, a.amount}] != 0 {
					event = lastRequest[[2]int{a.id, a.amount}]
					delete(lastRequest, [2]int{a.id, a.amount})
					a.agent, a.late = askedBy[event], stamps[event] == stamp(0) // one event, one content
				}
				l.event(set(build(pre(event)), "tool_input.amount", a.amount))
				m.announce(a, event, now())
			case "post":
				l.event(set(set(build(post(event)), "metadata.tool_input_executed.amount", a.amount), "metadata.execution", tree{"outcome": "succeeded"}))
				m.post(a, now())
			case "handoff":
				a.agent = max(a.agent, 1)
				l.handsOver(agentName(a.agent), agentName(1+a.id), a.verdict)
				m.handoff(a)
			case "tick":
				l.now = l.now.Add(DefaultMissingAfter)
				l.tick()
				m.tick()
			}
		}
		r := l.run()
		got := map[string]int{}
		for _, f := range r.findings {
			if f.Severity != events.SeverityInfo && checkRules[f.Rule] == nil {
				got[f.Rule+"/"+string(f.Severity)]++
			}
		}
		if diff := cmp.Diff(m.findings, got); diff != "" {
			for _, msg := range l.msgs {
				rt.Logf("%d %s %s", msg.Seq, msg.Subject, msg.Body)
			}
			for _, f := range r.findings {
				rt.Logf("%v %s", f.Seqs, f.Explanation)
			}
			rt.Fatalf("findings: -model +core\n%s", diff)
		}
		calls, open := r.last(), 0
		for i, c := range m.calls {
			if c.open != (calls[i].State == events.CallOpen) || c.orphan != (calls[i].State == events.CallOrphaned) {
				rt.Fatalf("call %d is %+v in the model and %+v", i, c, calls[i])
			}
			if c.open {
				open++
			}
			m.compare(rt, calls, i)
		}
		if len(calls) != len(m.calls) || r.core.Stats().Open != open {
			rt.Fatalf("%d calls and %d open, the model has %d and %d", len(calls), r.core.Stats().Open, len(m.calls), open)
		}
	})
}
