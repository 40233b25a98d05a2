package correlation

import (
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
)

// TestLateRedelivery: what a publisher sends once more is no news, also when
// thousands of its events came in between.
func TestLateRedelivery(t *testing.T) {
	l := newLedger(t)
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

// TestEventIDsAreBounded: publishers share what is remembered of events. Who
// floods takes nothing from what every other may have.
func TestEventIDsAreBounded(t *testing.T) {
	l := newLedger(t)
	l.opts.MaxEventsPerSource, l.opts.MaxEvents = 10, 100
	n := 0
	send := func(source string, times int) {
		for range times {
			n++
			l.eventFrom("acme", source, set(pre(n), "metadata.tool_call_id", fmt.Sprint("c", n)))
		}
	}
	size := func(e *engine, source string) int {
		s, _ := e.history.sources.Get(fact.SourceKey{Tenant: "acme", Source: source})
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

// TestFullKeepsItsIDs: a publisher that has as many ids as may be remembered takes no
// more room for the next ones.
func TestFullKeepsItsIDs(t *testing.T) {
	l := newLedger(t)
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

// TestConflictsAreForgotten: with an event id goes what else came under it.
func TestConflictsAreForgotten(t *testing.T) {
	l := newLedger(t)
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
	h := newHistory()
	h.opts = &engineOptions{Options: Options{}.withDefaults()}
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
