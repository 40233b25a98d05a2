package correlation

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// record is the call as the log shows it, but for its call_id.
func (c *call) record() events.Call {
	r := events.Call{
		Tenant: c.session.tenant, Source: c.session.source, Session: c.session.session,
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

// sequences are those of all that is known of the call.
func (c *call) sequences() []uint64 {
	var list []uint64
	for _, s := range c.timeline {
		if s.Seq != 0 {
			list = append(list, s.Seq)
		}
	}
	return list
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

// callID is the same for the same call in every replay.
func (c *call) callID() string {
	var room [callIDSize]byte
	return string(c.appendID(room[:0]))
}

// callIDSize is how long a call_id is.
const callIDSize = len(callIDPrefix) + 2*len(sum{})

const callIDPrefix = "call_"

// sum gives what the call_id is made of.
func (c *call) sum() sum {
	if c.hash == (sum{}) {
		k := c.session.key
		c.hash = sumOf("call", k.tenant, k.source, k.session, c.slot.key.id, c.slot.key.tool, itoa(c.occurrence))
	}
	return c.hash
}

func (c *call) appendID(b []byte) []byte {
	h := c.sum()
	return hex.AppendEncode(append(b, callIDPrefix...), h[:])
}
