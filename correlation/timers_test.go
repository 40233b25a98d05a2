package correlation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/subject"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

const week = 7 * 24 * time.Hour

// standing are the findings that nothing has withdrawn, by id, in alphabetical
// order: what somebody who reads them at the end knows.
func (r result) standing() (list []string) {
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

// without gives the log without what the correlator wrote into it to let time
// pass.
func (l *ledger) without(kind string) *ledger {
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

// live is the log of a shard with a correlator beside it, which writes a tick
// whenever a deadline has come and nothing else happens.
func (l *ledger) live() *ledger {
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

// A correlator that was there all the time and one that reads the log a week later
// come to the same findings: time is what the log says.
func TestAWeekOldLog(t *testing.T) {
	l := scenario(t, 60).without(events.ControlTick)
	l.now = l.now.Add(week)
	l.tick()
	live := l.live()
	if len(live.msgs) < len(l.msgs)+20 {
		t.Fatalf("%d ticks: time hardly passed", len(live.msgs)-len(l.msgs))
	}
	want := live.run()
	if diff := cmp.Diff(want.standing(), l.run().standing()); diff != "" {
		t.Errorf("a week later (+) and live (-): %s", diff)
	}
	if diff := cmp.Diff(printed(want.outputs), printed(live.run().outputs)); diff != "" {
		t.Errorf("the live log once more: %s", diff)
	}
}

// What producers say of the time moves nothing: a log whose events are all dated
// a week back or ahead gives the same findings, and each deadline fires at the
// same message.
func TestTimestampsThatLie(t *testing.T) {
	want := scenario(t, 60).live().run()
	for _, by := range []time.Duration{-week, week} {
		got := scenarioDated(t, 60, by).live().run()
		// The id of a conflict is of what the two events hold, their dates among it.
		if diff := cmp.Diff(nameless(want.standing()), nameless(got.standing())); diff != "" {
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

// deadlinesOf are the findings that time alone brought about, and when.
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
	return slices.DeleteFunc(all.standing(), func(f string) bool {
		return slices.ContainsFunc(compared, func(rule string) bool { return strings.HasPrefix(f, rule) })
	})
}

// The broker's clock goes wrong for a while, anywhere in the log, and is set right
// again. Log time never runs back; what was reported too early is withdrawn when the
// calls do end; and what stands in the end is what would stand anyway.
func TestAClockThatJumps(t *testing.T) {
	l := scenario(t, 60).without(events.ControlTick)
	l.msgs = l.msgs[:len(l.msgs):len(l.msgs)]
	end := l.now.Add(4 * week)
	last := func(c ledger) result {
		c.now = end
		c.tick()
		return c.run()
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
			core, before := New(c.opts), time.Time{}
			for _, m := range c.msgs {
				core.Apply(m)
				if now := core.engine.timers.Now(); now.Before(before) {
					t.Fatalf("%v: time ran back from %v to %v", by, before, now)
				} else {
					before = now
				}
			}
		}
	}
}

// A clock that was wrong for one message does not put off what is due, and is
// nothing that an honest publisher has to answer for.
func TestDeadlinesAfterAJump(t *testing.T) {
	for _, by := range []time.Duration{week, -week} {
		l := newLedger(t)
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
		for _, f := range r.standing() {
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

// However long it was, and whenever a session was last seen: a leap of the clock
// forgets none that could go on.
func TestNothingIsForgottenOverALeap(t *testing.T) {
	l := newLedger(t)
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

// TestOneSessionAlone: a session on its own, with ticks where NextDeadline and
// NextIdle ask for them, comes to what it comes to among others: nobody keeps it from
// being forgotten, and it is not forgotten over its own deadline.
func TestOneSessionAlone(t *testing.T) {
	of := func(e tree) tree { return set(e, "session_id", "s2") }
	waiting := func(l *ledger, d time.Duration) func(*events.Decision) {
		return func(r *events.Decision) {
			r.Approval = &events.ApprovalRef{WorkflowID: "wf-" + r.DecisionID, Status: fact.StatusPending, ExpiresAt: events.At(l.now.Add(d))}
		}
	}
	for name, play := range map[string]func(l *ledger){
		"it waits for three days": func(l *ledger) {
			l.admit(of(pre(2)), "d2", events.Ask, waiting(l, 72*time.Hour))
			l.hours(1, 72)
			l.at(72*3600 + 15*60 + 2).tick()
			l.at(72*3600 + 15*60 + 60).event(of(set(post(4), "timestamp", stamp(72*3600+15*60))))
		},
		"another waits for six": func(l *ledger) {
			l.admit(pre(1), "d1", events.Ask, waiting(l, 144*time.Hour))
			l.at(10).event(of(pre(2)))
			l.hours(1, 30)
			l.at(30 * 3600).event(of(set(post(4), "timestamp", stamp(30*3600))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
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
func (l *ledger) hours(from, to int) {
	for h := from; h < to; h++ {
		l.at(float64(h) * 3600).tick()
	}
}

// alone replays a session as countersign replay does.
func (l *ledger) alone(t *testing.T, session string) result {
	r, seq := result{core: New(l.opts)}, uint64(0)
	apply := func(m events.LogMessage) {
		seq = m.Seq
		r.add(t, r.core.Apply(m))
	}
	pass := func(to uint64, until time.Time) {
		for {
			due, any := r.core.NextDeadline()
			if idle, too := r.core.NextIdle(); too && (!any || idle.Before(due)) {
				due, any = idle, true
			}
			if !any || until.Before(due) {
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

// TestADeadlineIsNotInThePast: whatever was looked at in between, the next deadline
// is one that time has not reached, and so a tick for it is written.
func TestADeadlineIsNotInThePast(t *testing.T) {
	l := newLedger(t)
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
		due, any := core.NextDeadline()
		if !any {
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
		for c, any := ts.popDueCall(); any; c, any = ts.popDueCall() {
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
	if at, any := ts.nextDeadline(); !any || !at.Equal(epoch.Add(2*time.Hour)) || ts.anyDue() || !ts.nextTimer.Equal(at) {
		t.Errorf("the next deadline is %v (%v), the next timer %v", at, any, ts.nextTimer)
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
