package correlation

import (
	"cmp"
	"math/bits"

	"github.com/countersign-dev/countersign/events"
)

// matchAnnouncement finds the call that a request, a decision or a pre event belongs to
// (architecture section 4); nil means that it opens a new occurrence.
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

// belongsToOpenCall reports whether a fact with the same tool and arguments belongs to an
// open call or is the next one. Under an id it belongs, asked again or not; but
// a protocol may invoke once under one id (onceUnderID). Without an id each kind comes once.
func belongsToOpenCall(c *call, f *fact) bool {
	switch f.kind {
	case kindPre:
		return !c.hasPre || (f.callKey.id != "" && (!rowOf(f.protocol).onceUnderID || !c.announcedIn.has(f.protocol)))
	case kindRequest:
		return f.callKey.id != "" || !c.hasRequest
	default:
		return f.callKey.id != "" || len(c.decisions) == 0
	}
}

// belongsToClosedCall reports whether a fact only comes late: whatever the order, the
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
	return cmp.Or(x.preEvent, cmp.Or(x.requestEvent, x.decisionEvent()))
}

func (x *details) decisionEvent() string {
	for _, d := range x.decisions {
		if d.eventID != "" {
			return d.eventID
		}
	}
	return ""
}

// matchCompletion finds the call that a completion ends: the oldest opened occurrence under its
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
		if c := matchInGroup(s.groups.get(f.retriedKey, f.retriedKey.Hash()), f); c != nil {
			return c, false
		}
	}
	if f.callKey.id != "" && !rowOf(f.protocol).endsByCorrelation {
		return nil, false
	}
	if f.callKey.id != "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	return s.findOpen(func(c *call) bool { return c.mayEndBy(f) }), true
}

// mayEndBy reports whether an open call may be paired with a completion by its tool.
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
	sl := s.groups.get(callKeyOf("", f.tool), callKeyOf("", f.tool).Hash())
	if sl == nil {
		return nil
	}
	only := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread.isZero() }) == nil
	return sl.latestClosed(func(c *call) bool {
		return c.awaitsCompletion() && (only && c.thread == thread || c.hasEvent(event))
	})
}

// matchInGroup finds the call of a group that a completion ends. Where the id was used
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
// hide behind an opened call of the same id whose arguments are others.
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
		if name == known.token {
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
			list = append(list, known.token)
		}
	}
	return list
}

// protocolViews are the protocols in which a call was announced, ended, and heard of at
// all.
type protocolViews struct {
	announcedIn, endedIn, seenIn protocolSet
	maxEffect                    effect // the most that any of its ends says
}

func (x *details) recordProtocol(f *fact) {
	bit := protocolBit(f.protocol)
	x.seenIn |= bit
	switch f.kind {
	case kindPre:
		x.announcedIn |= bit
	case kindPost:
		x.endedIn |= bit
		x.maxEffect = max(x.maxEffect, f.effect)
	}
}

// isOtherView reports whether an announcement that fits a call is the other
// protocol's of one that is over already.
func (x *details) isOtherView(f *fact) bool {
	return f.kind == kindPre && f.callKey.id != "" && x.hasPre && !x.announcedIn.has(f.protocol)
}

// findRepeatedCompletion gives the call whose completion is said again by one for which
// nothing is left: another content under the same event id, which is a finding
// already, or the other protocol's view of the same completion.
func (s *session) findRepeatedCompletion(f *fact) *call {
	sl := s.findGroup(f)
	if sl == nil || f.callKey.id == "" {
		return nil
	}
	return sl.latestClosed(func(c *call) bool {
		return c.hasPost && (c.postProtocol != f.protocol || (c.postEvent == f.eventID && f.eventID != ""))
	})
}

// retryChain is a call's place among the attempts at the same thing.
type retryChain struct {
	from, to sum   // of the attempt before and of the last one after; zero if there is none
	attempt  int32 // from 2; zero for the first one
}

// findRetriedCall finds the call that a new one tries again: the one that it names
// (AgentHook's retry.previous_tool_call_id), or the last one under its id with the
// same arguments, unless that was allowed or has no verdict.
func (s *session) findRetriedCall(f *fact) *call {
	if c := s.findNamedRetry(f); c != nil {
		return c
	}
	sl := s.findGroup(f)
	c := sl.latestClosedLike(f, func(c *call) bool { return c.state != events.CallOrphaned && c.compareFact(f) != argsDifferent })
	if c == nil || (f.callKey.id == "" && c.compareFact(f) != argsEqual) {
		return nil
	}
	if v := c.effectiveVerdict().verdict; v == "" || v == events.Allow {
		return nil
	}
	return c
}

// findNamedRetry is the last call under the id that a fact says it tries again.
func (s *session) findNamedRetry(f *fact) *call {
	if f.retriedKey == (callKey{}) || f.retriedKey == f.callKey {
		return nil
	}
	if sl := s.groups.get(f.retriedKey, f.retriedKey.Hash()); sl != nil && len(sl.calls) > 0 {
		return sl.calls[len(sl.calls)-1].expand()
	}
	return nil
}

// linkRetry links a call with the attempt before it. That one is emitted again if
// it is over.
func (cs *calls) linkRetry(c, before *call) {
	if before == c || c.retryChain.from != (sum{}) || before.order >= c.order {
		return
	}
	c.retryChain.from, c.retryChain.attempt = before.idSum(), max(before.retryChain.attempt, 1)+1
	before.retryChain.to = c.idSum()
	cs.findings.emitCall(before)
}

func callIDOf(s sum) string {
	if s.isZero() {
		return ""
	}
	return hexID(callIDPrefix, s)
}
