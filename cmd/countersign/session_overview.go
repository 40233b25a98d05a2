package main

import (
	"encoding/json"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// withdrawals are the findings that a later one takes back.
func withdrawals(steps []step) map[string]bool {
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
	withdrawn := withdrawals(steps)
	calls, findings, decisions := map[string]bool{}, 0, 0
	for _, st := range steps {
		var r struct {
			CallID    string `json:"call_id"`
			FindingID string `json:"finding_id"`
			Withdraws string `json:"withdraws"`
		}
		_ = json.Unmarshal(st.Body, &r)
		switch st.Kind {
		case evidence.KindDecision:
			decisions++
		case evidence.KindCall:
			calls[r.CallID] = true
		case evidence.KindFinding:
			if r.Withdraws == "" && !withdrawn[r.FindingID] {
				findings++
			}
		}
	}
	return plural(decisions, "decision") + ", " + plural(len(calls), "call") + ", " + plural(findings, "finding")
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
