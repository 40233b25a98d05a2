package correlation

import (
	"strconv"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

const noSession = subject.NoSession

func itoa(n int) string { return strconv.Itoa(n) }

// session is what is known of one (tenant, source, session).
type session struct {
	machine *machine
	*origin        // never changed, and shared
	share   *share `snapshot:"-"` // its publisher in the table of sessions

	slots    slots
	verdicts verdicts // under which decisions the session finds its calls
	open     []*call  // in the order they were armed
	closed   []*call  // in the order they were closed
	early    []earlyRemark
	refusals bool // a call was denied
	asked    bool // a verdict was heard that lets a call wait

	requested bool // AgentHook: its runtime asked for admission

	kin int8 // the rank of what it belongs to, as far as that was known when it was active

	floor    int32 // highest occurrence among ids that were forgotten
	lastSeen seen
}

// origin is a fact's origin to keep. Sessions of one publisher share the names of
// that, and a session's calls and what follows their order share all of it.
func (m *machine) origin(f *fact) *origin {
	if s, there := m.sessions.peek(f.key); there && *s.origin == f.origin {
		return s.origin
	}
	if w, there := m.flows.peek(flowKey{f.key, f.protocol}); there && *w.names == f.origin {
		return w.names
	}
	o := f.origin
	if s, there := m.sources.peek(sourceKey{o.key.tenant, o.key.source}); there {
		o.key.tenant, o.key.source = s.key.tenant, s.key.source
	}
	for _, n := range [...]struct {
		name *string
		key  string
	}{{&o.tenant, o.key.tenant}, {&o.source, o.key.source}, {&o.session, o.key.session}} {
		if *n.name == n.key {
			*n.name = n.key
		}
	}
	return &o
}

func (s *session) id() sessionKey { return s.key }

func (s *session) owner() sourceKey { return s.key.publisher() }

func (s *session) holds(h *share) { s.share = h }

// slotOf finds the slot of a fact's call, nil if there is none.
func (s *session) slotOf(f *fact) *slot {
	if !f.looked {
		f.looked, f.found = true, s.slots.get(f.slot, f.hashOfSlot())
	}
	return f.found
}

// slot finds the slot of a fact's call, or makes it.
func (s *session) slot(f *fact) *slot {
	if sl := s.slotOf(f); sl != nil {
		return sl
	}
	if s.slots.len() >= s.machine.opts.MaxIDsPerSession {
		s.forgetSlot()
	}
	s.machine.countIDs(s, 1)
	f.found = newSlot(f.slot, int(s.floor))
	s.slots.add(f.found, f.hashOfSlot())
	return f.found
}

// forgetSlot drops the oldest id that no remembered call has. There is one:
// more ids are kept than calls.
func (s *session) forgetSlot() {
	if sl := s.slots.dropEmpty(); sl != nil {
		s.floor = max(s.floor, int32(sl.count))
		s.machine.countIDs(s, -1)
	}
}

// hear takes note of a verdict that is on record or claimed.
func (s *session) hear(v events.Verdict) {
	s.asked = s.asked || v == events.Ask || v == events.Defer
}

// decided finds a call by one of its decisions.
func (s *session) decided(id string) *call {
	if id == "" {
		return nil
	}
	return s.verdicts.get(id).unfold()
}

// highest is the highest occurrence of any id of the session.
func (s *session) highest() int {
	n := int(s.floor)
	for _, sl := range s.slots.list {
		n = max(n, sl.count)
	}
	return n
}

// remember moves a call that was just closed to the closed ones and forgets the
// oldest of those.
func (s *session) remember(c *call) {
	s.open = without(s.open, c)
	s.closed = append(s.closed, c)
	s.machine.loose = append(s.machine.loose, c)
	if len(s.closed) > s.machine.opts.MaxClosedPerSession {
		s.forget(s.closed[0])
		s.closed = append(s.closed[:0], s.closed[1:]...)
	}
}

func (s *session) forget(c *call) {
	c.slot.calls = without(c.slot.calls, c)
	for _, id := range c.foldedJoins() {
		if s.verdicts.get(id) == c {
			s.verdicts.remove(id)
		}
	}
	c.previous = nil
	s.machine.releaseDifferences(c)
	s.machine.countCalls(s, -1)
	if len(c.slot.calls) == 0 {
		s.machine.keepDenial(c)
	}
}

// join notes that a decision and its request belong to a call.
func (s *session) join(c *call, decisionID string) {
	if decisionID == "" {
		return
	}
	switch s.verdicts.get(decisionID) {
	case c:
		return
	case nil:
	default:
		s.verdicts.remove(decisionID)
	}
	if len(c.joins) == maxDecisions {
		s.verdicts.remove(c.joins[0])
		c.joins = append(c.joins[:0], c.joins[1:]...)
	}
	s.verdicts.put(decisionID, c)
	if c.joins == nil {
		c.joins = s.machine.spare.texts(1)
	}
	c.joins = append(c.joins, decisionID)
}

func without(list []*call, c *call) []*call {
	for i, e := range list {
		if e == c {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// findOpen gives the oldest open call that fits.
func (s *session) findOpen(fits func(*call) bool) *call {
	for _, c := range s.open {
		if fits(c) {
			return c
		}
	}
	return nil
}

// findNamed gives the youngest call that fits and goes by a name, open ones before
// closed ones.
func (s *session) findNamed(name string, fits func(*call) bool) *call {
	bits := nameBits(name)
	if bits == 0 {
		return nil
	}
	return s.findWhere(func(c *call) bool { return c.named(bits) }, fits)
}

// findIn is findNamed among the calls of one slot.
func (s *session) findIn(k slotKey, name string, fits func(*call) bool) *call {
	bits := nameBits(name)
	if bits == 0 {
		return nil
	}
	return s.findWhere(func(c *call) bool { return c.slot.key == k && c.named(bits) }, fits)
}

// findWhere gives the youngest call that fits, open ones before closed ones. Only
// what passes the filter, which gets calls as they are, is unfolded.
func (s *session) findWhere(filter, fits func(*call) bool) *call {
	for _, list := range [][]*call{s.open, s.closed} {
		for i := len(list) - 1; i >= 0; i-- {
			if c := list[i]; filter(c) && fits(c.unfold()) {
				return c
			}
		}
	}
	return nil
}
