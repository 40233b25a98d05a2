package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// matchAnnouncement returns the call that a request, a decision or a pre event belongs to
// (docs/architecture.md, Identity of a call). nil means that the fact opens a new occurrence.
func (s *session) matchAnnouncement(f *fact.Fact) *call {
	if c := s.callOfDecision(f.DecisionID); c != nil && c.group.key == f.CallKey && c.compareFact(f) != fact.ArgsDifferent {
		return c
	}
	group := s.findGroup(f)
	if group == nil {
		return nil
	}
	if c := matchOpenCall(group, f); c != nil {
		return c
	}
	if c := group.latestClosedWhich(f, func(c *call) bool { return c.mayTakeLate(f) }, func(c *call) bool { return belongsToClosedCall(c, f) }); c != nil {
		return c
	}
	return findOvertakenCall(group, f)
}

func matchOpenCall(group *callGroup, f *fact.Fact) *call {
	for _, c := range group.calls {
		if c.isOpen() && c.hasEvent(f.EventID) && belongsByEvent(c, f) {
			return c
		}
	}
	for _, c := range group.calls {
		if c.isOpen() && c.compareFact(f) != fact.ArgsDifferent && belongsToOpenCall(c, f) {
			return c
		}
	}
	return nil
}

// belongsByEvent reports whether a fact with a known event id belongs to the call with that
// id. A pre event always does: other content is a conflict, which is reported. A request with
// other arguments is another request, with a verdict of its own.
func belongsByEvent(c *call, f *fact.Fact) bool {
	return f.Kind == fact.KindPre || c.compareFact(f) != fact.ArgsDifferent
}

// belongsToOpenCall reports whether a fact with the same tool and arguments belongs to an open
// call. If not, it opens the next one. With an id it belongs, even if it is repeated, unless
// its protocol permits one invocation for each id (onceUnderID). Without an id, each kind of
// fact comes once for a call.
func belongsToOpenCall(c *call, f *fact.Fact) bool {
	switch f.Kind {
	case fact.KindPre:
		return !c.hasPre || (f.CallKey.ID != "" && (!rowOf(f.Protocol).onceUnderID || !c.announcedIn.has(f.Protocol)))
	case fact.KindRequest:
		return f.CallKey.ID != "" || !c.hasRequest
	default:
		return f.CallKey.ID != "" || len(c.decisions) == 0
	}
}

// belongsToClosedCall reports whether a fact is a late part of a closed call.
func belongsToClosedCall(c *call, f *fact.Fact) bool {
	if c.state == events.CallOrphaned || c.compareFact(f) == fact.ArgsDifferent {
		return false
	}
	sameEvent := c.hasEvent(f.EventID)
	switch f.Kind {
	case fact.KindPre:
		switch {
		case c.isOtherView(f), c.isAnnouncedBy(f), sameEvent && c.preEvent != f.EventID:
			return true
		case c.hasPre:
			return false
		}
		return c.closedByRefusal() || c.closeReason == closedByError || f.CallKey.ID != "" && c.endedBefore(f)
	case fact.KindRequest:
		switch {
		case c.hasRequest:
			return false
		case sameEvent:
			return true
		case len(c.decisions) > 0: // its decision came first
			return !c.hasPre && f.EventID == ""
		}
		return f.CallKey.ID != "" && c.endedBefore(f)
	default:
		return len(c.decisions) == 0 && (sameEvent || f.EventID == "")
	}
}

// isAnnouncedBy reports whether a pre event is the very one that announced the call. It comes again once its
// id was forgotten, from a publisher that does not know that it was stored.
func (c *call) isAnnouncedBy(f *fact.Fact) bool {
	return f.Kind == fact.KindPre && f.EventID != "" && c.preEvent == f.EventID && c.preFrame == f.FrameSum
}

// matchCompletion returns the call that a completion ends: the oldest open occurrence under
// its id. If the completion or the call has no id, the call with its correlation id comes
// first, then the oldest call of its tool, with its arguments if there is one. inferred means
// that no id matched.
func (s *session) matchCompletion(f *fact.Fact) (c *call, inferred bool) {
	if f.CallKey.ID == "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	if f.CallKey != (fact.CallKey{}) {
		if c := matchInGroup(s.findGroup(f), f); c != nil {
			return c, f.CallKey.ID == ""
		}
	}
	if f.RetriedKey.ID != "" {
		if c := matchInGroup(s.groups.get(f.RetriedKey), f); c != nil {
			return c, false
		}
	}
	if f.CallKey.ID != "" {
		if !rowOf(f.Protocol).endsByCorrelation {
			return nil, false
		}
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	return s.findOpenLike(f, func(c *call) bool { return c.mayEndBy(f) }), true
}

// findOpenLike returns the oldest open call that fits and has the arguments of a completion, else
// the oldest that fits. Calls of one tool may run in parallel and end in any order.
func (s *session) findOpenLike(f *fact.Fact, fits func(*call) bool) *call {
	if f.CallKey.ID == "" && f.Args.Known {
		if c := s.findOpen(func(c *call) bool { return fits(c) && c.compareFact(f) == fact.ArgsEqual }); c != nil {
			return c
		}
	}
	return s.findOpen(fits)
}

// mayEndBy reports whether a completion may be paired with an open call by tool.
func (c *call) mayEndBy(f *fact.Fact) bool {
	return c.tool == f.Tool && f.Tool != "" && (f.CallKey.ID == "" || c.group.key.ID == "")
}

// correlated returns the call that the correlation id of a completion names. The call's
// announcement has that correlation id, or that event id. If several open calls match, see
// findOpenLike. A call that was closed without a completion matches if its event id is named,
// or if every open call has another correlation id.
func (s *session) correlated(f *fact.Fact) *call {
	thread, event := f.LineageRefs.Thread(), f.LineageRefs.Correlation
	if thread.IsZero() {
		return nil
	}
	if c := s.findOpenLike(f, func(c *call) bool { return c.mayEndBy(f) && c.thread == thread }); c != nil {
		return c
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.hasEvent(event) }); c != nil {
		return c
	}
	group := s.groups.get(fact.CallKeyOf("", f.Tool))
	if group == nil {
		return nil
	}
	only := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread.IsZero() }) == nil
	return group.latestClosed(func(c *call) bool {
		return c.awaitsCompletion() && (only && c.thread == thread || c.hasEvent(event))
	})
}

// matchInGroup returns the call of a group that a completion ends. If the id was used for
// several tools, a call of the completion's tool comes first. Without an id, a closed call with
// other arguments is another call.
func matchInGroup(group *callGroup, f *fact.Fact) *call {
	if group == nil {
		return nil
	}
	if c := group.oldestOpenOf(f); c != nil {
		return preferDeniedCall(c, group, f)
	}
	if c := group.oldestOpen(); c != nil {
		if late := group.latestClosed(func(o *call) bool { return o.awaitsCompletion() && o.tool == f.Tool && f.Tool != "" }); late != nil {
			return late
		}
		return preferDeniedCall(c, group, f)
	}
	if c := group.latestClosedLike(f, func(c *call) bool { return c.awaitsCompletion() && c.compareFact(f) == fact.ArgsEqual }); c != nil {
		return c
	}
	mayEnd := func(c *call) bool { return f.CallKey.ID != "" || c.compareFact(f) != fact.ArgsDifferent }
	if c := group.latestClosed(func(c *call) bool { return c.awaitsCompletion() && mayEnd(c) }); c != nil {
		return c
	}
	return group.latestClosed(func(c *call) bool {
		return c.effectivelyDenied() && mayEnd(c) && (f.CallKey.ID == "" || c.endedIn.has(f.Protocol))
	})
}

// preferDeniedCall returns the denied call if the arguments of a completion are those of a
// denied call and not those of the open one, which may have none. An execution of a denied call must
// not pass as one of an open call under the same id.
func preferDeniedCall(open *call, group *callGroup, f *fact.Fact) *call {
	if r := open.compareFact(f); f.Effect == fact.NoEffect || r == fact.ArgsEqual || r == fact.ArgsUnknown && open.statesArguments() {
		return open
	}
	if c := group.latestClosedLike(f, func(c *call) bool { return c.closedByRefusal() && !c.hasPost && c.compareFact(f) == fact.ArgsEqual }); c != nil {
		return c
	}
	return open
}

// awaitsCompletion reports whether the completion of a closed call may still come.
func (c *call) awaitsCompletion() bool { return !c.hasPost && c.state != events.CallOrphaned }

// effectivelyDenied reports whether the effective verdict of the call is deny.
func (c *call) effectivelyDenied() bool { return c.effectiveVerdict().verdict == events.Deny }

// findRepeatedCompletion returns the call whose completion a fact repeats: with other content
// under the same event id, which is reported as a conflict, or as the view of another
// protocol.
func (s *session) findRepeatedCompletion(f *fact.Fact) *call {
	group := s.findGroup(f)
	if group == nil || f.CallKey.ID == "" {
		return nil
	}
	return group.latestClosed(func(c *call) bool {
		return c.hasPost && (c.postProtocol != f.Protocol || (c.postEvent == f.EventID && f.EventID != ""))
	})
}

// A completion may come before the announcement of its call. The finding for the wrong order
// (low) stays (AAEP-C-080, AH-C-078); the orphan finding is retracted. The announcement opens
// no second call, which would lack a completion. Only the producer's clock tells which came
// first: runtimes repeat ids, and the next call under an id must not be taken for the late
// announcement of the last.

// findOvertakenCall returns the orphan that a late pre event or request announces: the oldest
// one under its id; without an id, the oldest with its tool and arguments.
func findOvertakenCall(group *callGroup, f *fact.Fact) *call {
	if f.Kind != fact.KindPre && f.Kind != fact.KindRequest {
		return nil
	}
	for _, c := range group.calls {
		if c.state == events.CallOrphaned && !c.expand().hasPre && c.endedBefore(f) && (f.CallKey.ID != "" || fact.CompareArguments(&c.executedArgs, &f.Args) != fact.ArgsDifferent) {
			return c
		}
	}
	return nil
}

// endedBefore reports whether, by the producer's clock, a call ended or was stopped at or
// after the time of an announcement, so that the announcement is late. A request with a clock
// of whole seconds must be strictly earlier: an equal time may be the next call's.
func (c *call) endedBefore(f *fact.Fact) bool {
	stopped := c.closeReason == closedByStop || c.closeReason == closedByError
	if !c.hasPost && !stopped || f.ProducerTimes.HappenedAt.IsZero() || c.endedAt.IsZero() {
		return false
	}
	if c.postProtocol != f.Protocol && (f.CallKey.ID == "" || c.compareFact(f) == fact.ArgsDifferent) {
		return false
	}
	fine := f.Kind == fact.KindPre || c.endedAt.Nanosecond() != 0
	return f.ProducerTimes.HappenedAt.Before(c.endedAt) || fine && f.ProducerTimes.HappenedAt.Equal(c.endedAt)
}

// findUpdatedCall returns the call that an update is about: by its id, else by the event that
// it names, else by the approval workflow.
func (s *session) findUpdatedCall(f *fact.Fact) *call {
	if group := s.findGroup(f); group != nil && f.CallKey.ID != "" {
		if c := group.oldestOpen(); c != nil {
			return c
		}
		return group.latestClosed((*call).awaitsCompletion)
	}
	for _, event := range append([]string{f.EventID}, f.RelatedEventIDs...) {
		if c := s.findNamed(event, func(c *call) bool { return c.hasEvent(event) }); c != nil {
			return c
		}
	}
	workflow := f.Approval.ValueOrZero().Workflow
	if workflow == "" {
		return nil
	}
	return s.findNamed(workflow, func(c *call) bool { return c.awaitedApproval().Workflow == workflow })
}

// findRetriedCall returns the call that a new call retries: the one that it names (AgentHook's
// retry.previous_tool_call_id), or the last one under its id with the same arguments if that
// was denied, asked or deferred.
func (s *session) findRetriedCall(f *fact.Fact) *call {
	if c := s.findNamedRetry(f); c != nil {
		return c
	}
	group := s.findGroup(f)
	c := group.latestClosedLike(f, func(c *call) bool { return c.state != events.CallOrphaned && c.compareFact(f) != fact.ArgsDifferent })
	if c == nil || (f.CallKey.ID == "" && c.compareFact(f) != fact.ArgsEqual) {
		return nil
	}
	if v := c.effectiveVerdict().verdict; v == "" || v == events.Allow {
		return nil
	}
	return c
}

// reopenRetried returns the denied call that a fact says it retries, if only its denial was kept; else nil.
func (s *session) reopenRetried(f *fact.Fact) *call {
	if f.RetriedKey == (fact.CallKey{}) || f.RetriedKey == f.CallKey {
		return nil
	}
	retried := *f
	retried.SetCallKey(f.RetriedKey)
	retried.CallID, retried.Args = f.RetriedKey.ID, fact.Arguments{}
	return s.calls.reopenDenied(s, &retried)
}

// findNamedRetry returns the last call under the id that a fact says it retries.
func (s *session) findNamedRetry(f *fact.Fact) *call {
	if f.RetriedKey == (fact.CallKey{}) || f.RetriedKey == f.CallKey {
		return nil
	}
	if group := s.groups.get(f.RetriedKey); group != nil && len(group.calls) > 0 {
		return group.calls[len(group.calls)-1].expand()
	}
	return nil
}
