package inspect

import (
	"encoding/json"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// retractedFindings are the findings that a later one retracts.
func retractedFindings(steps []step) map[string]bool {
	list := map[string]bool{}
	for _, st := range steps {
		var f events.Finding
		if st.Kind == evidence.KindFinding && json.Unmarshal(st.Body, &f) == nil && f.Retracts != "" {
			list[f.Retracts] = true
		}
	}
	return list
}

// overview counts decisions, calls and findings.
func overview(steps []step) string {
	retracted := retractedFindings(steps)
	calls, findings, decisions := map[string]bool{}, 0, 0
	for _, st := range steps {
		var r struct {
			CallID    string `json:"call_id"`
			FindingID string `json:"finding_id"`
			Retracts  string `json:"withdraws"`
		}
		_ = json.Unmarshal(st.Body, &r)
		switch st.Kind {
		case evidence.KindDecision:
			decisions++
		case evidence.KindCall:
			calls[r.CallID] = true
		case evidence.KindFinding:
			if r.Retracts == "" && !retracted[r.FindingID] {
				findings++
			}
		}
	}
	return ui.Plural(decisions, "decision") + ", " + ui.Plural(len(calls), "call") + ", " + ui.Plural(findings, "finding")
}
