package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// Bounds: the sessions with agents that handed over, and such agents of one session. These
// entries outlive the session: waiting does not give an agent its turn back.
const (
	maxHandoffs   = 16_384
	maxHandedOver = 16
)

// handedOverAgent is an agent whose handoff was accepted. It must not act in the session until
// another agent hands back to it.
//
// Only a signed decision on a proposed handoff counts (protocolRow.isHandoffTo; aioc
// RFC-0002). Its agent hands over, and the tool name of the handoff names the agent that goes
// on. AAEP's handoff.requested is a request only. AgentHook's AgentHandoff does not name the
// agent that goes on, and does not say that the other one stops: it may work beside a child
// session (AH-C-060).
type handedOverAgent struct {
	agent string
	seq   uint64 // of the decision
}

// handoffs holds the agents that handed over, by session.
type handoffs struct {
	findings  *findings `snapshot:"-"` // another part
	bySession *tables.Shared[fact.SourceSession, []handedOverAgent]
}

func newHandoffs(fs *findings) *handoffs {
	return &handoffs{findings: fs, bySession: tables.NewShared[fact.SourceSession, []handedOverAgent](maxHandoffs)}
}

// isEmpty reports whether no agent handed over.
func (hs *handoffs) isEmpty() bool { return hs.bySession.Len() == 0 }

// trackHandoff checks whether the call's agent handed over before, and records an accepted
// handoff.
func (hs *handoffs) trackHandoff(s *session, c *call, f *fact.Fact) {
	list, _ := hs.bySession.Get(s.Key.Tenant, s.Key)
	if len(list) > 0 || c.handoffFinding.finding != "" {
		hs.checkCallAfterHandoff(list, c, f)
	}
	if f.Kind == fact.KindDecision && f.Decision.Verdict == events.Allow && f.Agent != "" && rowOf(f.Protocol).isHandoffTo != nil && !c.hasWeakScope() {
		hs.bySession.Put(s.Key.Tenant, s.Key, addHandoff(list, f))
	}
}

// addHandoff returns the agents that handed over, after one more handoff.
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

// handoffFinding is the id of a call_after_handoff finding, and the agent that it is about.
type handoffFinding struct{ agent, finding string }

// checkCallAfterHandoff reports a call of an agent that handed over before. If a later message
// names another agent of the call, the finding is retracted.
func (hs *handoffs) checkCallAfterHandoff(list []handedOverAgent, c *call, f *fact.Fact) {
	if found := c.handoffFinding; found != (handoffFinding{}) {
		if c.agent != found.agent {
			hs.findings.reportRule(ruleAfterHandoff, c, f, findingFrom(c.firstEvent(), f.EventID).withCase(caseRetracted).
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
