package correlation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
)

const week = 7 * 24 * time.Hour

// standing are the findings that nothing has withdrawn, by id, in alphabetical
// order: what somebody who reads them at the end knows.
func (r result) standing() (list []string) {
	withdrawn := map[string]bool{}
	for _, f := range r.findings {
		withdrawn[f.Withdraws] = true
	}
	for _, f := range r.findings {
		if f.Withdraws == "" && !withdrawn[f.FindingID] {
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
				if now := core.engine.timers.now(); now.Before(before) {
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
