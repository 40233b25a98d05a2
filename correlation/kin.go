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
	who   *origin // as one of its messages named it; shared, and never changed
	call  sum
	clash bool // others used the same mark
}

// nobody is no relative.
func (r relative) nobody() bool { return r.who == nil }

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
		m.mark(f, m.eventMark(f), nil)
	}
	var old kinship
	if k := m.parents.atHashed(f.key, f.whose().session); k != nil {
		old = *k
	}
	if old.rank < byEvent && l.correlation != "" {
		m.adopt(f, byEvent, m.ofMark(f, l.mark))
	}
	if l.trace != "" {
		m.relateTrace(f, old.rank)
	}
	if old.rank < byGoal && l.parent != "" {
		m.adopt(f, byGoal, m.sibling(f, l.parent, subject.Escape(l.parent)))
	}
	if old.rank < bySession && l.correlation != "" {
		sibling := f.key
		sibling.session = l.token()
		if _, there := m.sessions.peekHashed(sibling, f.whose().of(sibling.session)); there {
			m.adopt(f, bySession, m.sibling(f, l.correlation, sibling.session))
		}
	}
}

func (m *machine) relateTrace(f *fact, rank int8) {
	if rank < bySpan {
		m.adopt(f, bySpan, m.ofMark(f, sumOf("span", f.lineage.trace[:spanEnd])))
	}
	trace := tenantMark{f.key.tenant, sumOf("trace", f.lineage.trace[:traceEnd])}
	first, known := m.marks.get(trace)
	switch {
	case !known:
		m.marks.put(trace, relative{who: f.who(nil)})
	case rank < byTrace:
		m.adopt(f, byTrace, first)
	}
}

// sibling is a session of the same publisher, by its id.
func (m *machine) sibling(f *fact, session, token string) relative {
	key := f.key
	key.session = token
	return relative{who: &origin{key: key, tenant: f.tenant, source: f.source, session: show(session)}}
}

// who is the fact's origin, the call's own if that is the same.
func (f *fact) who(c *call) *origin {
	if c != nil && *c.session.origin == f.origin {
		return c.session.origin
	}
	o := f.origin
	return &o
}

// ofMark finds what a mark is of, as far as the fact's publisher can mean it.
func (m *machine) ofMark(f *fact, mark sum) relative {
	r := m.marks.atHashed(tenantMark{f.key.tenant, mark}, markHash(f.whose().tenant, mark))
	if r == nil || r.clash {
		return relative{}
	}
	return *r
}

// adopt notes what a fact's session belongs to.
func (m *machine) adopt(f *fact, rank int8, r relative) {
	if r.nobody() || r.who.key == f.key || r.who.key.session == noSession {
		return
	}
	if old, _ := m.parents.get(f.key); old.rank >= rank {
		return
	}
	for up, n := r.who.key, 0; ; n++ {
		above, has := m.parents.get(up)
		if !has {
			break
		}
		if above.who.key == f.key || n == maxAncestors {
			return
		}
		up = above.who.key
	}
	m.parents.put(f.key, kinship{r, rank})
	if s, there := m.sessions.peek(f.key); there {
		m.belongs(s, rank)
	}
}

// maxBelated is of how many calls of a session it is said after all what they
// belong to, when that becomes known, or better known, later than they ended.
const maxBelated = 64

// belongs notes that it is known by now what a session belongs to. Its calls that
// are over are put out again, those that ended last, in the order in which they
// ended. That comes to pass once for each way of knowing it, of which there are
// five, and no more often. The record of how an open call ends will say it.
func (m *machine) belongs(s *session, rank int8) {
	if rank <= s.kin {
		return
	}
	s.kin = rank
	for _, c := range s.closed[max(0, len(s.closed)-maxBelated):] {
		m.emit(c.unfold())
	}
}

func (m *machine) eventMark(f *fact) tenantMark {
	if f.eventID == "" {
		return tenantMark{}
	}
	return tenantMark{f.key.tenant, f.idSum()}
}

// mark notes whose something is, or that nobody can tell.
func (m *machine) mark(f *fact, t tenantMark, c *call) {
	if t.mark == (sum{}) {
		return
	}
	hash := markHash(f.whose().tenant, t.mark)
	switch old := m.marks.atHashed(t, hash); {
	case old == nil:
		r := relative{who: f.who(c)}
		if c != nil {
			r.call = c.sum()
		}
		*m.marks.add(t, hash) = r
	case old.who.key != f.key:
		old.clash = true
	}
}

// register makes a call known to sub-agents that will name it.
func (m *machine) register(c *call, f *fact) {
	if c.weak() {
		return
	}
	if f.kind == kindPre {
		m.mark(f, m.eventMark(f), c)
	}
	if f.lineage.trace != "" {
		m.markSpan(c, f)
	}
}

// markSpan notes whose a span is: whoever carried it first. Who carries it in
// another session is a child. A span that several calls carry is their session's.
func (m *machine) markSpan(c *call, f *fact) {
	t := tenantMark{f.key.tenant, sumOf("span", f.lineage.trace[:spanEnd])}
	switch old := m.marks.at(t); {
	case old == nil:
		m.marks.put(t, relative{who: f.who(c), call: c.sum()})
	case old.who.key == f.key && old.call != c.sum():
		old.call = sum{}
	}
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
