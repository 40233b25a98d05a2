package correlation

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// kin links sessions with the calls and sessions of the same tenant that they
// belong to: sub-agents with what started them.
//
// What links is the child's own word: the id of an event, the traceparent of a
// call, the name of its parent session (AHP-010), the id of a session of its
// publisher, or a W3C trace that another session carried first. The surest counts;
// see the Link constants of package events. An id that two publishers used, or one
// publisher in two sessions, names nobody and links nothing; nor does anything
// make a session its own ancestor. A correlation_id that several sessions merely
// share says that they are related, not how, and links nothing.
//
// Everything is bounded by maxKin; the oldest is forgotten, and what was put out
// stays.
type kin struct {
	parents *window[sessionKey, kinship] // of sessions that belong to another
	marks   *window[tenantMark, relative]
}

func newKin() kin {
	return kin{parents: newWindow[sessionKey, kinship](maxKin), marks: newWindow[tenantMark, relative](4 * maxKin)}
}

// maxKin is how many sessions are known to belong to another; of four times as
// many events, calls and traces it is known whose they are (about 250 B each).
const maxKin = 16_384

// maxAncestors is how far up a session's ancestors are looked through.
const maxAncestors = 32

// tenantMark is something that a child may name: the hash says of what kind.
type tenantMark struct {
	tenant string
	mark   sum
}

// relative is a session, and a call in it if one is meant.
type relative struct {
	key             sessionKey
	source, session string // as shown
	call            sum
	clash           bool // others used the same mark
}

// kinship is what a session belongs to.
type kinship struct {
	relative
	rank int8
}

// links are the ways in which a session can say what it belongs to, by rank: a
// higher one replaces a lower one.
var links = [...]string{1: events.LinkTrace, 2: events.LinkSession, 3: events.LinkGoal, 4: events.LinkSpan, 5: events.LinkEvent}

const (
	byTrace = 1 + iota
	bySession
	byGoal
	bySpan
	byEvent
)

// relate takes what a fact says of where its session belongs.
func (m *machine) relate(f *fact) {
	l := &f.lineage
	if l.none() && !l.hands || f.key.session == noSession {
		return
	}
	if l.hands {
		m.mark(f, m.eventMark(f), sum{})
	}
	old, _ := m.parents.get(f.key)
	if old.rank < byEvent && l.correlation != "" {
		m.adopt(f, byEvent, m.marked(f, l.mark))
	}
	if l.trace != "" {
		m.relateTrace(f, old.rank)
	}
	if old.rank < byGoal && l.parent != "" {
		m.adopt(f, byGoal, m.sibling(f, l.parent))
	}
	if old.rank < bySession && l.correlation != "" {
		if r := m.sibling(f, l.correlation); m.sessions.entries[r.key] != nil {
			m.adopt(f, bySession, r)
		}
	}
}

func (m *machine) relateTrace(f *fact, rank int8) {
	if rank < bySpan {
		m.adopt(f, bySpan, m.marked(f, sumOf("span", f.lineage.trace[:spanEnd])))
	}
	trace := tenantMark{f.key.tenant, sumOf("trace", f.lineage.trace[:traceEnd])}
	first, known := m.marks.get(trace)
	switch {
	case !known:
		m.marks.put(trace, relative{key: f.key, source: f.source, session: f.session})
	case rank < byTrace:
		m.adopt(f, byTrace, first)
	}
}

// sibling is a session of the same publisher, by its id.
func (m *machine) sibling(f *fact, session string) relative {
	key := f.key
	key.session = subject.Escape(session)
	return relative{key: key, source: f.source, session: show(session)}
}

// marked finds what a mark is of, as far as the fact's publisher can mean it.
func (m *machine) marked(f *fact, mark sum) relative {
	r, known := m.marks.get(tenantMark{f.key.tenant, mark})
	if !known || r.clash {
		return relative{}
	}
	return r
}

// adopt notes what a fact's session belongs to.
func (m *machine) adopt(f *fact, rank int8, r relative) {
	old, _ := m.parents.get(f.key)
	if r.key == (sessionKey{}) || r.key == f.key || old.rank >= rank || r.key.session == noSession {
		return
	}
	for up, n := r.key, 0; ; n++ {
		above, has := m.parents.get(up)
		if !has {
			break
		}
		if above.key == f.key || n == maxAncestors {
			return
		}
		up = above.key
	}
	m.parents.put(f.key, kinship{r, rank})
}

func (m *machine) eventMark(f *fact) tenantMark {
	if f.eventID == "" {
		return tenantMark{}
	}
	return tenantMark{f.key.tenant, f.idSum()}
}

// mark notes whose something is, or that nobody can tell.
func (m *machine) mark(f *fact, t tenantMark, call sum) {
	if t == (tenantMark{}) {
		return
	}
	old, known := m.marks.get(t)
	switch {
	case !known:
		m.marks.put(t, relative{key: f.key, source: f.source, session: f.session, call: call})
	case old.key != f.key && !old.clash:
		old.clash = true
		m.marks.put(t, old)
	}
}

// register makes a call known to sub-agents that will name it.
func (m *machine) register(c *call, f *fact) {
	if c.weak() {
		return
	}
	if f.kind == kindPre {
		c.callID()
		m.mark(f, m.eventMark(f), c.hash)
	}
	if f.lineage.trace != "" {
		m.markSpan(c, f)
	}
}

// markSpan notes whose a span is: whoever carried it first. Who carries it in
// another session is a child. A span that several calls carry is their session's.
func (m *machine) markSpan(c *call, f *fact) {
	t := tenantMark{f.key.tenant, sumOf("span", f.lineage.trace[:spanEnd])}
	c.callID()
	old, known := m.marks.get(t)
	switch {
	case !known:
		m.marks.put(t, relative{key: f.key, source: f.source, session: f.session, call: c.hash})
	case old.key == f.key && old.call != c.hash && old.call != (sum{}):
		old.call = sum{}
		m.marks.put(t, old)
	}
}

// parent is what the call's session belongs to.
func (c *call) parent() (p events.CallParent, known bool) {
	k, known := c.session.machine.parents.get(c.session.key)
	if !known {
		return p, false
	}
	return events.CallParent{CallID: callIDOf(k.call), Source: k.source, Session: k.session, By: links[k.rank]}, true
}

// A traceparent of version 00: where its trace id and its span id end.
const (
	traceLayout = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh"
	traceBegin  = len("00-")
	traceEnd    = traceBegin + 32
	spanBegin   = traceEnd + 1
	spanEnd     = spanBegin + 16
	noTrace     = "00000000000000000000000000000000"
)

// traceparent gives text if it is a W3C traceparent of version 00 with ids that
// are not zero, else "".
func traceparent(text string) string {
	if len(text) != len(traceLayout) {
		return ""
	}
	for i := range len(traceLayout) {
		switch c := text[i]; {
		case traceLayout[i] != 'h':
			if c != traceLayout[i] {
				return ""
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return ""
		}
	}
	if text[traceBegin:traceEnd] == noTrace || text[spanBegin:spanEnd] == noTrace[:16] {
		return ""
	}
	return text
}
