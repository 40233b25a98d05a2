package evidence

import (
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// keepRule is how much a retention class leaves of one member.
type keepRule uint8

const (
	keepIdentifier  keepRule = iota + 1 // an identifier, a time, a number, a word of the protocol's own
	keepIdentifiers                     // a list of those
	keepGuardList                       // a list of those which says what must not be stored: without it nothing is
	keepSummary                         // a short text that the protocol defines as a summary: under summary_only
)

// memberRule is one member of an event, and the members in it that stay.
type memberRule struct {
	rule    keepRule
	members map[string]*memberRule
}

// structuralMembers are, by protocol, the members that every class but none keeps: what
// identifies an event and says what happened, never what it was about. Plain
// hashes of arguments, payloads and prompts are not among them: whoever guesses
// a short value can try it against them.
var structuralMembers = map[string]*memberRule{
	subject.ProtoAgentHook: newMemberTable(map[keepRule]string{
		keepIdentifier: "schema_version event_id event_type timestamp source agent_id session_id correlation_id evidence_phase tool_name action resource_kind " +
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
		keepSummary: "metadata.governance_context.task_summary", // AHP-005
	}),
	subject.ProtoAAEP: newMemberTable(map[keepRule]string{
		keepIdentifier: "@context type event_id session_id timestamp aaep_version sequence_number verbosity urgency correlation_id " +
			"producer.agent_id producer.agent_version producer.model tool tool_call_id status duration_ms expected_duration_ms eta_ms " +
			"tool_invocations_count error_category error_code recoverable cancelled_by cancellation_reason from_state to_state " +
			"progress.percent progress.step progress.total_steps risk_level irreversible reversibility reply_token timeout_seconds default_decision " +
			"output_id content_type position complete target_kind urgency_for_handoff decision subscription_id subscriber_id reason_code",
		keepIdentifiers: "accepted_response_kinds",
		keepSummary:     "summary_terse summary_normal", // AAEP section 4, the summaries of every event
	}),
	subject.ProtoAUMP: newMemberTable(map[keepRule]string{
		keepIdentifier: "aump.version aump.type id mandate_ref.id mandate_ref.hash mandate_ref.version sequence created_at event_type result actor.role actor.id " +
			"action.type proposed_action.type proposed_action.commitment privacy.retention privacy.contains_private_fields privacy.redaction " +
			"hashes.event_hash hashes.previous_event_hash hashes.transcript_hash decision evaluated_at",
		keepIdentifiers: "reason_codes",
		keepGuardList:   "privacy.protected_fields negotiation.protected_fields",
		keepSummary:     "summary", // AUMP, evidence event: summary is what may be kept under summary_only
	}),
	subject.ProtoAANA: newMemberTable(map[keepRule]string{
		keepIdentifier: "schema_version tool_name tool_category authorization_state risk_domain recommended_route request_id agent_id authorization_subject.subject_type",
	}),
	subject.ProtoTool:    aiocMembers,
	subject.ProtoHandoff: aiocMembers,
}

// aiocMembers are those of aioc's proposals, policy decisions and governance events.
var aiocMembers = newMemberTable(map[keepRule]string{
	keepIdentifier: "schemaVersion id type kind timestamp occurredAt severity status runId turn callId agentName toolName fromAgentName toAgentName providerName model " +
		"decision resultMode policyVersion expiresAt resource.kind resource.name resource.action code " +
		"subject.kind subject.name subject.turn subject.callId policy.decision policy.resultMode policy.policyVersion policy.expiresAt",
})

// envelopeMembers are the members of a structured CloudEvent that stay beside data
// (CloudEvents 1.0, section 3; traceparent of its extension for tracing).
const envelopeMembers = "specversion id source type time datacontenttype traceparent"

// envelopesByProtocol are the protocols' members in a structured CloudEvent.
var envelopesByProtocol = func() map[string]*memberRule {
	out := map[string]*memberRule{}
	for protocol, data := range structuralMembers {
		out[protocol] = newMemberTable(map[keepRule]string{keepIdentifier: envelopeMembers})
		out[protocol].members["data"] = data
	}
	return out
}()

// structuralHeaders are the headers whose values stay under every class, in lower
// case: those of CloudEvents, of tracing, of AUMP's mandates and our own.
var structuralHeaders = setOf("content-type nats-msg-id ce-id ce-source ce-type ce-time ce-specversion ce-datacontenttype traceparent ce-traceparent " +
	"countersign-session countersign-tool-call-id countersign-agent countersign-workflow-id countersign-decision-id countersign-decision-seq " +
	"aump-mandate-id aump-mandate-hash aump-mandate-version")

// newMemberTable makes a table of dotted names.
func newMemberTable(names map[keepRule]string) *memberRule {
	root := &memberRule{members: map[string]*memberRule{}}
	for keep, list := range names {
		for name := range strings.FieldsSeq(list) {
			root.addPath(strings.Split(name, "."), keep)
		}
	}
	return root
}

func (m *memberRule) addPath(path []string, keep keepRule) {
	next := m.members[path[0]]
	if next == nil {
		next = &memberRule{members: map[string]*memberRule{}}
		m.members[path[0]] = next
	}
	if len(path) == 1 {
		next.rule = keep
		return
	}
	next.addPath(path[1:], keep)
}

func setOf(names string) map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		out[name] = true
	}
	return out
}
