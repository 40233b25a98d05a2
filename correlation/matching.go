package correlation

import (
	"cmp"
	"math/bits"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
)

// matchAnnouncement finds the call that a request, a decision or a pre event belongs to
// (architecture section 4); nil means that it opens a new occurrence.
func (s *session) matchAnnouncement(f *fact.Fact) *call {
	if c := s.callOfDecision(f.DecisionID); c != nil && c.group.key == f.CallKey && c.compareFact(f) != fact.ArgsDifferent {
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

func matchOpenCall(sl *callGroup, f *fact.Fact) *call {
	for _, c := range sl.calls {
		if c.isOpen() && c.hasEvent(f.EventID) && belongsByEvent(c, f) {
			return c
		}
	}
	for _, c := range sl.calls {
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
		return c.isOtherView(f) || sameEvent && c.preEvent != f.EventID || !c.hasPre && (c.wasRefused() || c.closeReason == closedByError || f.CallKey.Id != "" && c.endedBefore(f))
	case fact.KindRequest:
		return !c.hasRequest && (sameEvent || len(c.decisions) > 0 && !c.hasPre && f.EventID == "" || len(c.decisions) == 0 && f.CallKey.Id != "" && c.endedBefore(f))
	default:
		return len(c.decisions) == 0 && (sameEvent || f.EventID == "")
	}
}

// wasRefused reports whether the call was closed by a deny.
func (c *call) wasRefused() bool {
	return c.closeReason == closedByDeny || c.closeReason == closedByStop
}

// firstEvent is the event that announced the call.
func (x *details) firstEvent() string {
	return cmp.Or(x.preEvent, cmp.Or(x.requestEvent, x.decisionEvent()))
}

func (x *details) decisionEvent() string {
	for _, d := range x.decisions {
		if d.EventID != "" {
			return d.EventID
		}
	}
	return ""
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

// correlated finds the call that the correlation id of a completion names: one whose
// announcement has the same, or whose event it is. Of an id that several open calls
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
	sl := s.groups.get(fact.CallKeyOf("", f.Tool), fact.CallKeyOf("", f.Tool).Hash())
	if sl == nil {
		return nil
	}
	only := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread.IsZero() }) == nil
	return sl.latestClosed(func(c *call) bool {
		return c.awaitsCompletion() && (only && c.thread == thread || c.hasEvent(event))
	})
}

// matchInGroup finds the call of a group that a completion ends. Where the id was used
// for several tools, a call of the completion's own tool comes first.
func matchInGroup(sl *callGroup, f *fact.Fact) *call {
	if sl == nil {
		return nil
	}
	if c := sl.oldestOpenOf(f.Tool); c != nil {
		return preferDeniedCall(c, sl, f)
	}
	if c := sl.oldestOpen(); c != nil {
		if late := sl.latestClosed(func(o *call) bool { return o.awaitsCompletion() && o.tool == f.Tool && f.Tool != "" }); late != nil {
			return late
		}
		return preferDeniedCall(c, sl, f)
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return c.awaitsCompletion() && c.compareFact(f) == fact.ArgsEqual }); c != nil {
		return c
	}
	if c := sl.latestClosed((*call).awaitsCompletion); c != nil {
		return c
	}
	return sl.latestClosed(func(c *call) bool { return c.isDenied() && (f.CallKey.Id == "" || c.endedIn.has(f.Protocol)) })
}

// preferDeniedCall names the execution of a denied call as what it is: it must not
// hide behind an opened call of the same id whose arguments are others.
func preferDeniedCall(armed *call, sl *callGroup, f *fact.Fact) *call {
	if f.Effect == fact.NoEffect || armed.compareFact(f) != fact.ArgsDifferent {
		return armed
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return c.wasRefused() && !c.hasPost && c.compareFact(f) == fact.ArgsEqual }); c != nil {
		return c
	}
	return armed
}

// awaitsCompletion: closed without a Post event, which may still come.
func (c *call) awaitsCompletion() bool { return !c.hasPost && c.state != events.CallOrphaned }

// isDenied: denied, and completed nonetheless before. Under an id, what another
// protocol says of its end is the same completion: see repeated.
func (c *call) isDenied() bool { return c.effectiveVerdict().verdict == events.Deny }

// protocolSet says in which protocols something was seen.
//
// A publisher may tell of one call in several protocols: one calls it a hook,
// one a tool call, and the decision on it may have been made in a third. It is one
// call, and one record says all of it, if tenant, source, session and a
// tool_call_id that is not empty are the same, to the byte, and so is the tool
// where both name one; arguments must not contradict each other. It is never one
// call across tenants, publishers or sessions, nor by time, tool or arguments
// alone: what has no id is paired within its own protocol.
type protocolSet uint8

func protocolBit(name string) protocolSet {
	for i, known := range protocols {
		if name == known.Token {
			return 1 << i
		}
	}
	return 0
}

func (p protocolSet) has(name string) bool { return p&protocolBit(name) != 0 }

// names are the protocols, nil if there is but one.
func (p protocolSet) names() []string {
	if bits.OnesCount8(uint8(p)) < 2 {
		return nil
	}
	var list []string
	for i, known := range protocols {
		if p&(1<<i) != 0 {
			list = append(list, known.Token)
		}
	}
	return list
}

// protocolViews are the protocols in which a call was announced, ended, and heard of at
// all.
type protocolViews struct {
	announcedIn, endedIn, seenIn protocolSet
	maxEffect                    fact.Effect // the most that any of its ends says
}

func (x *details) recordProtocol(f *fact.Fact) {
	bit := protocolBit(f.Protocol)
	x.seenIn |= bit
	switch f.Kind {
	case fact.KindPre:
		x.announcedIn |= bit
	case fact.KindPost:
		x.endedIn |= bit
		x.maxEffect = max(x.maxEffect, f.Effect)
	}
}

// isOtherView reports whether an announcement that fits a call is the other
// protocol's of one that is over already.
func (x *details) isOtherView(f *fact.Fact) bool {
	return f.Kind == fact.KindPre && f.CallKey.Id != "" && x.hasPre && !x.announcedIn.has(f.Protocol)
}

// findRepeatedCompletion gives the call whose completion is said again by one for which
// nothing is left: another content under the same event id, which is a finding
// already, or the other protocol's view of the same completion.
func (s *session) findRepeatedCompletion(f *fact.Fact) *call {
	sl := s.findGroup(f)
	if sl == nil || f.CallKey.Id == "" {
		return nil
	}
	return sl.latestClosed(func(c *call) bool {
		return c.hasPost && (c.postProtocol != f.Protocol || (c.postEvent == f.EventID && f.EventID != ""))
	})
}

// retryChain is a call's place among the attempts at the same thing.
type retryChain struct {
	from, to fact.Sum // of the attempt before and of the last one after; zero if there is none
	attempt  int32    // from 2; zero for the first one
}

// findRetriedCall finds the call that a new one tries again: the one that it names
// (AgentHook's retry.previous_tool_call_id), or the last one under its id with the
// same arguments, unless that was allowed or has no verdict.
func (s *session) findRetriedCall(f *fact.Fact) *call {
	if c := s.findNamedRetry(f); c != nil {
		return c
	}
	sl := s.findGroup(f)
	c := sl.latestClosedLike(f, func(c *call) bool { return c.state != events.CallOrphaned && c.compareFact(f) != fact.ArgsDifferent })
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
	if sl := s.groups.get(f.RetriedKey, f.RetriedKey.Hash()); sl != nil && len(sl.calls) > 0 {
		return sl.calls[len(sl.calls)-1].expand()
	}
	return nil
}

// linkRetry links a call with the attempt before it. That one is emitted again if
// it is over.
func (cs *calls) linkRetry(c, before *call) {
	if before == c || c.retryChain.from != (fact.Sum{}) || before.order >= c.order {
		return
	}
	c.retryChain.from, c.retryChain.attempt = before.idSum(), max(before.retryChain.attempt, 1)+1
	before.retryChain.to = c.idSum()
	cs.findings.emitCall(before)
}

func callIDOf(s fact.Sum) string {
	if s.IsZero() {
		return ""
	}
	return hexID(callIDPrefix, s)
}
