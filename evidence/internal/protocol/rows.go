package protocol

import "github.com/countersign-dev/countersign/events/subject"

// Rows is the table, by subject token. Only tests change it.
var Rows = map[string]*Row{
	subject.ProtoAgentHook: {Keep: agentHookMembers},
	subject.ProtoAAEP:      {Keep: aaepMembers},
	subject.ProtoAUMP:      {Keep: aumpMembers, KeepHeaders: setOf("aump-mandate-id aump-mandate-hash aump-mandate-version"), NeverStore: aumpNeverStored, Inspect: inspectAUMP},
	subject.ProtoAANA:      {Keep: aanaMembers, NeverStore: aanaNeverStored, Inspect: inspectAANA, AccountIDs: true},
	subject.ProtoTool:      {Keep: aiocMembers, NeverStore: aiocNeverStored},
	subject.ProtoHandoff:   {Keep: aiocMembers, NeverStore: aiocNeverStored},
}

// The tables of members: what identifies an event and says what happened, but no content. Plain
// hashes of arguments, payloads and prompts are not in them, because a short value can be
// guessed and tested against its hash.

var agentHookMembers = members(map[KeepRule]string{
	KeepIdentifier: "schema_version event_id event_type timestamp source agent_id session_id correlation_id evidence_phase tool_name action resource_kind " +
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
	KeepSummary: "metadata.governance_context.task_summary", // AHP-005
})

var aaepMembers = members(map[KeepRule]string{
	KeepIdentifier: "@context type event_id session_id timestamp aaep_version sequence_number verbosity urgency correlation_id " +
		"producer.agent_id producer.agent_version producer.model tool tool_call_id status duration_ms expected_duration_ms eta_ms " +
		"tool_invocations_count error_category error_code recoverable cancelled_by cancellation_reason from_state to_state " +
		"progress.percent progress.step progress.total_steps risk_level irreversible reversibility reply_token timeout_seconds default_decision " +
		"output_id content_type position complete target_kind urgency_for_handoff decision subscription_id subscriber_id reason_code",
	KeepIdentifiers: "accepted_response_kinds",
	KeepSummary:     "summary_terse summary_normal", // AAEP section 4, the summaries of every event
})

var aumpMembers = members(map[KeepRule]string{
	KeepIdentifier: "aump.version aump.type id mandate_ref.id mandate_ref.hash mandate_ref.version sequence created_at event_type result actor.role actor.id " +
		"action.type proposed_action.type proposed_action.commitment privacy.retention privacy.contains_private_fields privacy.redaction " +
		"hashes.event_hash hashes.previous_event_hash hashes.transcript_hash decision evaluated_at",
	KeepIdentifiers: "reason_codes",
	KeepGuardList:   "privacy.protected_fields negotiation.protected_fields",
	KeepSummary:     "summary", // AUMP, evidence event: summary is what may be kept under summary_only
})

var aanaMembers = members(map[KeepRule]string{
	KeepIdentifier: "schema_version tool_name tool_category authorization_state risk_domain recommended_route request_id agent_id authorization_subject.subject_type",
})

// aiocMembers is the table of aioc's proposals, policy decisions and governance events.
var aiocMembers = members(map[KeepRule]string{
	KeepIdentifier: "schemaVersion id type kind timestamp occurredAt severity status runId turn callId agentName toolName fromAgentName toAgentName providerName model " +
		"decision resultMode policyVersion expiresAt resource.kind resource.name resource.action code " +
		"subject.kind subject.name subject.turn subject.callId policy.decision policy.resultMode policy.policyVersion policy.expiresAt",
})

var aanaNeverStored = neverStored(NeverStore,
	"prompt user_request request candidate candidate_action candidate_answer draft_response available_evidence evidence constraints "+
		"safe_response output full_tool_arguments raw_tool_arguments",
	"proposed_arguments arguments tool_arguments")

var aiocNeverStored = neverStored(NeverStore,
	"contextSnapshot question response items promptText prompt rawArguments argsCanonicalJson canonicalPayloadJson payloadCanonicalJson errorMessage messages",
	"runContext parsedArguments arguments handoffPayload payload")
