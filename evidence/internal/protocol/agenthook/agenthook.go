// Package agenthook has the row of AgentHook at the stage of evidence.
package agenthook

import "github.com/countersign-dev/countersign/evidence/internal/protocol/storable"

// Row is the row of AgentHook.
var Row = &storable.Row{Keep: storable.Members(map[storable.KeepRule]string{
	storable.KeepIdentifier: "schema_version event_id event_type timestamp source agent_id session_id correlation_id evidence_phase tool_name action resource_kind " +
		"resource_scope operation_risk error_type fail_mode_triggered outcome " +
		"metadata.tool_call_id metadata.duration_ms metadata.exit_code metadata.model metadata.provider metadata.tokens_input metadata.tokens_output " +
		"metadata.total_tokens metadata.publisher_id metadata.instance_id metadata.error_type metadata.fail_mode_triggered metadata.outcome " +
		"metadata.admission_verdict.verdict metadata.admission_verdict.subscriber metadata.admission_verdict.policy_id " +
		"metadata.admission_verdict.claim_reference metadata.admission_verdict.decided_at " +
		"metadata.approval.required metadata.approval.status metadata.approval.workflow_id metadata.approval.action_id metadata.approval.requested_at " +
		"metadata.approval.decided_at metadata.approval.expires_at metadata.approval.resume_policy " +
		"metadata.tool_identity.canonical_name metadata.tool_identity.provider_name metadata.tool_identity.source metadata.tool_identity.schema_hash " +
		"metadata.provider_translation.provider_surface metadata.risk.risk_class metadata.risk.requires_human_approval metadata.validation.status " +
		"metadata.redaction.applied metadata.redaction.policy_id metadata.retry.attempt metadata.retry.previous_tool_call_id " +
		"metadata.execution.outcome metadata.execution.started_at metadata.execution.completed_at metadata.execution.duration_ms metadata.execution.exit_code " +
		"metadata.governance_context.task_source metadata.governance_context.task_confidence metadata.governance_context.scope metadata.governance_context.context_id",
	storable.KeepSummary: "metadata.governance_context.task_summary", // AHP-005
})}
