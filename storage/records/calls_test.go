package records

import (
	"encoding/json"
	"time"

	"github.com/countersign-dev/countersign/events"
)

type callRow struct {
	place
	CallID           string       `ch:"call_id"`
	Source           string       `ch:"source"`
	Protocol         string       `ch:"protocol"`
	Agent            string       `ch:"agent"`
	ToolCallID       string       `ch:"tool_call_id"`
	Occurrence       uint32       `ch:"occurrence"`
	Tool             string       `ch:"tool"`
	State            string       `ch:"state"`
	Outcome          string       `ch:"outcome"`
	Verdict          string       `ch:"verdict"`
	DecisionID       string       `ch:"decision_id"`
	DecisionSeq      uint64       `ch:"decision_seq"`
	ExecutionSeq     uint64       `ch:"execution_seq"`
	AdmittedDigest   string       `ch:"admitted_digest"`
	ExecutedDigest   string       `ch:"executed_digest"`
	Match            string       `ch:"match"`
	Inferred         bool         `ch:"inferred"`
	WeakScope        bool         `ch:"weak_scope"`
	Findings         []string     `ch:"findings"`
	TimelineSteps    []string     `ch:"timeline.step"`
	TimelineSeqs     []uint64     `ch:"timeline.seq"`
	TimelineTimes    []*time.Time `ch:"timeline.at"`
	TimelineEventIDs []string     `ch:"timeline.event_id"`

	TimelineProtocols  []string `ch:"timeline.protocol"`
	Protocols          []string `ch:"protocols"`
	MatchReason        string   `ch:"match_reason"`
	DifferencePointers []string `ch:"differences.pointer"`
	DifferenceKinds    []string `ch:"differences.kind"`
	MoreDifferences    uint32   `ch:"more_differences"`
	Attempt            uint32   `ch:"attempt"`
	RetriedFrom        string   `ch:"retried_from"`
	RetriedTo          string   `ch:"retried_to"`
	Trace              string   `ch:"trace"`
	ParentCallID       string   `ch:"parent_call_id"`
	ParentSource       string   `ch:"parent_source"`
	ParentSession      string   `ch:"parent_session"`
	ParentBy           string   `ch:"parent_by"`
	Decided            *int64   `ch:"requested_to_decided_us"`
	Started            *int64   `ch:"decided_to_started_us"`
	Ran                *int64   `ch:"started_to_completed_us"`
	Claimed            string   `ch:"claimed"`
	Binding            string   `ch:"binding"`
}

var callTable = recordTable[callRow, events.Call]{
	name: "calls",
	columns: []string{
		"call_id", "source", "protocol", "agent", "tool_call_id", "occurrence", "tool", "state", "outcome", "verdict", "decision_id",
		"decision_seq", "execution_seq", "admitted_digest", "executed_digest", "match", "inferred", "weak_scope", "findings",
		"timeline.step", "timeline.seq", "timeline.at", "timeline.event_id", "timeline.protocol", "protocols", "match_reason",
		"differences.pointer", "differences.kind", "more_differences", "attempt", "retried_from", "retried_to", "trace",
		"parent_call_id", "parent_source", "parent_session", "parent_by",
		"requested_to_decided_us", "decided_to_started_us", "started_to_completed_us", "claimed", "binding",
	},
	place:  func(r callRow) place { return r.place },
	record: callRow.toCall,
}

func (r callRow) toCall() events.Call {
	c := events.Call{
		CallID: r.CallID, Tenant: r.Tenant, Source: r.Source, Protocol: r.Protocol, Agent: r.Agent, Session: r.Session,
		ToolCallID: r.ToolCallID, Occurrence: int(r.Occurrence), Tool: r.Tool, State: events.CallState(r.State), Outcome: r.Outcome,
		Verdict: events.Verdict(r.Verdict), DecisionID: r.DecisionID, DecisionSeq: r.DecisionSeq, ExecutionSeq: r.ExecutionSeq,
		AdmittedDigest: r.AdmittedDigest, ExecutedDigest: r.ExecutedDigest, Match: r.Match, Inferred: r.Inferred, WeakScope: r.WeakScope,
		Findings: r.Findings, Protocols: r.Protocols, MatchReason: r.MatchReason, MoreDifferences: int(r.MoreDifferences),
		Attempt: int(r.Attempt), RetriedFrom: r.RetriedFrom, RetriedTo: r.RetriedTo, Traceparent: r.Trace, Binding: r.Binding,
	}
	for i, step := range r.TimelineSteps {
		c.Timeline = append(c.Timeline, events.TimelineEntry{
			Step: step, Seq: elementAt(r.TimelineSeqs, i), At: eventTime(elementAt(r.TimelineTimes, i)), EventID: elementAt(r.TimelineEventIDs, i),
			Protocol: elementAt(r.TimelineProtocols, i),
		})
	}
	for i, pointer := range r.DifferencePointers {
		c.Differences = append(c.Differences, events.Difference{Pointer: pointer, Kind: elementAt(r.DifferenceKinds, i)})
	}
	if p := (events.CallParent{CallID: r.ParentCallID, Source: r.ParentSource, Session: r.ParentSession, By: r.ParentBy}); p != (events.CallParent{}) {
		c.Parent = &p
	}
	if d := (events.CallDurations{Decided: r.Decided, Started: r.Started, Ran: r.Ran}); d != (events.CallDurations{}) {
		c.Durations = &d
	}
	if r.Claimed != "" {
		var claim events.CallClaim
		if json.Unmarshal([]byte(r.Claimed), &claim) == nil { // otherwise the record has no valid claim
			c.Claimed = &claim
		}
	}
	return c
}
