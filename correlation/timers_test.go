package correlation

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

const week = 7 * 24 * time.Hour

// standingFindings are the findings that are not retracted, by id.
func (r result) standingFindings() (list []string) {
	withdrawn := map[string]bool{}
	for _, f := range r.findings {
		withdrawn[f.Retracts] = true
	}
	for _, f := range r.findings {
		if f.Retracts == "" && !withdrawn[f.FindingID] {
			list = append(list, f.Rule+" "+string(f.Severity)+" "+f.Session+" "+f.ToolCallID+" "+f.FindingID)
		}
	}
	slices.Sort(list)
	return list
}

// without is the log without the ticks that the correlator wrote.
func (l *testLog) without(kind string) *testLog {
	c := *l
	c.msgs = nil
	for _, m := range l.msgs {
		if !strings.HasSuffix(m.Subject, "."+kind) {
			m.Seq = uint64(len(c.msgs)) + 1
			c.msgs = append(c.msgs, m)
		}
	}
	return &c
}

// live is the log of a shard with a running correlator, which writes a tick whenever a
// deadline has come on an idle log.
func (l *testLog) live() *testLog {
	c := *l
	c.msgs = nil
	core := New(c.opts)
	add := func(m events.LogMessage) {
		m.Seq = uint64(len(c.msgs)) + 1
		c.msgs = append(c.msgs, m)
		core.Apply(m)
	}
	for _, m := range l.msgs {
		for {
			due, open := core.NextDeadline()
			if !open || !due.Before(m.Time) {
				break
			}
			add(events.LogMessage{Subject: space.Control("GOV", events.ControlTick), Time: due.Add(time.Millisecond), Body: []byte(`{}`)})
		}
		add(m)
	}
	return &c
}

// A correlator that follows the log and one that reads it a week later make the same findings:
// time is the log's.
func TestAWeekOldLog(t *testing.T) {
	l := scenario(t, 60).without(events.ControlTick)
	l.now = l.now.Add(week)
	l.tick()
	live := l.live()
	if len(live.msgs) < len(l.msgs)+20 {
		t.Fatalf("%d ticks: time hardly passed", len(live.msgs)-len(l.msgs))
	}
	want := live.run()
	if diff := cmp.Diff(want.standingFindings(), l.run().standingFindings()); diff != "" {
		t.Errorf("a week later (+) and live (-): %s", diff)
	}
	if diff := cmp.Diff(printed(want.outputs), printed(live.run().outputs)); diff != "" {
		t.Errorf("the live log once more: %s", diff)
	}
}

// Producers' times move nothing: a log whose events are dated a week back or ahead gives the
// same findings, and each deadline fires at the same message.
func TestTimestampsThatLie(t *testing.T) {
	want := scenario(t, 60).live().run()
	for _, by := range []time.Duration{-week, week} {
		got := scenarioDated(t, 60, by).live().run()
		// The id of a conflict is of what the two events hold, their dates among it.
		if diff := cmp.Diff(nameless(want.standingFindings()), nameless(got.standingFindings())); diff != "" {
			t.Errorf("dated %v otherwise (+): %s", by, diff)
		}
		if diff := cmp.Diff(deadlinesOf(want), deadlinesOf(got)); diff != "" || len(deadlinesOf(want)) == 0 {
			t.Errorf("deadlines of events dated %v otherwise (+): %s", by, diff)
		}
	}
}

// nameless leaves the ids out.
func nameless(list []string) (out []string) {
	for _, f := range list {
		out = append(out, f[:strings.LastIndex(f, " ")])
	}
	return out
}

// deadlinesOf are the findings that time alone caused, and their times.
func deadlinesOf(r result) (list []string) {
	for _, f := range r.findings {
		if f.Rule == "missing_completion" {
			list = append(list, f.FindingID+" "+f.DetectedAt.String())
		}
	}
	return list
}

// compared are the rules that hold the broker's clock against the one of the
// admitter, a producer or an executor: what they say depends on both.
var compared = []string{"executed_before_verdict ", "AH-C-083 ", "executed_after_expiry ", "AAEP-C-067 "}

// everything is what stands of all findings, what clocks are compared for apart.
func (r result) everything() []string {
	all := result{findings: slices.Concat(r.findings, r.checks)}
	return slices.DeleteFunc(all.standingFindings(), func(f string) bool {
		return slices.ContainsFunc(compared, func(rule string) bool { return strings.HasPrefix(f, rule) })
	})
}

// The broker's clock goes wrong for a while, anywhere in the log, and is set right. Event time
// never runs back, findings that came too early are retracted when the calls end, and the
// standing findings are the same as without the jump.
func TestAClockThatJumps(t *testing.T) {
	l := scenario(t, 60).without(events.ControlTick)
	l.msgs = l.msgs[:len(l.msgs):len(l.msgs)]
	end := l.now.Add(4 * week)
	last := func(c testLog) result {
		c.now = end
		c.tick()
		r, before := result{core: New(c.opts)}, time.Time{}
		for _, m := range c.msgs {
			r.add(t, r.core.Apply(m))
			now := r.core.engine.timers.Now()
			if now.Before(before) {
				t.Fatalf("time ran back from %v to %v at message %d", before, now, m.Seq)
			}
			before = now
		}
		return r
	}
	// Whether an id that comes again is used again depends on whether the time of the
	// call before was over.
	of := func(r result) []string {
		return slices.DeleteFunc(r.everything(), func(f string) bool {
			neverEnded := strings.Contains(f, " s0 c1 ") || strings.Contains(f, " s35 c1 ")
			return neverEnded || strings.HasPrefix(f, "reused_tool_call_id ") || strings.HasPrefix(f, "AH-C-052 ")
		})
	}
	want := of(last(*l))
	for _, by := range []time.Duration{20 * time.Minute, time.Hour, 25 * time.Hour, week, -time.Hour, -week} {
		for from := 0; from < len(l.msgs); from += 10 {
			c := *l
			c.msgs = slices.Clone(l.msgs)
			for i := from; i < min(from+len(l.msgs)/6, len(l.msgs)); i++ {
				c.msgs[i].Time = c.msgs[i].Time.Add(by)
			}
			if diff := cmp.Diff(want, of(last(c))); diff != "" {
				t.Fatalf("%v from message %d on (+): %s", by, from, diff)
			}
		}
	}
}

// A clock that was wrong for one message postpones no deadline, and causes no finding about an
// honest publisher.
func TestDeadlinesAfterAJump(t *testing.T) {
	for _, by := range []time.Duration{week, -week} {
		l := newTestLog(t)
		l.opts.RequireVerdict = false
		l.event(pre(1))
		l.at(60)
		right := l.now
		l.now = l.now.Add(by)
		l.tick()
		l.now = right
		l.event(post(2))
		l.event(set(pre(3), "session_id", "s2"))
		for l.now.Before(right.Add(DefaultMissingAfter + 2*time.Minute)) {
			l.now = l.now.Add(time.Minute)
			l.tick()
		}
		r := l.run()
		var list []string
		for _, f := range r.standingFindings() {
			list = append(list, strings.Join(strings.Fields(f)[:3], " "))
		}
		if diff := cmp.Diff([]string{"missing_completion medium s2"}, list); diff != "" {
			t.Errorf("%v: %s", by, diff)
		}
		for _, f := range r.findings {
			if f.Session == "s2" && f.DetectedAt.Sub(right) > DefaultMissingAfter+2*time.Minute {
				t.Errorf("%v: noticed at %v", by, f.DetectedAt)
			}
		}
	}
}

// A leap of the clock, however long, forgets no session that could continue, whenever it was
// last active.
func TestNothingIsForgottenOverALeap(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	l.event(pre(1))
	l.event(wire(0, "session.started", 0, nil))
	l.now = l.now.Add(10 * week)
	l.tick()
	l.event(post(2))
	l.event(wire(1, "session.completed", 1, nil))
	got := slices.DeleteFunc(l.run().everything(), func(f string) bool { return strings.HasPrefix(f, "AAEP-C-014 info ") })
	if len(got) > 0 {
		t.Errorf("found %q", got)
	}
}

// TestFollows: a session is followed until it was idle for long enough, or its last open call is given up. Then none of
// its texts is in memory.
func TestFollows(t *testing.T) {
	const text = "hush-hush-4711"
	said := func(e tree) tree { return set(e, "tool_input", tree{"note": text}) }
	follows := func(l *testLog) (string, bool) {
		core, got := l.run().core, ""
		for _, tenant := range []string{"acme", "other"} {
			for _, name := range []string{"s1", "a b", "sess_1"} {
				if core.RemembersAny(tenant, []string{"none", name}) {
					got += tenant + "/" + name + " "
				}
			}
		}
		return got, bytes.Contains(core.Snapshot(), []byte(text))
	}
	for _, tt := range []struct {
		name string
		play func(l *testLog)
		want string
		text bool
	}{
		{"a closed call", func(l *testLog) { l.event(said(pre(1))); l.at(2).event(post(2)) }, "acme/s1 ", false},
		{"a name with a blank", func(l *testLog) { l.event(set(pre(1), "session_id", "a b")) }, "acme/a b ", false},
		{"an AAEP session without calls", func(l *testLog) { l.event(wire(1, "session.started", 1, tree{})) }, "acme/sess_1 ", false},
		{"idle", func(l *testLog) { l.event(said(pre(1))); l.at(2).event(post(2)); l.idle(25 * 3600) }, "", false},
		{"idle with an open call", func(l *testLog) {
			l.admit(said(pre(1)), "d1", events.Ask, func(d *events.Decision) {
				d.Approval = &events.ApprovalRef{WorkflowID: "wf", Status: fact.StatusPending, ExpiresAt: events.At(l.now.Add(72 * time.Hour))}
			})
			l.idle(25 * 3600)
		}, "acme/s1 ", true},
		{"a reply without a question", func(l *testLog) {
			l.put(space.Event("acme", "rt1", subject.ProtoAAEP, "", "clarification.reply"), nil, encode(tree{"type": "clarification.reply",
				"subscription_id": "sub_1", "reply_token": "rpl_1", "response": text, "timestamp": stamp(1)}))
		}, "", false},
	} {
		l := newTestLog(t)
		tt.play(l)
		if got, text := follows(l); got != tt.want || text != tt.text {
			t.Errorf("%s: it follows %q and has the text: %v; want %q, %v", tt.name, got, text, tt.want, tt.text)
		}
	}
}

// TestOneSessionAlone: a session replayed alone, with ticks where NextDeadline and NextIdle
// ask for them, has the same findings as among others. It is forgotten, but not before its own
// deadline.
func TestOneSessionAlone(t *testing.T) {
	of := func(e tree) tree { return set(e, "session_id", "s2") }
	waiting := func(l *testLog, d time.Duration) func(*events.Decision) {
		return func(r *events.Decision) {
			r.Approval = &events.ApprovalRef{WorkflowID: "wf-" + r.DecisionID, Status: fact.StatusPending, ExpiresAt: events.At(l.now.Add(d))}
		}
	}
	for name, play := range map[string]func(l *testLog){
		"it waits for three days": func(l *testLog) {
			l.admit(of(pre(2)), "d2", events.Ask, waiting(l, 72*time.Hour))
			l.hours(1, 72)
			l.at(72*3600 + 15*60 + 2).tick()
			l.at(72*3600 + 15*60 + 60).event(of(set(post(4), "timestamp", stamp(72*3600+15*60))))
		},
		"another waits for six": func(l *testLog) {
			l.admit(pre(1), "d1", events.Ask, waiting(l, 144*time.Hour))
			l.at(10).event(of(pre(2)))
			l.hours(1, 30)
			l.at(30 * 3600).event(of(set(post(4), "timestamp", stamp(30*3600))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.RequireVerdict = false
			play(l)
			l.tick()
			if diff := cmp.Diff(ofS2(l.run()), ofS2(l.alone(t, "s2"))); diff != "" {
				t.Errorf("among others (-), alone (+): %s", diff)
			}
		})
	}
}

// ofS2 is what was found of session s2, and when.
func ofS2(r result) (list []string) {
	for _, f := range append(r.findings, r.checks...) {
		if f.Session == "s2" {
			list = append(list, f.FindingID+" "+f.Rule+" "+f.DetectedAt.String())
		}
	}
	return list
}

// hours is a log on which something happens every hour.
func (l *testLog) hours(from, to int) {
	for h := from; h < to; h++ {
		l.at(float64(h) * 3600).tick()
	}
}

// alone replays a session as countersign replay does.
func (l *testLog) alone(t *testing.T, session string) result {
	r, seq := result{core: New(l.opts)}, uint64(0)
	apply := func(m events.LogMessage) {
		seq = m.Seq
		r.add(t, r.core.Apply(m))
	}
	pass := func(to uint64, until time.Time) {
		for {
			due, found := r.core.NextDeadline()
			if idle, too := r.core.NextIdle(); too && (!found || idle.Before(due)) {
				due, found = idle, true
			}
			if !found || until.Before(due) {
				return
			}
			for seq < to && l.msgs[seq].Time.Before(due) {
				seq++
			}
			if seq >= to {
				return
			}
			apply(events.LogMessage{Seq: seq + 1, Time: l.msgs[seq].Time, Subject: space.Control("GOV", events.ControlTick), Body: []byte("{}")})
		}
	}
	for _, m := range l.msgs {
		p, _ := space.Parse(m.Subject)
		if p.Session == session || p.Kind == events.ControlKey {
			pass(m.Seq-1, m.Time)
			apply(m)
		}
	}
	pass(uint64(len(l.msgs)), l.now)
	return r
}

// TestADeadlineIsNotInThePast: the next deadline is one that event time has not reached,
// whatever was applied before, so that a tick for it is written.
func TestADeadlineIsNotInThePast(t *testing.T) {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	shake := func(source string, e tree) {
		typ, _ := e["type"].(string)
		l.put(space.Event("acme", source, subject.ProtoAAEP, "", typ), nil, encode(e))
	}
	request := func(who string) tree {
		return tree{"type": "subscription.request", "aaep_version": "1.0.0", "subscriber_id": who, "capabilities": tree{}}
	}
	accepted := tree{"type": "subscription.accepted", "subscription_id": "sub_1", "aaep_version": "1.0.0", "producer": tree{"agent_id": "clerk"},
		"honored_capabilities": tree{"supports_confirmation_reply": true}}
	for i, source := range []string{"rt1", "rt2"} {
		l.at(float64(i) * 3600)
		shake(source, request("a"))
		shake(source, accepted)
		shake(source, request("b")) // nobody answers
	}
	l.event(wire(1, "session.started", 0, nil))
	l.event(set(completeAAEP(tree{"t": "awaiting.confirmation", "ask": "1", "at": 3602.0}, 2), "timeout_seconds", 600))
	l.at(3700).event(tree{"type": "confirmation.reply", "subscription_id": "sub_1", "reply_token": "rpl_1", "decision": "reject", "timestamp": stamp(3700)})
	l.event(wire(9, "session.cancelled", 3701, tree{"cancelled_by": "user"}))
	l.hours(2, 24)
	l.at(23.9 * 3600).event(pre(50))
	for range 20 {
		core := l.run().core
		due, found := core.NextDeadline()
		if !found {
			break
		}
		if now := core.Stats().EventTime; !due.After(now) {
			t.Fatalf("the next deadline is %v at %v", due, now)
		}
		l.now = due
		l.tick()
	}
	if r := l.run(); r.core.Stats().Open != 0 {
		t.Error("a call is still open")
	}
}

// TestDeadlinesInOrder: calls are due in the order of their deadlines, an extended call only
// at its last one, a closed call never, and the next timer is the next deadline.
func TestDeadlinesInOrder(t *testing.T) {
	ts := &timers{opts: &engineOptions{Options: Options{MissingAfter: time.Minute}}}
	ts.StartAt(epoch)
	open := func(order uint64) *call { return &call{state: events.CallOpen, order: order, details: new(details)} }
	first, second, extended, closed := open(1), open(2), open(3), open(4)
	for _, c := range []*call{extended, closed, second, first} {
		ts.extendDeadline(c, &fact.Fact{}, 4)
	}
	ts.extendDeadline(extended, &fact.Fact{ExpectedDuration: time.Hour}, 4)
	closed.state = events.CallCompleted

	var due []uint64
	popAll := func() {
		for c, found := ts.popDueCall(); found; c, found = ts.popDueCall() {
			due = append(due, c.order)
		}
	}
	popAll()
	ts.AdvanceTo(epoch.Add(time.Minute))
	if !ts.anyDue() {
		t.Error("no timer is due at the first deadline")
	}
	popAll()
	if want := []uint64{1, 2}; !slices.Equal(due, want) {
		t.Errorf("due are the calls %v, want %v", due, want)
	}
	if at, found := ts.nextDeadline(); !found || !at.Equal(epoch.Add(2*time.Hour)) || ts.anyDue() || !ts.nextTimer.Equal(at) {
		t.Errorf("the next deadline is %v (%v), the next timer %v", at, found, ts.nextTimer)
	}
}

// TestStaleDeadlinesAreBounded: the deadlines of one call do not add up.
func TestStaleDeadlinesAreBounded(t *testing.T) {
	ts := &timers{opts: &engineOptions{Options: Options{MissingAfter: time.Minute}}}
	ts.StartAt(epoch)
	c := &call{state: events.CallOpen, details: new(details)}
	for i := range 1000 {
		ts.AdvanceTo(epoch.Add(time.Duration(i) * time.Second))
		ts.extendDeadline(c, &fact.Fact{}, 1)
	}
	if n := len(ts.callDeadlines); n > 66 {
		t.Errorf("one open call has %d deadlines", n)
	}
}

// Late events retract the findings that they disprove; findings about a wrong order stay.
func TestLateEventsOfASession(t *testing.T) {
	at := func(n int, typ string, number any, members tree) tree {
		e := wire(n, typ, float64(n), members)
		if number != nil {
			e = set(e, "sequence_number", number)
		}
		return e
	}
	progress := func(n int) tree { return at(n, "progress.updated", n, tree{"progress": tree{"percent": 1}}) }
	start, end := at(0, "session.started", 0, nil), func(n int) tree { return at(n, "session.cancelled", n, tree{"cancelled_by": "user"}) }
	chunk := func(n, position int, text string, last bool) tree {
		return set(at(n, "output.streaming", n, tree{"output_id": "out_1", "chunk": text, "position": position, "complete": last}), "summary_normal", nil)
	}
	asked := completeAAEP(tree{"t": "awaiting.confirmation", "ask": "1", "at": 1.0}, 1)
	yes := set(set(completeAAEP(tree{"t": "confirmation.reply", "at": 2.0}, 2), "reply_token", "rpl_1"), "decision", "reject")
	offers := set(set(completeAAEP(tree{"t": "awaiting.clarification", "ask": "1", "at": 1.0}, 1), "accepted_response_kinds", []string{"multiple_choice"}),
		"choices", []tree{{"value": "a", "label": "A"}, {"value": "b", "label": "B"}})
	chosen := func(text string) tree {
		return set(set(completeAAEP(tree{"t": "clarification.reply", "at": 2.0}, 2), "reply_token", "rpl_1"), "response", text)
	}
	bare := func(e tree) tree { return set(e, "sequence_number", nil) }
	refused := func(n int) tree { return set(progress(n), "progress", nil) }
	for _, tc := range []struct {
		name   string
		events []tree
		want   []string
	}{
		{"one number late", []tree{start, progress(2), progress(1), end(3)}, []string{"AAEP-C-065 a number comes again or late"}},
		{"two of three numbers late", []tree{start, progress(4), progress(2), progress(1), end(5)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late", "AAEP-C-065 numbers are missing"}},
		{"all of three numbers late", []tree{start, progress(4), progress(2), progress(1), progress(3), end(5)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late"}},
		{"a number twice fills nothing", []tree{start, progress(1), progress(3), set(progress(1), "event_id", "evt_x"), end(4)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 numbers are missing"}},
		{"the start is late by its number", []tree{progress(1), start, end(2)}, []string{"AAEP-C-065 a number comes again or late"}},
		{"the start is late by its time", []tree{bare(progress(1)), bare(start), bare(end(2))}, []string{"AAEP-C-066 Time runs backwards within a session."}},
		{"the start was emitted late", []tree{bare(progress(1)), bare(set(start, "timestamp", stamp(1.5))), bare(end(2))},
			[]string{"AAEP-C-060 An event came before its session had started."}},
		{"a refused number overtakes another", []tree{start, progress(1), refused(3), progress(2), progress(4), end(5)},
			[]string{"AAEP-C-065 a number comes again or late"}},
		{"a refused number far ahead", []tree{start, progress(1), refused(100_000), progress(2), end(3)}, nil},
		{"a chunk is late", []tree{start, chunk(1, 0, "abc", false), chunk(3, 6, "ghi", false), chunk(2, 3, "def", false), chunk(4, 9, "", true), end(5)},
			[]string{"AAEP-C-065 a number comes again or late"}},
		{"two chunks are late, the last one first", []tree{start, chunk(1, 0, "abc", false), chunk(4, 9, "", true), chunk(2, 3, "def", false), chunk(3, 6, "ghi", false), end(5)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late"}},
		{"a chunk is sent late", []tree{start, chunk(1, 0, "abc", false), chunk(2, 6, "ghi", false), chunk(3, 3, "def", false), chunk(4, 6, "", true), end(5)},
			[]string{"AAEP-C-140 The position within an output went back.", "AAEP-C-141 A chunk does not begin where the one before it ended."}},
		{"a reply overtakes its question", []tree{bare(start), yes, bare(asked), bare(at(3, "state.changed", nil, tree{"from_state": "idle", "to_state": "thinking"})), bare(end(4))}, nil},
		{"a choice overtakes its question, and is sent again", []tree{bare(start), chosen("b"), bare(offers), chosen("b"), bare(at(3, "state.changed", nil, tree{"from_state": "idle", "to_state": "thinking"})), bare(end(4))}, nil},
		{"a choice that is not offered overtakes its question", []tree{bare(start), chosen("c"), bare(offers), bare(end(4))},
			[]string{"AAEP-C-117 An answer is of a kind, or a choice, that was not offered."}},
		{"a reply to what nobody asks", []tree{bare(start), set(yes, "reply_token", "rpl_9"), bare(asked), yes, bare(end(4))},
			[]string{"AAEP-C-110 A reply is to no question that is open: no question has this token."}},
		{"a reply from before its question", []tree{bare(start), set(yes, "timestamp", stamp(-60)), bare(asked), bare(end(4))},
			[]string{"AAEP-C-110 A reply is to no question that is open: no question has this token."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			for i, e := range tc.events {
				l.at(float64(i)).event(e)
			}
			r := l.run()
			withdrawn := map[string]bool{}
			for _, f := range r.checks {
				withdrawn[f.Retracts] = true
			}
			var got []string
			for _, f := range r.checks {
				if f.Retracts == "" && !withdrawn[f.FindingID] && f.Severity != "info" && f.Rule != "AAEP-C-030" {
					what := f.Explanation
					if _, after, ok := strings.Cut(what, ": "); ok && f.Rule == "AAEP-C-065" {
						what = strings.TrimSuffix(after, ".")
					}
					got = append(got, f.Rule+" "+what)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for cut := range l.msgs {
				resumedAt(t, l, cut, r)
			}
		})
	}
}

// TestLateRedelivery: an event that is delivered again is a duplicate, even after thousands of
// others of its publisher.
func TestLateRedelivery(t *testing.T) {
	l := newTestLog(t)
	var early []tree
	for i := range 1500 {
		before := set(set(pre(2*i), "metadata.tool_call_id", fmt.Sprint("c", i)), "session_id", fmt.Sprint("s", i%7))
		after := set(set(post(2*i+1), "metadata.tool_call_id", fmt.Sprint("c", i)), "session_id", fmt.Sprint("s", i%7))
		l.admit(before, fmt.Sprint("d", i), events.Allow, receipted)
		l.event(before)
		l.event(after)
		if i < 3 {
			early = append(early, before, after)
		}
	}
	before := l.run()
	for _, e := range early {
		l.event(e)
	}
	if r := l.run(); len(r.outputs) != len(before.outputs) {
		t.Errorf("%d outputs more, the first of them %s", len(r.outputs)-len(before.outputs), r.outputs[len(before.outputs)].Body)
	}
}

// TestEventIDsAreBounded: publishers share the table of event ids. A publisher that floods it
// takes no ids that others are granted.
func TestEventIDsAreBounded(t *testing.T) {
	l := newTestLog(t)
	l.opts.MaxEventsPerSource, l.opts.MaxEvents = 10, 100
	n := 0
	send := func(source string, times int) {
		for range times {
			n++
			l.eventFrom("acme", source, set(pre(n), "metadata.tool_call_id", fmt.Sprint("c", n)))
		}
	}
	size := func(e *engine, source string) int {
		s, _ := e.history.sources.Get(fact.PublisherKey{Tenant: "acme", Source: source})
		return s.firstContents.Len()
	}
	send("silent", 90)
	for i := range 5 {
		send(fmt.Sprint("small", i), 8)
	}
	send("flood", 1000)
	m := l.run().core.engine
	total := 0
	for _, s := range m.history.sources.All() {
		total += s.firstContents.Len()
	}
	if total != m.history.eventIDCount || total > 100 {
		t.Errorf("%d ids are remembered, counted as %d", total, m.history.eventIDCount)
	}
	if size(m, "silent") != 10 || size(m, "small0") != 8 || size(m, "flood") != 50 {
		t.Errorf("silent %d, small %d, flood %d", size(m, "silent"), size(m, "small0"), size(m, "flood"))
	}
}

// TestFullKeepsItsIDs: a publisher at its bound takes no more room for further ids.
func TestFullKeepsItsIDs(t *testing.T) {
	l := newTestLog(t)
	l.opts.MaxEventsPerSource, l.opts.MaxEvents = 8, 64
	for i := range 300 {
		l.event(set(pre(i), "metadata.tool_call_id", fmt.Sprint("c", i)))
	}
	m := l.run().core.engine
	for _, s := range m.history.sources.All() {
		if n := s.firstContents.Len(); n != 64 {
			t.Errorf("%d ids", n)
		}
	}
}

// TestAnnouncedAgainOnceForgotten: the event that announced a call opens no second one when it comes again
// after its id was forgotten. One with another content, or under another id, does.
func TestAnnouncedAgainOnceForgotten(t *testing.T) {
	repeated, requested := pre(1), set(pre(1), "event_id", uuid(8))
	for _, tc := range []struct {
		name       string
		first, end tree
		again      tree
		calls      int
	}{
		{"the same", repeated, post(2), repeated, 1},
		{"the same, requested under another id", repeated, post(2), repeated, 1},
		{"the same, of a call that was stopped", repeated, hook(2, "ToolUseBlocked", 2), repeated, 1},
		{"the same, of AAEP", invoked(1, "call_1"), completed(2, "call_1", "success"), invoked(1, "call_1"), 1},
		{"another id", repeated, post(2), set(repeated, "event_id", uuid(9)), 2},
		{"another time", repeated, post(2), set(repeated, "timestamp", stamp(9)), 2},
		{"other arguments", repeated, post(2), set(repeated, "tool_input.amount", 7), 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLog(t)
			l.opts.RequireVerdict, l.opts.MaxEventsPerSource, l.opts.MaxEvents = false, 1, 1
			if strings.Contains(tc.name, "requested") {
				l.request(requested, "d1")
				l.decide(requested, "d1", events.Allow)
			}
			l.event(tc.first)
			l.event(tc.end)
			l.event(tc.again)
			l.at(4000).tick()
			if r := l.run(); len(r.last()) != tc.calls || slices.Contains(standingRules(r), MissingCompletion) != (tc.calls > 1) {
				t.Errorf("%d calls, %v", len(r.last()), standingRules(r))
			}
		})
	}
}

// TestConflictsAreForgotten: the variants of an event id are forgotten with the id.
func TestConflictsAreForgotten(t *testing.T) {
	l := newTestLog(t)
	l.opts.MaxEventsPerSource, l.opts.MaxEvents = 8, 64
	for i := range 200 {
		e := set(pre(i), "metadata.tool_call_id", fmt.Sprint("c", i))
		l.event(e)
		l.event(set(e, "tool_input.amount", 7))
	}
	for _, s := range l.run().core.engine.history.sources.All() {
		if n := len(s.variants); n == 0 || n > s.firstContents.Len() {
			t.Errorf("%d conflicts are remembered of %d ids", n, s.firstContents.Len())
		}
	}
}

// TestNovelty: the same content is a duplicate, the same core an amendment, and other
// content under one id a conflict with the message that came first.
func TestNovelty(t *testing.T) {
	h := newHistory(&engineOptions{Options: Options{}.withDefaults()})
	steps := []struct {
		name          string
		content, core uint64
		kind          fact.Kind
		want          novelty
		conflict      bool
	}{
		{"first", 1, 1, fact.KindPre, novel, false},
		{"again", 1, 1, fact.KindPre, duplicate, false},
		{"with a verdict", 2, 1, fact.KindPre, amended, false},
		{"with a verdict again", 2, 1, fact.KindPre, duplicate, false},
		{"with other arguments", 3, 3, fact.KindPre, novel, true},
		{"as a request", 1, 1, fact.KindRequest, novel, false},
	}
	for i, s := range steps {
		f := &fact.Fact{Seq: uint64(10 + i), Kind: s.kind, Origin: fact.OriginOf("acme", "rt1", "s1"), EventID: "e1", ContentSum: key(s.content), CoreSum: key(s.core)}
		n, conflict, before := h.classifyNovelty(f)
		if n != s.want || conflict != s.conflict || conflict && before != 10 {
			t.Errorf("%s: %v, conflict %v with %d", s.name, n, conflict, before)
		}
	}
	if h.idCount() != 1 || h.sourceCount() != 1 {
		t.Errorf("%d ids of %d publishers", h.idCount(), h.sourceCount())
	}
}

// takeRules are the rules of the findings that a part made since the last look.
func takeRules(fs *findings) (rules []string) {
	for _, o := range fs.pending() {
		rules = append(rules, o.Finding.Rule)
	}
	fs.clearOutputs()
	return rules
}

// TestReceiptHolders: a receipt is its tenant's, and allows its own call only.
func TestReceiptHolders(t *testing.T) {
	fs := newFindingsPart(Options{})
	rs := newReceipts(fs.opts, fs, fs.history)
	decided := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1"), CallKey: fact.CallKeyOf("c1", ""), DecisionID: "d1", Decision: &fact.RecordedVerdict{Verdict: events.Allow, HasReceipt: true}}
	rs.recordReceipt(decided)
	denied := *decided
	denied.DecisionID, denied.CachedReceiptKey, denied.Decision = "d2", fact.Sum{}, &fact.RecordedVerdict{Verdict: events.Deny}
	rs.recordReceipt(&denied)
	for name, c := range map[string]struct {
		tenant, decision string
		known            bool
	}{
		"of the tenant":     {"acme", "d1", true},
		"of another tenant": {"other", "d1", false},
		"of a deny":         {"acme", "d2", false},
	} {
		holder, known := rs.holderOf(c.tenant, c.decision)
		if known != c.known || known && holder != receiptHolder(decided.Key, decided.CallKey) {
			t.Errorf("%s: %v", name, known)
		}
	}
}

// TestApprovalStatuses: a status is the tenant's, and holds since it was reached first.
func TestApprovalStatuses(t *testing.T) {
	fs := newFindingsPart(Options{})
	ap := newApprovals(fs.opts, fs)
	k := fact.SumOf("w1")
	ap.recordApprovalStatus("acme", k, fact.StatusPending, epoch)
	ap.recordApprovalStatus("acme", k, fact.StatusApproved, epoch.Add(time.Minute))
	ap.recordApprovalStatus("acme", k, fact.StatusApproved, epoch.Add(time.Hour))
	asked := func(tenant string, after time.Duration) *fact.Fact {
		return &fact.Fact{
			Kind: fact.KindDecision, Protocol: subject.ProtoAgentHook, Origin: fact.OriginOf(tenant, "rt1", "s1"), EventID: "e" + after.String(),
			Decision:       &fact.RecordedVerdict{Verdict: events.Ask, Approval: &fact.Approval{Workflow: "w1", Status: fact.StatusPending}},
			DecisionExtras: &fact.DecisionExtras{Received: epoch.Add(after)},
		}
	}
	for name, c := range map[string]struct {
		f    *fact.Fact
		want int
	}{
		"while it was pending":    {asked("acme", 30*time.Second), 0},
		"while it was given":      {asked("acme", time.Minute+time.Second), 0},
		"long after":              {asked("acme", 2*time.Minute), 1},
		"of another tenant":       {asked("other", 2*time.Minute), 0},
		"in a different protocol": {func() *fact.Fact { f := asked("acme", 2*time.Minute); f.Protocol = subject.ProtoAAEP; return f }(), 0},
	} {
		if ap.checkIgnoredApproval(c.f); len(takeRules(fs)) != c.want {
			t.Errorf("%s: want %d findings of AH-C-051", name, c.want)
		}
	}
}

// TestNamedDecisions: a decision that an event named before it was recorded was known too
// early; a recorded one was not.
func TestNamedDecisions(t *testing.T) {
	fs := newFindingsPart(Options{})
	ad := newAdmissions(fs, fs.history)
	event := &fact.Fact{Seq: 5, Kind: fact.KindPost, Protocol: subject.ProtoAgentHook, Origin: fact.OriginOf("acme", "rt1", "s1"), EventID: "e1", ReceiptDecisionID: "d1"}
	decision := &fact.Fact{Seq: 6, Kind: fact.KindDecision, Protocol: subject.ProtoAgentHook, Origin: event.Origin, DecisionID: "d1", Decision: &fact.RecordedVerdict{Verdict: events.Allow}}
	ad.recordNamedDecision(event)
	ad.checkAdmissionDecision(decision)
	if got := takeRules(fs); len(got) != 1 || got[0] != "AH-C-071" {
		t.Errorf("named first: %v", got)
	}
	later := *decision
	later.DecisionID, later.CachedReceiptKey = "d2", fact.Sum{}
	if n, _, _ := fs.history.classifyNovelty(&later); n != novel {
		t.Fatal("the second decision is not new")
	}
	named := *event
	named.ReceiptDecisionID = "d2"
	ad.recordNamedDecision(&named)
	ad.checkAdmissionDecision(&later)
	if got := takeRules(fs); len(got) != 0 {
		t.Errorf("recorded first: %v", got)
	}
}
