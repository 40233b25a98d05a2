// Package aaep has the row of AAEP at the stage of evidence.
package aaep

import "github.com/countersign-dev/countersign/evidence/internal/protocol/storable"

// Row is the row of AAEP.
var Row = &storable.Row{Keep: storable.Members(map[storable.KeepRule]string{
	storable.KeepIdentifier: "@context type event_id session_id timestamp aaep_version sequence_number verbosity urgency correlation_id " +
		"producer.agent_id producer.agent_version producer.model tool tool_call_id status duration_ms expected_duration_ms eta_ms " +
		"tool_invocations_count error_category error_code recoverable cancelled_by cancellation_reason from_state to_state " +
		"progress.percent progress.step progress.total_steps risk_level irreversible reversibility reply_token timeout_seconds default_decision " +
		"output_id content_type position complete target_kind urgency_for_handoff decision subscription_id subscriber_id reason_code",
	storable.KeepIdentifiers: "accepted_response_kinds",
	storable.KeepSummary:     "summary_terse summary_normal", // section 4, the summaries of every event
})}
