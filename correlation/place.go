package correlation

import "github.com/countersign-dev/countersign/events"

// place finds the call that a request, a decision or a pre event belongs to
// (architecture section 4); nil means that it arms a new occurrence.
func (m *machine) place(s *session, f *fact) *call {
	if c := s.decided(f.decisionID); c != nil && c.slot.key == f.slot && c.same(f) != different {
		return c
	}
	sl := s.slotOf(f)
	if sl == nil {
		return nil
	}
	if c := placeOpen(sl, f); c != nil {
		return c
	}
	if c := sl.latestLike(f, func(c *call) bool { return joinsClosed(c, f) }); c != nil {
		return c
	}
	return belated(sl, f)
}

func placeOpen(sl *slot, f *fact) *call {
	for _, c := range sl.calls {
		if c.open() && c.knows(f.eventID) && joinsByEvent(c, f) {
			return c
		}
	}
	for _, c := range sl.calls {
		if c.open() && c.same(f) != different && joinsOpen(c, f) {
			return c
		}
	}
	return nil
}

// joinsByEvent: one event id is one call, even where its contents differ, which
// is a finding of its own. Requests are judged one by one, so other arguments
// make another request of them.
func joinsByEvent(c *call, f *fact) bool {
	return f.kind == kindPre || c.same(f) != different
}

// joinsOpen tells whether a fact with the same tool and arguments belongs to an
// open call or is the next one. Under an id it belongs, asked again or not; but
// AAEP invokes once under one id (AAEP-C-052). Without an id each kind comes once.
func joinsOpen(c *call, f *fact) bool {
	switch f.kind {
	case kindPre:
		return !c.hasPre || (f.slot.id != "" && (f.protocol != protoAAEP || !c.pres.has(protoAAEP)))
	case kindRequest:
		return f.slot.id != "" || !c.hasRequest
	default:
		return f.slot.id != "" || len(c.decisions) == 0
	}
}

// joinsClosed tells whether a fact only comes late: whatever the order, the
// parts of one call stay together.
func joinsClosed(c *call, f *fact) bool {
	if c.state == events.CallOrphaned || c.same(f) == different {
		return false
	}
	sameEvent := c.knows(f.eventID)
	switch f.kind {
	case kindPre:
		return c.otherView(f) || sameEvent && c.preEvent != f.eventID || !c.hasPre && (c.refused() || c.closing == byError || f.slot.id != "" && c.overtook(f))
	case kindRequest:
		return !c.hasRequest && (sameEvent || len(c.decisions) > 0 && !c.hasPre && f.eventID == "" || len(c.decisions) == 0 && f.slot.id != "" && c.overtook(f))
	default:
		return len(c.decisions) == 0 && (sameEvent || f.eventID == "")
	}
}

// refused reports whether the call was closed by a deny.
func (c *call) refused() bool { return c.closing == byDeny || c.closing == byStop }

// firstEvent is the event that announced the call.
func (c *call) firstEvent() string {
	return first(c.preEvent, first(c.requestEvent, c.decisionEvent()))
}

func (c *call) decisionEvent() string {
	for _, d := range c.decisions {
		if d.eventID != "" {
			return d.eventID
		}
	}
	return ""
}

// consume finds the call that a completion ends: the oldest armed occurrence under its
// id. Where one side has no id, or neither has, the one that the correlation id names,
// and only then the oldest of the tool.
func (m *machine) consume(s *session, f *fact) (c *call, inferred bool) {
	if f.slot.id == "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	if f.slot != (slotKey{}) {
		if c := consumeSlot(s.slotOf(f), f); c != nil {
			return c, f.slot.id == ""
		}
	}
	if f.previous.id != "" {
		if c := consumeSlot(s.slots.get(f.previous, f.previous.hash()), f); c != nil {
			return c, false
		}
	}
	if f.slot.id != "" && f.protocol != protoAAEP {
		return nil, false
	}
	if f.slot.id != "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	return s.findOpen(func(c *call) bool { return c.mayEndBy(f) }), true
}

// mayEndBy tells whether an open call may be paired with a completion by its tool.
func (c *call) mayEndBy(f *fact) bool {
	return c.tool == f.tool && f.tool != "" && (f.slot.id == "" || c.slot.key.id == "")
}

// correlated finds the call that the correlation id of a completion names: one whose
// announcement has the same, or whose event it is. Of an id that several open calls
// have, the oldest is meant. A call that was closed without an end is meant if its
// event is named, or if every open call has another correlation id.
func (s *session) correlated(f *fact) *call {
	thread, event := f.lineage.thread(), f.lineage.correlation
	if thread.none() {
		return nil
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread == thread }); c != nil {
		return c
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.knows(event) }); c != nil {
		return c
	}
	sl := s.slots.get(slotOf("", f.tool), slotOf("", f.tool).hash())
	if sl == nil {
		return nil
	}
	only := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread.none() }) == nil
	return sl.latestClosed(func(c *call) bool {
		return c.awaitsPost() && (only && c.thread == thread || c.knows(event))
	})
}

// consumeSlot finds the call of a slot that a completion ends. Where the id was used
// for several tools, a call of the completion's own tool comes first.
func consumeSlot(sl *slot, f *fact) *call {
	if sl == nil {
		return nil
	}
	if c := sl.oldestOpenOf(f.tool); c != nil {
		return insteadOf(c, sl, f)
	}
	if c := sl.oldestOpen(); c != nil {
		if late := sl.latestClosed(func(o *call) bool { return o.awaitsPost() && o.tool == f.tool && f.tool != "" }); late != nil {
			return late
		}
		return insteadOf(c, sl, f)
	}
	if c := sl.latestLike(f, func(c *call) bool { return c.awaitsPost() && c.same(f) == equal }); c != nil {
		return c
	}
	if c := sl.latestClosed((*call).awaitsPost); c != nil {
		return c
	}
	return sl.latestClosed(func(c *call) bool { return c.refusedFirst() && (f.slot.id == "" || c.posts.has(f.protocol)) })
}

// insteadOf names the execution of a denied call as what it is: it must not
// hide behind an armed call of the same id whose arguments are others.
func insteadOf(armed *call, sl *slot, f *fact) *call {
	if f.ran == ranNo || armed.same(f) != different {
		return armed
	}
	if c := sl.latestLike(f, func(c *call) bool { return c.refused() && !c.hasPost && c.same(f) == equal }); c != nil {
		return c
	}
	return armed
}

// awaitsPost: closed without a Post event, which may still come.
func (c *call) awaitsPost() bool { return !c.hasPost && c.state != events.CallOrphaned }

// refusedFirst: denied, and completed nonetheless before. Under an id, what another
// protocol says of its end is the same completion: see repeated.
func (c *call) refusedFirst() bool { return c.standing().verdict == events.Deny }
