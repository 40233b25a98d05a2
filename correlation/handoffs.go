package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aioc"
	"github.com/countersign-dev/countersign/events/subject"
)

// Of so many sessions it is remembered which agents have handed over, and of each
// session so many agents; the oldest are forgotten. It outlives what else is known
// of a session: an agent does not get its turn back by waiting.
const (
	maxHandoffs   = 16_384
	maxHandedOver = 16
)

// handedOver is an agent whose handoff was accepted: whoever acts in the session
// from there on, it is not that agent, until another hands back to it.
//
// What counts is the signed decision on an aioc handoff (RFC-0002): its agent
// hands over, and the tool name of the handoff says to whom. AAEP's
// handoff.requested only asks, and AgentHook's AgentHandoff does not say which
// agent goes on; nor that the one which it is from stops: its work may go on
// beside a child session's (AH-C-060).
type handedOver struct {
	agent string
	seq   uint64 // of the decision
}

// handoff takes an accepted handoff, and looks whether a call was made by an
// agent that had handed over before.
func (m *machine) handoff(s *session, c *call, f *fact) {
	list, _ := m.handoffs.get(s.key)
	if len(list) > 0 || c.tooLate.finding != "" {
		m.calledAfter(list, c, f)
	}
	if f.kind == kindDecision && f.protocol == subject.ProtoHandoff && f.decision.verdict == events.Allow && f.agent != "" && !c.weak() {
		m.handoffs.put(s.key, accepted(list, f))
	}
}

// accepted are the agents that have handed over after one more handoff.
func accepted(list []handedOver, f *fact) []handedOver {
	list = slices.DeleteFunc(list, func(h handedOver) bool {
		return h.agent == f.agent || aioc.IsHandoffToolName(f.tool, h.agent)
	})
	if aioc.IsHandoffToolName(f.tool, f.agent) {
		return list // to itself
	}
	if len(list) == maxHandedOver {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, handedOver{f.agent, f.seq})
}

// madeBy is that a call was found to be made by an agent that had handed over.
type madeBy struct{ agent, finding string }

// calledAfter: what the call's own messages say of its agent may change, as a
// later one is better informed; then so does what was found.
func (m *machine) calledAfter(list []handedOver, c *call, f *fact) {
	if found := c.tooLate; found != (madeBy{}) {
		if c.agent != found.agent {
			m.report(ruleAfterHandoff, c, f, about(c.firstEvent(), f.eventID).detail(detailWithdrawn).
				grade(events.SeverityInfo).withdrawing(found.finding))
			c.tooLate = madeBy{}
		}
		return
	}
	begun := c.begun()
	if c.agent == "" || begun == 0 {
		return
	}
	for _, h := range list {
		if h.agent == c.agent && begun > h.seq {
			v := about(c.firstEvent(), f.eventID)
			v.seqs = append(v.seqs, h.seq, begun)
			c.tooLate = madeBy{c.agent, m.report(ruleAfterHandoff, c, f, v)}
			return
		}
	}
}
