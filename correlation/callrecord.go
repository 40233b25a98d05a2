package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// record is the call as the log shows it.
func (c *call) record() events.Call {
	r := events.Call{
		CallID: c.callID(), Tenant: c.session.names.tenant, Source: c.session.names.source, Session: c.session.names.session,
		Protocol: c.protocol, Agent: c.agent, ToolCallID: c.id, Occurrence: c.occurrence, Tool: c.tool,
		State: c.state, Outcome: c.outcome, ExecutionSeq: c.execSeq, Match: c.match,
		Inferred: c.inferred, WeakScope: c.weak(), Findings: slices.Clone(c.rules), Timeline: c.steps(),
		Protocols: c.seen.names(), MatchReason: c.reason, Differences: slices.Clone(c.differences), MoreDifferences: c.more,
		Attempt: int(c.chain.attempt), RetriedFrom: callIDOf(c.chain.from), RetriedTo: callIDOf(c.chain.to),
		Trace: c.trace,
	}
	r.AdmittedDigest, r.ExecutedDigest = c.args.keyed, c.executed.keyed
	decided := time.Time{}
	if st := c.standing(); st.ledger != nil {
		r.Verdict, r.DecisionID, r.DecisionSeq = st.verdict, st.ledger.id, st.ledger.seq
		if d := st.ledger.args.digest; d != "" {
			r.AdmittedDigest, r.ExecutedDigest = d, c.executed.in(d)
		}
		if !st.inherited {
			decided = st.ledger.at
		}
	}
	c.parts(&r, decided)
	return r
}

// steps is the timeline, which names a protocol only where it is another than
// the call's.
func (c *call) steps() []events.TimelineEntry {
	list := slices.Clone(c.timeline)
	for i := range list {
		if list[i].Protocol == c.protocol {
			list[i].Protocol = ""
		}
	}
	return list
}
