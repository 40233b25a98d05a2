package correlation

import "github.com/countersign-dev/countersign/events"

// matchAnnouncement finds the call that a request, a decision or a pre event belongs to
// (architecture section 4); nil means that it arms a new occurrence.
func (s *session) matchAnnouncement(f *fact) *call {
	if c := s.callOfDecision(f.decisionID); c != nil && c.group.key == f.callKey && c.compareFact(f) != argsDifferent {
		return c
	}
	sl := s.findGroup(f)
	if sl == nil {
		return nil
	}
	if c := matchOpenCall(sl, f); c != nil {
		return c
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return belongsToClosedCall(c, f) }); c != nil {
		return c
	}
	return findOvertakenCall(sl, f)
}

func matchOpenCall(sl *callGroup, f *fact) *call {
	for _, c := range sl.calls {
		if c.isOpen() && c.hasEvent(f.eventID) && belongsByEvent(c, f) {
			return c
		}
	}
	for _, c := range sl.calls {
		if c.isOpen() && c.compareFact(f) != argsDifferent && belongsToOpenCall(c, f) {
			return c
		}
	}
	return nil
}

// belongsByEvent: one event id is one call, even where its contents differ, which
// is a finding of its own. Requests are judged one by one, so other arguments
// make another request of them.
func belongsByEvent(c *call, f *fact) bool {
	return f.kind == kindPre || c.compareFact(f) != argsDifferent
}

// belongsToOpenCall tells whether a fact with the same tool and arguments belongs to an
// open call or is the next one. Under an id it belongs, asked again or not; but
// AAEP invokes once under one id (AAEP-C-052). Without an id each kind comes once.
func belongsToOpenCall(c *call, f *fact) bool {
	switch f.kind {
	case kindPre:
		return !c.hasPre || (f.callKey.id != "" && (f.protocol != protoAAEP || !c.announcedIn.has(protoAAEP)))
	case kindRequest:
		return f.callKey.id != "" || !c.hasRequest
	default:
		return f.callKey.id != "" || len(c.decisions) == 0
	}
}

// belongsToClosedCall tells whether a fact only comes late: whatever the order, the
// parts of one call stay together.
func belongsToClosedCall(c *call, f *fact) bool {
	if c.state == events.CallOrphaned || c.compareFact(f) == argsDifferent {
		return false
	}
	sameEvent := c.hasEvent(f.eventID)
	switch f.kind {
	case kindPre:
		return c.isOtherView(f) || sameEvent && c.preEvent != f.eventID || !c.hasPre && (c.wasRefused() || c.closeReason == closedByError || f.callKey.id != "" && c.endedBefore(f))
	case kindRequest:
		return !c.hasRequest && (sameEvent || len(c.decisions) > 0 && !c.hasPre && f.eventID == "" || len(c.decisions) == 0 && f.callKey.id != "" && c.endedBefore(f))
	default:
		return len(c.decisions) == 0 && (sameEvent || f.eventID == "")
	}
}

// wasRefused reports whether the call was closed by a deny.
func (c *call) wasRefused() bool {
	return c.closeReason == closedByDeny || c.closeReason == closedByStop
}

// firstEvent is the event that announced the call.
func (x *details) firstEvent() string {
	return firstNonEmpty(x.preEvent, firstNonEmpty(x.requestEvent, x.decisionEvent()))
}

func (x *details) decisionEvent() string {
	for _, d := range x.decisions {
		if d.eventID != "" {
			return d.eventID
		}
	}
	return ""
}

// matchCompletion finds the call that a completion ends: the oldest armed occurrence under its
// id. Where one side has no id, or neither has, the one that the correlation id names,
// and only then the oldest of the tool.
func (s *session) matchCompletion(f *fact) (c *call, inferred bool) {
	if f.callKey.id == "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	if f.callKey != (callKey{}) {
		if c := matchInGroup(s.findGroup(f), f); c != nil {
			return c, f.callKey.id == ""
		}
	}
	if f.retriedKey.id != "" {
		if c := matchInGroup(s.groups.get(f.retriedKey, f.retriedKey.hash()), f); c != nil {
			return c, false
		}
	}
	if f.callKey.id != "" && f.protocol != protoAAEP {
		return nil, false
	}
	if f.callKey.id != "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	return s.findOpen(func(c *call) bool { return c.mayEndBy(f) }), true
}

// mayEndBy tells whether an open call may be paired with a completion by its tool.
func (c *call) mayEndBy(f *fact) bool {
	return c.tool == f.tool && f.tool != "" && (f.callKey.id == "" || c.group.key.id == "")
}

// correlated finds the call that the correlation id of a completion names: one whose
// announcement has the same, or whose event it is. Of an id that several open calls
// have, the oldest is meant. A call that was closed without an end is meant if its
// event is named, or if every open call has another correlation id.
func (s *session) correlated(f *fact) *call {
	thread, event := f.lineageRefs.thread(), f.lineageRefs.correlation
	if thread.isZero() {
		return nil
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread == thread }); c != nil {
		return c
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.hasEvent(event) }); c != nil {
		return c
	}
	sl := s.groups.get(callKeyOf("", f.tool), callKeyOf("", f.tool).hash())
	if sl == nil {
		return nil
	}
	only := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread.isZero() }) == nil
	return sl.latestClosed(func(c *call) bool {
		return c.awaitsCompletion() && (only && c.thread == thread || c.hasEvent(event))
	})
}

// matchInGroup finds the call of a slot that a completion ends. Where the id was used
// for several tools, a call of the completion's own tool comes first.
func matchInGroup(sl *callGroup, f *fact) *call {
	if sl == nil {
		return nil
	}
	if c := sl.oldestOpenOf(f.tool); c != nil {
		return preferDeniedCall(c, sl, f)
	}
	if c := sl.oldestOpen(); c != nil {
		if late := sl.latestClosed(func(o *call) bool { return o.awaitsCompletion() && o.tool == f.tool && f.tool != "" }); late != nil {
			return late
		}
		return preferDeniedCall(c, sl, f)
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return c.awaitsCompletion() && c.compareFact(f) == argsEqual }); c != nil {
		return c
	}
	if c := sl.latestClosed((*call).awaitsCompletion); c != nil {
		return c
	}
	return sl.latestClosed(func(c *call) bool { return c.isDenied() && (f.callKey.id == "" || c.endedIn.has(f.protocol)) })
}

// preferDeniedCall names the execution of a denied call as what it is: it must not
// hide behind an armed call of the same id whose arguments are others.
func preferDeniedCall(armed *call, sl *callGroup, f *fact) *call {
	if f.effect == noEffect || armed.compareFact(f) != argsDifferent {
		return armed
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return c.wasRefused() && !c.hasPost && c.compareFact(f) == argsEqual }); c != nil {
		return c
	}
	return armed
}

// awaitsCompletion: closed without a Post event, which may still come.
func (c *call) awaitsCompletion() bool { return !c.hasPost && c.state != events.CallOrphaned }

// isDenied: denied, and completed nonetheless before. Under an id, what another
// protocol says of its end is the same completion: see repeated.
func (c *call) isDenied() bool { return c.effectiveVerdict().verdict == events.Deny }
