package inspect

import (
	"encoding/json"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// findingID is what a retraction names a finding by, in one shard.
type findingID struct{ rule, id string }

// retractedFindings are the findings that a later one retracts.
func retractedFindings(steps []step) map[findingID]bool {
	list := map[findingID]bool{}
	for _, st := range steps {
		var f events.Finding
		if st.Kind == evidence.KindFinding && json.Unmarshal(st.Body, &f) == nil && f.IsRetraction() {
			list[findingID{f.Rule, f.Retracts}] = true
		}
	}
	return list
}

// overview counts decisions, calls and findings among the records that have their text.
func overview(steps []step) string {
	retracted := retractedFindings(steps)
	calls, findings, decisions, expired := map[string]bool{}, 0, 0, 0
	for _, st := range steps {
		if st.Expired != "" {
			expired++
			continue
		}
		switch st.Kind {
		case evidence.KindDecision:
			decisions++
		case evidence.KindCall:
			var c struct {
				CallID string `json:"call_id"`
			}
			_ = json.Unmarshal(st.Body, &c)
			calls[c.CallID] = true
		case evidence.KindFinding:
			var f events.Finding
			_ = json.Unmarshal(st.Body, &f)
			if !f.IsRetraction() && !retracted[findingID{f.Rule, f.FindingID}] {
				findings++
			}
		}
	}
	text := ui.Plural(decisions, "decision") + ", " + ui.Plural(len(calls), "call") + ", " + ui.Plural(findings, "finding")
	if expired > 0 {
		text += "; not counted: " + ui.Plural(expired, "expired record")
	}
	return text
}
