package format

import (
	"slices"

	"github.com/countersign-dev/countersign/events"
)

// Field says where the value of a part of a line comes from. The reference page of the formats is made
// from these tables.
type Field struct {
	Names []string // as the format has them
	From  string
}

// Fields lists what a format takes from the evidence. What it does not list comes from the decision.
func Fields(name string) []Field { return slices.Clone(fieldSources[name]) }

// fieldSources are the sources of fields, by format.
var fieldSources = map[string][]Field{
	AANADecisionEvents: aanaFields,
	AANAAuditRecords:   aanaFields,
	AUMPEvidence: {
		{[]string{"mandate_ref"}, "the decision, else the request. A request without a well-formed hash has no line"},
		{[]string{"event_type"}, "the action's type and the result, as far as the mandate's `events_required` lists the type; one decision may give several lines. Without a list `material_action_evaluated`. Allowed means permitted, not done. Of types that no decision is evidence of, a line with the result `recorded` for each event that the runtime published"},
		{[]string{"sequence", "hashes"}, "chained for each mandate from the beginning of the export; `event_hash` is over the event without it"},
		{[]string{"actor"}, "the agent, else the runtime"},
		{[]string{"privacy.retention"}, "the mandate's class; `contains_private_fields` is always false"},
		{[]string{"action.hash", "transcript_hash"}, "left out"},
	},
	AIOCRun:        aiocFields,
	AIOCGovernance: aiocFields,
	AgentHookEvidence: {
		{[]string{"metadata.admission_verdict", "metadata.approval"}, "the decision; `claim_reference` is its id, `defer` is `ask`"},
		{[]string{"metadata.redaction"}, "what redaction took out"},
		{[]string{"evidence_phase"}, "as it was sent, like all the rest of the redacted event that asked"},
	},
	OCSF: {
		{[]string{"class_uid"}, "6003 (API Activity) for decisions, with the profile `security_control`, calls and approvals; 2004 (Detection Finding) for findings, created or, if retracted, closed"},
		{[]string{"activity_id"}, "the action: create 1, read 2, write and update 3, delete 4, everything else 99 with `activity_name`"},
		{[]string{"actor"}, "the agent (`app_uid`), else the publisher (`app_name`); of an approval the reviewer (`user.name`); the session"},
		{[]string{"api.operation", "api.request.uid", "api.service.name"}, "tool, tool call id, protocol"},
		{[]string{"src_endpoint.name"}, "the authenticated publisher"},
		{[]string{"action_id", "disposition_id", "status_id"}, "allow 1, 1, 1; ask 0, 23 (challenge), 99; defer 0, 99 (`Deferred`), 99; deny 2, 2 (blocked), 2"},
		{[]string{"time", "metadata.original_time"}, "when the log stored the record"},
		{[]string{"metadata.uid"}, "the decision, the call and its state, the finding"},
		{[]string{"unmapped"}, "the record of evidence, and what OCSF has no place for"},
	},
	CEF: {
		{[]string{"rt", "start", "end"}, "the log's time; of a call its first and last step"},
		{[]string{"act", "outcome", "reason"}, "verdict; success, pending or failure, of a call its own word; codes"},
		{[]string{"externalId", "app", "sproc", "suser", "shost"}, "identifier, protocol, tool, agent or reviewer, publisher"},
		{[]string{"cat", "msg"}, "severity and explanation of a finding"},
		{[]string{"cs1", "cs2", "cs3", "cs4", "cs5"}, "tenant, session, record of evidence, tool call, policy or retracted finding; the labels say which"},
	},
}

var aanaFields = []Field{
	{[]string{"route", "recommended_action", "aix_decision"}, "the native verdict"},
	{[]string{"gate_decision", "aix_score", "aix"}, "its row in the contract's table"},
	{[]string{"hard_blockers", "violation_codes"}, "the blocking reason codes of the contract's evaluator, else of the stricter tool policy. Empty for accept"},
	{[]string{"candidate_gate"}, "pass if nothing blocks"},
	{[]string{"missing_evidence", "evidence_refs", "evidence_freshness_failures", "public_audit_log_allowed", "public_claim_allowed"}, "blockers and codes; without the request nothing is public"},
	{[]string{"tool_category", "authorization_state", "risk_domain", "evidence_source_ids", "proposed_argument_keys"}, "the redacted request; null or empty without it"},
	{[]string{"latency_ms"}, "received to decided"},
	{[]string{"input_fingerprints"}, "the keyed digest of the arguments as `hmac_sha256`"},
	{[]string{"human_review_route"}, "for ask and defer; the reason is the first blocker"},
	{[]string{"countersign"}, "ours: the decision and its record"},
	{[]string{"authorization_report"}, "always null"},
}

var aiocFields = []Field{
	{[]string{"turn"}, "the redacted request, and so is the target of a handoff; a proposal without a turn has no line"},
	{[]string{"reason", "publicReason", "resultMode", "policyVersion", "expiresAt"}, "the decision's trace event, if it agrees; else the first reason code and the digest of the policies"},
	{[]string{"runId"}, "the session; a proposal without one has no line"},
	{[]string{"id"}, "of a governance event, as RFC-0009 computes it; for approvals with `unknown` in place of the proposal's hash"},
	{[]string{"status", "completedAt"}, "the event that ended the session, else the last records (`metadata.derived`)"},
	{[]string{"items"}, "proposals and their outcomes, without arguments and data"},
	{[]string{"trace", "providerName", "model", "question", "response", "contextSnapshot"}, "absent, null or empty, like prompts and fingerprints; listed in `metadata.absent`"},
}

// Grade is the severity of a kind of record in the formats for a SIEM.
type Grade struct {
	Record    string // what it is, and its verdict, state or severity
	OCSF, CEF int
}

// Grades lists the severities of all kinds of records.
func Grades() []Grade {
	var list []Grade
	add := func(kind, value string, g severityGrade) {
		list = append(list, Grade{kind + " " + value, g.ocsf, g.cef})
	}
	for _, v := range []events.Verdict{events.Allow, events.Ask, events.Defer, events.Deny} {
		add("decision", string(v), verdictGrades[v])
	}
	for _, s := range []events.CallState{events.CallOpen, events.CallCompleted, events.CallDenied, events.CallFailed, events.CallAbandoned, events.CallOrphaned} {
		add("call", string(s), stateGrades[s])
	}
	for _, s := range []events.Severity{events.SeverityInfo, events.SeverityLow, events.SeverityMedium, events.SeverityHigh, events.SeverityCritical} {
		add("finding", string(s), findingGrades[s])
	}
	return append(list, Grade{"approval", approvalGrade.ocsf, approvalGrade.cef})
}
