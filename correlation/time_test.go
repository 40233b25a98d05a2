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

// The broker's clock goes wrong by a week in the middle of the log and is set
// right later. Time never runs back; what was reported too early is withdrawn when
// the calls do end; and what stands in the end is what would stand anyway, but for
// executed_before_verdict, which compares the executor's clock with the broker's.
func TestAClockThatJumps(t *testing.T) {
	l := scenario(t, 60).without(events.ControlTick)
	for name, by := range map[string]time.Duration{"ahead": week, "back": -week} {
		c := *l
		c.msgs = slices.Clone(l.msgs)
		for i := len(c.msgs) / 3; i < len(c.msgs)/2; i++ {
			c.msgs[i].Time = c.msgs[i].Time.Add(by)
		}
		c.now = c.now.Add(3 * week)
		c.tick()
		straight := *l
		straight.msgs = slices.Clone(l.msgs)
		straight.now = c.now
		straight.tick()
		ofClocks := func(f string) bool { return strings.HasPrefix(f, "executed_before_verdict ") }
		want, got := slices.DeleteFunc(straight.run().standing(), ofClocks), slices.DeleteFunc(c.run().standing(), ofClocks)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (+): %s", name, diff)
		}
		core, before := New(c.opts), time.Time{}
		for _, m := range c.msgs {
			core.Apply(m)
			if now := core.Stats().LogTime; now.Before(before) {
				t.Fatalf("%s: time ran back from %v to %v", name, before, now)
			} else {
				before = now
			}
		}
	}
}
