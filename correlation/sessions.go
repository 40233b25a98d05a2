package correlation

import (
	"cmp"
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

const noSession = subject.NoSession

// session is what the engine knows of one (tenant, source, session).
type session struct {
	calls        *calls
	*fact.Origin               // shared; does not change
	share        *tables.Share `snapshot:"-"` // the publisher's share of the table of sessions

	groups        callGroups
	decisionIndex map[string]*call // the calls by their decision ids; nil before the first
	open          []*call          // in the order they were opened
	closed        []*call          // in the order they were closed
	earlyUpdates  []earlyUpdate
	sawDenial     bool // a call was denied or stopped
	sawAsk        bool // a verdict, recorded or claimed, that lets a call wait

	askedAdmission bool // an event of the session asked for admission

	parentLinkRank int8 // the rank of its parent link, when the session was last active

	occurrenceFloor int32 // the highest occurrence of forgotten ids
	lostOpenCalls   int   // the open calls with which it was forgotten, and whose ends have not come
	lastActivity    eventtime.Activity
}

func (s *session) ID() fact.SourceSession { return s.Key }

func (s *session) Owner() tables.PublisherKey { return s.Key.Publisher().TableKey() }

func (s *session) Holds(h *tables.Share) { s.share = h }

// findGroup returns the group of a fact's call, nil if there is none.
func (s *session) findGroup(f *fact.Fact) *callGroup {
	if f.Found == nil {
		f.Found = s.groups.get(f.CallKey)
	}
	return f.Found.(*callGroup)
}

// ensureGroup returns the group of a fact's call, and adds it if it is missing.
func (s *session) ensureGroup(f *fact.Fact) *callGroup {
	if group := s.findGroup(f); group != nil {
		return group
	}
	if s.groups.len() >= s.calls.opts.MaxIDsPerSession {
		s.forgetGroup()
	}
	s.calls.countIDs(s, 1)
	group := newCallGroup(f.CallKey, int(s.occurrenceFloor))
	s.groups.add(group)
	f.Found = group
	return group
}

// forgetGroup forgets the oldest group without remembered calls. Such a group exists, because
// Options keep more ids than calls.
func (s *session) forgetGroup() {
	if group := s.groups.dropEmpty(); group != nil {
		s.occurrenceFloor = max(s.occurrenceFloor, int32(group.count))
		s.calls.countIDs(s, -1)
	}
}

// noteAskedAdmission records that an event of the session asked for admission.
func (s *session) noteAskedAdmission() { s.askedAdmission = true }

// takeLostCall reports whether an end may be that of an open call with which the session was forgotten.
// Each of them excuses one end.
func (s *session) takeLostCall() bool {
	lost := s.lostOpenCalls > 0
	if lost {
		s.lostOpenCalls--
	}
	return lost
}

// raiseParentLink reports whether a rank is higher than that of the parent link, and sets it.
func (s *session) raiseParentLink(rank int8) bool {
	higher := rank > s.parentLinkRank
	s.parentLinkRank = max(s.parentLinkRank, rank)
	return higher
}

// bufferUpdate keeps an update until its call is announced.
func (s *session) bufferUpdate(u earlyUpdate) {
	if len(s.earlyUpdates) >= maxEarlyUpdates {
		s.earlyUpdates = slices.Delete(s.earlyUpdates, 0, 1)
	}
	s.earlyUpdates = append(s.earlyUpdates, u)
}

// takeUpdates removes and returns the kept updates of a call, in order.
func (s *session) takeUpdates(key fact.CallKey) (list []earlyUpdate) {
	s.earlyUpdates = slices.DeleteFunc(s.earlyUpdates, func(u earlyUpdate) bool {
		is := u.callKey == key
		if is {
			list = append(list, u)
		}
		return is
	})
	return list
}

// noteVerdict notes that a verdict was recorded or claimed.
func (s *session) noteVerdict(v events.Verdict) {
	s.sawAsk = s.sawAsk || v == events.Ask || v == events.Defer
	s.sawDenial = s.sawDenial || v == events.Deny
}

// callOfDecision returns the call of a decision, expanded; nil if there is none.
func (s *session) callOfDecision(id string) *call {
	if id == "" {
		return nil
	}
	return s.decisionIndex[id].expand()
}

// highestOccurrence is the highest occurrence of all ids of the session.
func (s *session) highestOccurrence() int {
	n := int(s.occurrenceFloor)
	for _, group := range s.groups.list {
		n = max(n, group.count)
	}
	return n
}

// moveToClosed moves a call from the open to the closed ones. Beyond the bound, a closed call
// is forgotten.
func (s *session) moveToClosed(c *call) {
	s.open = removeCall(s.open, c)
	s.closed = append(s.closed, c)
	s.calls.dirtyCalls = append(s.calls.dirtyCalls, c)
	if len(s.closed) > s.calls.opts.MaxClosedPerSession {
		i := s.nextForgotten()
		s.forgetCall(s.closed[i])
		s.closed = slices.Delete(s.closed, i, i+1)
	}
}

// nextForgotten returns the index of the closed call to forget: the oldest one, but the end of
// an abandoned call may still come, so abandoned calls may keep half of the places.
func (s *session) nextForgotten() int {
	i := slices.IndexFunc(s.closed, func(c *call) bool { return c.state != events.CallAbandoned })
	if i < 0 || i > s.calls.opts.MaxClosedPerSession/2 {
		return 0
	}
	return i
}

func (s *session) forgetCall(c *call) {
	c.group.calls = removeCall(c.group.calls, c)
	for _, id := range c.decisionIDs {
		if s.decisionIndex[id] == c {
			delete(s.decisionIndex, id)
		}
	}
	if c.retriedCall != nil {
		c.wasOnRecord, c.retriedCall = c.isOnRecord(), nil
	}
	s.calls.releaseCallDifferences(c)
	s.calls.countCalls(s, -1)
	if len(c.group.calls) == 0 {
		s.calls.keepDenial(c)
	}
}

// linkDecision links a decision id with a call. An id that was linked with another call moves
// to this one.
func (s *session) linkDecision(c *call, decisionID string) {
	if decisionID == "" {
		return
	}
	if s.decisionIndex[decisionID] == c {
		return
	}
	if len(c.decisionIDs) == maxCallDecisions {
		if oldest := c.decisionIDs[0]; s.decisionIndex[oldest] == c { // else it moved to another call
			delete(s.decisionIndex, oldest)
		}
		c.decisionIDs = append(c.decisionIDs[:0], c.decisionIDs[1:]...)
	}
	if s.decisionIndex == nil {
		s.decisionIndex = map[string]*call{}
	}
	s.decisionIndex[decisionID] = c
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

// findOpen returns the oldest open call that fits.
func (s *session) findOpen(fits func(*call) bool) *call {
	for _, c := range s.open {
		if fits(c) {
			return c
		}
	}
	return nil
}

// findNamed returns the youngest call that has a name and fits. Open calls come first.
func (s *session) findNamed(name string, fits func(*call) bool) *call {
	bits := nameFilterBits(name)
	if bits == 0 {
		return nil
	}
	return s.findCall(func(c *call) bool { return c.mayHaveName(bits) }, fits)
}

// findInGroup is findNamed among the calls of one group.
func (s *session) findInGroup(k fact.CallKey, name string, fits func(*call) bool) *call {
	bits := nameFilterBits(name)
	if bits == 0 {
		return nil
	}
	return s.findCall(func(c *call) bool { return c.group.key == k && c.mayHaveName(bits) }, fits)
}

// findCall returns the youngest call that fits. Open calls come first. filter sees calls that
// may be compacted; a call is expanded only if filter accepts it.
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

// linearLimit is the size up to which the groups of a session are a list. A short list takes less
// room than a map, and no more time to search.
const linearLimit = 12

// callGroup holds the occurrences of one tool call id; without an id, of one tool.
type callGroup struct {
	key          fact.CallKey
	calls        []*call // open and remembered ones, in the order they were opened
	count        int     // the number of occurrences so far
	floor        int     // the occurrences that were counted before the group was made
	invokedEvent string  // event id of the first AAEP invocation under this id
}

func newCallGroup(k fact.CallKey, floor int) *callGroup {
	return &callGroup{key: k, count: floor, floor: floor}
}

// hasRepeated reports whether the id has had more than one occurrence since its session was
// known, or known again.
func (g *callGroup) hasRepeated() bool { return g.count > g.floor+1 }

// recordInvocation records an AAEP invocation, and returns the event of the first one.
func (g *callGroup) recordInvocation(eventID string) (first string, isFirst bool) {
	if g.invokedEvent != "" {
		return g.invokedEvent, false
	}
	g.invokedEvent = cmp.Or(eventID, "?")
	return g.invokedEvent, true
}

func (g *callGroup) openCalls() []*call {
	var open []*call
	for _, c := range g.calls {
		if c.isOpen() {
			open = append(open, c)
		}
	}
	return open
}

func (g *callGroup) oldestOpen() *call {
	for _, c := range g.calls {
		if c.isOpen() {
			return c
		}
	}
	return nil
}

// oldestOpenOf is the oldest open call of a completion's tool. Without an id, one with the
// completion's arguments comes first.
func (g *callGroup) oldestOpenOf(f *fact.Fact) *call {
	var oldest *call
	for _, c := range g.calls {
		switch {
		case !c.isOpen() || c.tool != f.Tool:
		case f.CallKey.ID != "" || !f.Args.Known || c.compareFact(f) == fact.ArgsEqual:
			return c
		case oldest == nil:
			oldest = c
		}
	}
	return oldest
}

// latestClosed is the youngest closed call that fits.
func (g *callGroup) latestClosed(fits func(*call) bool) *call {
	for i := len(g.calls) - 1; i >= 0; i-- {
		if c := g.calls[i]; !c.isOpen() && fits(c.expand()) {
			return c
		}
	}
	return nil
}

// latestClosedLike is latestClosed without the calls whose arguments differ from a fact's.
func (g *callGroup) latestClosedLike(f *fact.Fact, fits func(*call) bool) *call {
	return g.latestClosedWhich(f, func(*call) bool { return true }, fits)
}

// latestClosedWhich is latestClosedLike without the calls that may not fit, by their summary.
func (g *callGroup) latestClosedWhich(f *fact.Fact, may, fits func(*call) bool) *call {
	for i := len(g.calls) - 1; i >= 0; i-- {
		if c := g.calls[i]; !c.isOpen() && !c.hasOtherArguments(f) && may(c) && fits(c.expand()) {
			return c
		}
	}
	return nil
}

// callGroups are the groups of a session, by key.
type callGroups struct {
	list  []*callGroup                // in the order they were made
	byKey map[fact.CallKey]*callGroup // nil up to linearLimit
}

func (gs *callGroups) len() int { return len(gs.list) }

// get returns the group of a key, nil if there is none.
func (gs *callGroups) get(k fact.CallKey) *callGroup {
	if gs.byKey != nil {
		return gs.byKey[k]
	}
	for i := len(gs.list) - 1; i >= 0; i-- {
		if gs.list[i].key == k {
			return gs.list[i]
		}
	}
	return nil
}

func (gs *callGroups) add(group *callGroup) {
	gs.list = append(gs.list, group)
	switch {
	case gs.byKey != nil:
		gs.byKey[group.key] = group
	case len(gs.list) > linearLimit:
		gs.byKey = make(map[fact.CallKey]*callGroup, 2*linearLimit)
		for _, g := range gs.list {
			gs.byKey[g.key] = g
		}
	}
}

// dropEmpty removes and returns the oldest group without remembered calls.
func (gs *callGroups) dropEmpty() *callGroup {
	for i, group := range gs.list {
		if len(group.calls) == 0 {
			gs.list = slices.Delete(gs.list, i, i+1)
			delete(gs.byKey, group.key)
			return group
		}
	}
	return nil
}

// Pack returns the groups in order.
func (gs *callGroups) Pack() any { return &gs.list }

// Unpack restores what Pack returned.
func (gs *callGroups) Unpack(form any) {
	*gs = callGroups{}
	for _, group := range *form.(*[]*callGroup) {
		gs.add(group)
	}
}
