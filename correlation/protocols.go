package correlation

import (
	"math/bits"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// protocolSet says in which protocols something was seen.
//
// A publisher may tell of one call in several protocols: as AgentHook and as AAEP,
// or as the decision on an aioc proposal and as the events that follow. It is one
// call, and one record says all of it, if tenant, source, session and a
// tool_call_id that is not empty are the same, to the byte, and so is the tool
// where both name one; arguments must not contradict each other. It is never one
// call across tenants, publishers or sessions, nor by time, tool or arguments
// alone: what has no id is paired within its own protocol.
type protocolSet uint8

// protocolNames are the protocols of a call by their bits, sorted.
var protocolNames = [...]string{subject.ProtoAAEP, subject.ProtoAANA, subject.ProtoAgentHook, subject.ProtoAUMP, subject.ProtoHandoff, subject.ProtoTool}

func protocolBit(name string) protocolSet {
	for i, known := range protocolNames {
		if name == known {
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
	for i, name := range protocolNames {
		if p&(1<<i) != 0 {
			list = append(list, name)
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

// isOtherView tells whether an announcement that fits a call is the other
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

// completeInOtherProtocol takes the other protocol's view of a completion. What it knows
// beyond the first counts: arguments, where the first had none, and that the call
// ran, where the first left that open.
func (e *engine) completeInOtherProtocol(c *call, f *fact) {
	if c.endedIn.has(f.protocol) {
		return
	}
	before := c.maxEffect
	c.recordProtocol(f)
	c.applyClaims(f)
	c.recordTimes(f)
	c.addStep(stepCompleted, f)
	if f.effect != noEffect && c.execSeq == 0 {
		c.execSeq = f.seq
	}
	fresh := f.effect != noEffect && f.args.known && !c.executedArgs.known
	if fresh {
		c.executedArgs = f.args
		c.executedArgs.canonical = nil
	}
	switch {
	case f.effect > before:
		e.judge.judgeExecution(c, f)
	case fresh && c.effectiveVerdict().verdict != events.Deny:
		e.judge.compareCallInput(c, f, c.effectiveVerdict())
	}
	e.findings.emitCall(c)
}
