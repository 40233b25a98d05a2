package correlation

import (
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// matchAnnouncement finds the call that a request, a decision or a pre event belongs to
// (architecture section 4); nil means that it opens a new occurrence.
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
	if c := group.latestClosedLike(f, func(c *call) bool { return belongsToClosedCall(c, f) }); c != nil {
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

// belongsByEvent: one event id is one call, even where its contents differ, which
// is a finding of its own. Requests are judged one by one, so other arguments
// make another request of them.
func belongsByEvent(c *call, f *fact.Fact) bool {
	return f.Kind == fact.KindPre || c.compareFact(f) != fact.ArgsDifferent
}

// belongsToOpenCall reports whether a fact with the same tool and arguments belongs to an
// open call or is the next one. Under an id it belongs, asked again or not; but
// a protocol may invoke once under one id (onceUnderID). Without an id each kind comes once.
func belongsToOpenCall(c *call, f *fact.Fact) bool {
	switch f.Kind {
	case fact.KindPre:
		return !c.hasPre || (f.CallKey.Id != "" && (!rowOf(f.Protocol).onceUnderID || !c.announcedIn.has(f.Protocol)))
	case fact.KindRequest:
		return f.CallKey.Id != "" || !c.hasRequest
	default:
		return f.CallKey.Id != "" || len(c.decisions) == 0
	}
}

// belongsToClosedCall reports whether a fact only comes late: whatever the order, the
// parts of one call stay together.
func belongsToClosedCall(c *call, f *fact.Fact) bool {
	if c.state == events.CallOrphaned || c.compareFact(f) == fact.ArgsDifferent {
		return false
	}
	sameEvent := c.hasEvent(f.EventID)
	switch f.Kind {
	case fact.KindPre:
		return c.isOtherView(f) || sameEvent && c.preEvent != f.EventID || !c.hasPre && (c.closedByRefusal() || c.closeReason == closedByError || f.CallKey.Id != "" && c.endedBefore(f))
	case fact.KindRequest:
		return !c.hasRequest && (sameEvent || len(c.decisions) > 0 && !c.hasPre && f.EventID == "" || len(c.decisions) == 0 && f.CallKey.Id != "" && c.endedBefore(f))
	default:
		return len(c.decisions) == 0 && (sameEvent || f.EventID == "")
	}
}

// matchCompletion finds the call that a completion ends: the oldest opened occurrence under its
// id. Where one side has no id, or neither has, the one that the correlation id names,
// and only then the oldest of the tool.
func (s *session) matchCompletion(f *fact.Fact) (c *call, inferred bool) {
	if f.CallKey.Id == "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	if f.CallKey != (fact.CallKey{}) {
		if c := matchInGroup(s.findGroup(f), f); c != nil {
			return c, f.CallKey.Id == ""
		}
	}
	if f.RetriedKey.Id != "" {
		if c := matchInGroup(s.groups.get(f.RetriedKey, f.RetriedKey.Hash()), f); c != nil {
			return c, false
		}
	}
	if f.CallKey.Id != "" && !rowOf(f.Protocol).endsByCorrelation {
		return nil, false
	}
	if f.CallKey.Id != "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	return s.findOpen(func(c *call) bool { return c.mayEndBy(f) }), true
}

// mayEndBy reports whether an open call may be paired with a completion by its tool.
func (c *call) mayEndBy(f *fact.Fact) bool {
	return c.tool == f.Tool && f.Tool != "" && (f.CallKey.Id == "" || c.group.key.Id == "")
}

// correlated finds the call that the correlation id of a completion names: its
// announcement has the same id, or is the event so named. Of an id that several open calls
// have, the oldest is meant. A call that was closed without an end is meant if its
// event is named, or if every open call has another correlation id.
func (s *session) correlated(f *fact.Fact) *call {
	thread, event := f.LineageRefs.Thread(), f.LineageRefs.Correlation
	if thread.IsZero() {
		return nil
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread == thread }); c != nil {
		return c
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.hasEvent(event) }); c != nil {
		return c
	}
	group := s.groups.get(fact.CallKeyOf("", f.Tool), fact.CallKeyOf("", f.Tool).Hash())
	if group == nil {
		return nil
	}
	only := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread.IsZero() }) == nil
	return group.latestClosed(func(c *call) bool {
		return c.awaitsCompletion() && (only && c.thread == thread || c.hasEvent(event))
	})
}

// matchInGroup finds the call of a group that a completion ends. Where the id was used
// for several tools, a call of the completion's own tool comes first.
func matchInGroup(group *callGroup, f *fact.Fact) *call {
	if group == nil {
		return nil
	}
	if c := group.oldestOpenOf(f.Tool); c != nil {
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
	if c := group.latestClosed((*call).awaitsCompletion); c != nil {
		return c
	}
	return group.latestClosed(func(c *call) bool { return c.effectivelyDenied() && (f.CallKey.Id == "" || c.endedIn.has(f.Protocol)) })
}

// preferDeniedCall names the execution of a denied call as what it is: it must not
// hide behind an opened call of the same id with other arguments.
func preferDeniedCall(open *call, group *callGroup, f *fact.Fact) *call {
	if f.Effect == fact.NoEffect || open.compareFact(f) != fact.ArgsDifferent {
		return open
	}
	if c := group.latestClosedLike(f, func(c *call) bool { return c.closedByRefusal() && !c.hasPost && c.compareFact(f) == fact.ArgsEqual }); c != nil {
		return c
	}
	return open
}

// awaitsCompletion: closed without a Post event, which may still come.
func (c *call) awaitsCompletion() bool { return !c.hasPost && c.state != events.CallOrphaned }

// isDenied: denied, and completed nonetheless before. Under an id, what another
// protocol says of its end is the same completion: see repeated.
func (c *call) effectivelyDenied() bool { return c.effectiveVerdict().verdict == events.Deny }

// findRepeatedCompletion gives the call with a completion that is said again by one for which
// nothing is left: another content under the same event id, which is a finding
// already, or the other protocol's view of the same completion.
func (s *session) findRepeatedCompletion(f *fact.Fact) *call {
	group := s.findGroup(f)
	if group == nil || f.CallKey.Id == "" {
		return nil
	}
	return group.latestClosed(func(c *call) bool {
		return c.hasPost && (c.postProtocol != f.Protocol || (c.postEvent == f.EventID && f.EventID != ""))
	})
}

// A completion may come before the announcement of its call. The finding for the wrong
// order (low) stays (AAEP-C-080, AH-C-078); the finding that the call was not announced is
// retracted. The announcement begins no second call, which would be missing its end.
// Only the producer's clock can tell which of the two happened first: runtimes repeat
// ids, and the next call under an id must not be taken for the beginning of the last.

// findOvertakenCall finds the call that a pre event or request should have been before: the
// oldest one under its id, or of its tool and arguments where nothing has ids, that
// ended without.
func findOvertakenCall(group *callGroup, f *fact.Fact) *call {
	if f.Kind != fact.KindPre && f.Kind != fact.KindRequest {
		return nil
	}
	for _, c := range group.calls {
		if c.state == events.CallOrphaned && !c.expand().hasPre && c.endedBefore(f) && (f.CallKey.Id != "" || fact.CompareArguments(&c.executedArgs, &f.Args) != fact.ArgsDifferent) {
			return c
		}
	}
	return nil
}

// endedBefore reports whether the end of a call, or that it was stopped, was reported
// before the announcement that by its own word is not later. A clock that shows
// whole seconds does not tell a request for the next call from one for this.
func (c *call) endedBefore(f *fact.Fact) bool {
	stopped := c.closeReason == closedByStop || c.closeReason == closedByError
	if !c.hasPost && !stopped || f.ProducerTimes.HappenedAt.IsZero() || c.endedAt.IsZero() {
		return false
	}
	if c.postProtocol != f.Protocol && (f.CallKey.Id == "" || c.compareFact(f) == fact.ArgsDifferent) {
		return false
	}
	fine := f.Kind == fact.KindPre || c.endedAt.Nanosecond() != 0
	return f.ProducerTimes.HappenedAt.Before(c.endedAt) || fine && f.ProducerTimes.HappenedAt.Equal(c.endedAt)
}

// findUpdatedCall finds the call that a remark is about: by its id, by the event it
// names, by the approval workflow.
func (s *session) findUpdatedCall(f *fact.Fact) *call {
	if group := s.findGroup(f); group != nil && f.CallKey.Id != "" {
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

// findRetriedCall finds the call that a new one tries again: the one that it names
// (AgentHook's retry.previous_tool_call_id), or the last one under its id with the
// same arguments, unless that was allowed or has no verdict.
func (s *session) findRetriedCall(f *fact.Fact) *call {
	if c := s.findNamedRetry(f); c != nil {
		return c
	}
	group := s.findGroup(f)
	c := group.latestClosedLike(f, func(c *call) bool { return c.state != events.CallOrphaned && c.compareFact(f) != fact.ArgsDifferent })
	if c == nil || (f.CallKey.Id == "" && c.compareFact(f) != fact.ArgsEqual) {
		return nil
	}
	if v := c.effectiveVerdict().verdict; v == "" || v == events.Allow {
		return nil
	}
	return c
}

// findNamedRetry is the last call under the id that a fact says it tries again.
func (s *session) findNamedRetry(f *fact.Fact) *call {
	if f.RetriedKey == (fact.CallKey{}) || f.RetriedKey == f.CallKey {
		return nil
	}
	if group := s.groups.get(f.RetriedKey, f.RetriedKey.Hash()); group != nil && len(group.calls) > 0 {
		return group.calls[len(group.calls)-1].expand()
	}
	return nil
}
