package records

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

type findingRow struct {
	place
	FindingID   string     `ch:"finding_id"`
	Rule        string     `ch:"rule"`
	Severity    string     `ch:"severity"`
	Source      string     `ch:"source"`
	ToolCallID  string     `ch:"tool_call_id"`
	CallID      string     `ch:"call_id"`
	EventIDs    []string   `ch:"event_ids"`
	Seqs        []uint64   `ch:"seqs"`
	Explanation string     `ch:"explanation"`
	Remedy      string     `ch:"remedy"`
	DetectedAt  *time.Time `ch:"detected_at"`
	Withdraws   string     `ch:"withdraws"`
	Enforced    bool       `ch:"enforced"`
}

var findingTable = recordTable[findingRow, events.Finding]{
	name: "findings",
	columns: []string{
		"finding_id", "rule", "severity", "source", "tool_call_id", "call_id", "event_ids", "seqs", "explanation", "remedy",
		"detected_at", "withdraws", "enforced",
	},
	place:  func(r findingRow) place { return r.place },
	record: findingRow.toFinding,
}

func (r findingRow) toFinding() events.Finding {
	return events.Finding{
		FindingID: r.FindingID, Rule: r.Rule, Severity: events.Severity(r.Severity), Tenant: r.Tenant, Source: r.Source, Session: r.Session,
		ToolCallID: r.ToolCallID, CallID: r.CallID, EventIDs: r.EventIDs, Seqs: r.Seqs, Explanation: r.Explanation, Remedy: r.Remedy,
		DetectedAt: eventTime(r.DetectedAt), Retracts: r.Withdraws, Enforced: r.Enforced,
	}
}
