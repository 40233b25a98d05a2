package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// Of so many sessions it is remembered which agents have handed over, and of each
// session so many agents; the oldest are forgotten. It outlives what else is known
// of a session: an agent does not get its turn back by waiting.
const (
	maxHandoffs   = 16_384
	maxHandedOver = 16
)

// handedOverAgent is an agent after its handoff was accepted. It must not act in the session
// from there on, until another agent hands back to it.
//
// What counts is the signed decision on a proposal of a handoff (protocolRow.isHandoffTo;
// aioc's, RFC-0002): its agent hands over, and the tool name of the handoff says to whom. AAEP's
// handoff.requested only asks, and AgentHook's AgentHandoff does not say which
// agent goes on; nor that the one which it is from stops: its work may go on
// beside a child session's (AH-C-060).
type handedOverAgent struct {
	agent string
	seq   uint64 // of the decision
}

// handoffs are the agents that have handed over, by session.
type handoffs struct {
	findings  *findings
	bySession *tables.FIFO[fact.SourceSession, []handedOverAgent]
}

func newHandoffs(fs *findings) *handoffs {
	return &handoffs{findings: fs, bySession: tables.NewFIFO[fact.SourceSession, []handedOverAgent](maxHandoffs)}
}

// isEmpty reports whether no agent has handed over.
func (hs *handoffs) isEmpty() bool { return hs.bySession.Len() == 0 }

// trackHandoff takes an accepted handoff, and looks whether a call was made by an
// agent that had handed over before.
func (hs *handoffs) trackHandoff(s *session, c *call, f *fact.Fact) {
	list, _ := hs.bySession.Get(s.Key)
	if len(list) > 0 || c.handoffFinding.finding != "" {
		hs.checkCallAfterHandoff(list, c, f)
	}
	if f.Kind == fact.KindDecision && f.Decision.Verdict == events.Allow && f.Agent != "" && rowOf(f.Protocol).isHandoffTo != nil && !c.hasWeakScope() {
		hs.bySession.Put(s.Key, addHandoff(list, f))
	}
}

// addHandoff are the agents that have handed over after one more handoff.
func addHandoff(list []handedOverAgent, f *fact.Fact) []handedOverAgent {
	isHandoffTo := rowOf(f.Protocol).isHandoffTo
	list = slices.DeleteFunc(list, func(h handedOverAgent) bool {
		return h.agent == f.Agent || isHandoffTo(f.Tool, h.agent)
	})
	if isHandoffTo(f.Tool, f.Agent) {
		return list // to itself
	}
	if len(list) == maxHandedOver {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, handedOverAgent{f.Agent, f.Seq})
}

// handoffFinding is that a call was found to be made by an agent that had handed over.
type handoffFinding struct{ agent, finding string }

// checkCallAfterHandoff: what the call's own messages say of its agent may change, as a
// later one is better informed; then so does what was found.
func (hs *handoffs) checkCallAfterHandoff(list []handedOverAgent, c *call, f *fact.Fact) {
	if found := c.handoffFinding; found != (handoffFinding{}) {
		if c.agent != found.agent {
			hs.findings.reportRule(ruleAfterHandoff, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseWithdrawn).
				withSeverity(events.SeverityInfo).retracting(found.finding))
			c.handoffFinding = handoffFinding{}
		}
		return
	}
	begun := c.firstOwnSeq()
	if c.agent == "" || begun == 0 {
		return
	}
	for _, h := range list {
		if h.agent == c.agent && begun > h.seq {
			spec := findingFrom(c.firstEvent(), f.EventID)
			spec.seqs = append(spec.seqs, h.seq, begun)
			c.handoffFinding = handoffFinding{c.agent, hs.findings.reportRule(ruleAfterHandoff, c, f, spec)}
			return
		}
	}
}
