package correlation

import (
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/events/subject"
)

const noSession = subject.NoSession

func itoa(n int) string { return strconv.Itoa(n) }

// session is what is known of one (tenant, source, session).
type session struct {
	machine *machine
	key     sessionKey
	names   origin

	slots      map[slotKey]*slot
	slotOrder  []slotKey
	byDecision map[string]*call
	open       []*call // in the order they were armed
	closed     []*call // in the order they were closed
	early      []earlyRemark
	refusals   bool // a call was denied

	floor    int // highest occurrence among ids that were forgotten
	lastSeen time.Time
}

// slot holds the occurrences of one tool call id.
type slot struct {
	calls   []*call // open and remembered, in the order they were armed
	count   int     // occurrences so far
	invoked string  // event id of the first AAEP invocation under this id
}

func (s *slot) openCalls() []*call {
	var open []*call
	for _, c := range s.calls {
		if c.open() {
			open = append(open, c)
		}
	}
	return open
}

func (s *slot) oldestOpen() *call {
	for _, c := range s.calls {
		if c.open() {
			return c
		}
	}
	return nil
}

// latestClosed is the youngest closed call that fits.
func (s *slot) latestClosed(fits func(*call) bool) *call {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if c := s.calls[i]; !c.open() && fits(c) {
			return c
		}
	}
	return nil
}

// slot finds the slot of a call, or makes it.
func (s *session) slot(k slotKey) *slot {
	if sl := s.slots[k]; sl != nil {
		return sl
	}
	if len(s.slots) >= s.machine.opts.MaxIDsPerSession {
		s.forgetSlot()
	}
	s.machine.stats.IDs++
	sl := &slot{count: s.floor}
	s.slots[k] = sl
	s.slotOrder = append(s.slotOrder, k)
	return sl
}

// forgetSlot drops the oldest id that no remembered call has. There is one:
// more ids are kept than calls.
func (s *session) forgetSlot() {
	for i, k := range s.slotOrder {
		if sl := s.slots[k]; len(sl.calls) == 0 {
			s.floor = max(s.floor, sl.count)
			delete(s.slots, k)
			s.machine.stats.IDs--
			s.slotOrder = append(s.slotOrder[:i], s.slotOrder[i+1:]...)
			return
		}
	}
}

// highest is the highest occurrence of any id of the session.
func (s *session) highest() int {
	n := s.floor
	for _, sl := range s.slots {
		n = max(n, sl.count)
	}
	return n
}

// remember moves a call that was just closed to the closed ones and forgets the
// oldest of those.
func (s *session) remember(c *call) {
	s.open = without(s.open, c)
	s.closed = append(s.closed, c)
	if len(s.closed) > s.machine.opts.MaxClosedPerSession {
		s.forget(s.closed[0])
		s.closed = append(s.closed[:0], s.closed[1:]...)
	}
}

func (s *session) forget(c *call) {
	sl := s.slots[c.slot]
	sl.calls = without(sl.calls, c)
	for _, id := range c.joins {
		if s.byDecision[id] == c {
			delete(s.byDecision, id)
		}
	}
	c.previous = nil
	s.machine.releaseDifferences(c)
	s.machine.stats.Calls--
}

// join notes that a decision and its request belong to a call.
func (s *session) join(c *call, decisionID string) {
	if decisionID == "" || s.byDecision[decisionID] == c {
		return
	}
	if len(c.joins) == maxDecisions {
		delete(s.byDecision, c.joins[0])
		c.joins = append(c.joins[:0], c.joins[1:]...)
	}
	s.byDecision[decisionID] = c
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

// find gives the youngest call that fits, open ones before closed ones.
func (s *session) find(fits func(*call) bool) *call {
	for _, list := range [][]*call{s.open, s.closed} {
		for i := len(list) - 1; i >= 0; i-- {
			if fits(list[i]) {
				return list[i]
			}
		}
	}
	return nil
}
