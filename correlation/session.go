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
	calls   *calls
	*origin        // never changed, and shared
	share   *share `snapshot:"-"` // its publisher in the table of sessions

	groups        callGroups
	decisionIndex decisionIndex // under which decisions the session finds its calls
	open          []*call       // in the order they were armed
	closed        []*call       // in the order they were closed
	earlyUpdates  []earlyUpdate
	sawDenial     bool // a call was denied
	sawAsk        bool // a verdict was heard that lets a call wait

	askedAdmission bool // AgentHook: its runtime asked for admission

	parentLinkRank int8 // the rank of what it belongs to, as far as that was known when it was active

	occurrenceFloor int32 // highest occurrence among ids that were forgotten
	lastActivity    activity
}

func (s *session) id() sessionKey { return s.key }

func (s *session) owner() sourceKey { return s.key.publisher() }

func (s *session) holds(h *share) { s.share = h }

// findGroup finds the slot of a fact's call, nil if there is none.
func (s *session) findGroup(f *fact) *callGroup {
	if !f.groupLookedUp {
		f.groupLookedUp, f.group = true, s.groups.get(f.callKey, f.callKeyHash())
	}
	return f.group
}

// ensureGroup finds the slot of a fact's call, or makes it.
func (s *session) ensureGroup(f *fact) *callGroup {
	if sl := s.findGroup(f); sl != nil {
		return sl
	}
	if s.groups.len() >= s.calls.opts.MaxIDsPerSession {
		s.forgetGroup()
	}
	s.calls.countIDs(s, 1)
	f.group = newCallGroup(f.callKey, int(s.occurrenceFloor))
	s.groups.add(f.group, f.callKeyHash())
	return f.group
}

// forgetGroup drops the oldest id that no remembered call has. There is one:
// more ids are kept than calls.
func (s *session) forgetGroup() {
	if sl := s.groups.dropEmpty(); sl != nil {
		s.occurrenceFloor = max(s.occurrenceFloor, int32(sl.count))
		s.calls.countIDs(s, -1)
	}
}

// noteVerdict takes note of a verdict that is on record or claimed.
func (s *session) noteVerdict(v events.Verdict) {
	s.sawAsk = s.sawAsk || v == events.Ask || v == events.Defer
}

// callOfDecision finds a call by one of its decisions.
func (s *session) callOfDecision(id string) *call {
	if id == "" {
		return nil
	}
	return s.decisionIndex.get(id).expand()
}

// highestOccurrence is the highest occurrence of any id of the session.
func (s *session) highestOccurrence() int {
	n := int(s.occurrenceFloor)
	for _, sl := range s.groups.list {
		n = max(n, sl.count)
	}
	return n
}

// moveToClosed moves a call that was just closed to the closed ones and forgets the
// oldest of those.
func (s *session) moveToClosed(c *call) {
	s.open = removeCall(s.open, c)
	s.closed = append(s.closed, c)
	s.calls.dirtyCalls = append(s.calls.dirtyCalls, c)
	if len(s.closed) > s.calls.opts.MaxClosedPerSession {
		s.forgetCall(s.closed[0])
		s.closed = append(s.closed[:0], s.closed[1:]...)
	}
}

func (s *session) forgetCall(c *call) {
	c.group.calls = removeCall(c.group.calls, c)
	for _, id := range c.compactedDecisionIDs() {
		if s.decisionIndex.get(id) == c {
			s.decisionIndex.remove(id)
		}
	}
	c.retriedCall = nil
	s.calls.releaseCallDifferences(c)
	s.calls.countCalls(s, -1)
	if len(c.group.calls) == 0 {
		s.calls.keepDenial(c)
	}
}

// linkDecision notes that a decision and its request belong to a call.
func (s *session) linkDecision(c *call, decisionID string) {
	if decisionID == "" {
		return
	}
	switch s.decisionIndex.get(decisionID) {
	case c:
		return
	case nil:
	default:
		s.decisionIndex.remove(decisionID)
	}
	if len(c.decisionIDs) == maxCallDecisions {
		s.decisionIndex.remove(c.decisionIDs[0])
		c.decisionIDs = append(c.decisionIDs[:0], c.decisionIDs[1:]...)
	}
	s.decisionIndex.put(decisionID, c)
	if c.decisionIDs == nil {
		c.decisionIDs = s.calls.freeLists.allocStrings(1)
	}
	c.decisionIDs = append(c.decisionIDs, decisionID)
}

func removeCall(list []*call, c *call) []*call {
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
	bits := nameFilterBits(name)
	if bits == 0 {
		return nil
	}
	return s.findCall(func(c *call) bool { return c.mayHaveName(bits) }, fits)
}

// findInGroup is findNamed among the calls of one slot.
func (s *session) findInGroup(k callKey, name string, fits func(*call) bool) *call {
	bits := nameFilterBits(name)
	if bits == 0 {
		return nil
	}
	return s.findCall(func(c *call) bool { return c.group.key == k && c.mayHaveName(bits) }, fits)
}

// findCall gives the youngest call that fits, open ones before closed ones. Only
// what passes the filter, which gets calls as they are, is unfolded.
func (s *session) findCall(filter, fits func(*call) bool) *call {
	for _, list := range [][]*call{s.open, s.closed} {
		for i := len(list) - 1; i >= 0; i-- {
			if c := list[i]; filter(c) && fits(c.expand()) {
				return c
			}
		}
	}
	return nil
}
