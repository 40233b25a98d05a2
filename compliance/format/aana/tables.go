package aana

const schemaFailed = "schema_validation_failed"

func stringSet(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// The contract's vocabularies (aana.md 1.1).
var (
	states     = stringSet("none", "user_claimed", "authenticated", "validated", "confirmed")
	categories = stringSet("public_read", "private_read", "write", "unknown")
	domains    = stringSet("devops", "finance", "education", "hr", "legal", "pharma", "healthcare", "commerce", "customer_support", "security", "research",
		"personal_productivity", "public_information", "unknown")
)

// blockerCodes are the codes of the contract's evaluator that are hard blockers. Evidence keeps them
// in one list with its reasons.
var blockerCodes = stringSet(schemaFailed, "contract_normalization_failed", "authorization_state_not_supported_by_evidence",
	"public_read_identity_bound_misclassified", "private_read_not_authenticated", "write_missing_authorization",
	"write_missing_validation_or_confirmation", "write_missing_explicit_confirmation", "high_risk_write_missing_explicit_confirmation",
	"unknown_tool_category", "evidence_missing_authorization", "missing_evidence_refs", "contradictory_evidence",
	"evidence_marks_missing_information", "runtime_refusal", "too_many_evidence_refs", "proposed_arguments_secret_leak",
	"proposed_arguments_unparsed", "evidence_secret_leak", "evidence_pii_leak", "unsafe_redaction_status", "stale_evidence",
	"invalid_retrieved_at")

// reasonCodes are its codes that block nothing by themselves. A code in neither table means that the
// event was not valid.
var reasonCodes = stringSet("authorization_state_downgraded_to_evidence_supported_state", "public_read_reclassified_identity_bound_private_read",
	"evidence_declares_missing_authorization", "missing_evidence_refs_for_consequential_tool", "evidence_contradicts_action_or_claim",
	"runtime_recommended_stricter_route", "authorization_state_lifted_from_auth_evidence_for_schema",
	"authorization_state_lifted_from_write_evidence_for_schema", "recommended_accept_not_permitted_by_contract",
	"accept_with_hard_blockers_raised_to_ask", "public_read_allowed_without_identity_auth", "private_read_has_authenticated_context",
	"private_read_needs_verified_authentication", "private_read_missing_authorization_context",
	"high_risk_write_requires_explicit_confirmation", "write_has_explicit_confirmation", "write_validated_but_needs_explicit_confirmation",
	"write_needs_validation_and_confirmation", "write_missing_authorization_context", "unknown_tool_category_requires_review",
	"weak_trust_tier", "unknown_redaction_status", "unknown_freshness", "missing_freshness_timestamp", "missing_provenance",
	"tool_call_id_missing", "weak_scope")

// unpublishableCodes are the codes that keep a decision out of public logs and claims (aana.md 4).
var unpublishableCodes = stringSet("evidence_secret_leak", "evidence_pii_leak", "unsafe_redaction_status", "unknown_redaction_status", "missing_freshness",
	"unknown_freshness", "stale_evidence", "invalid_freshness", "missing_provenance")

// freshnessCodes are the codes about the age of evidence.
var freshnessCodes = stringSet("stale_evidence", "invalid_retrieved_at", "unknown_freshness", "missing_freshness_timestamp")

// sensitiveKeys are parts of argument names that are hidden.
var sensitiveKeys = []string{"api_key", "apikey", "auth_token", "bearer_token", "client_secret", "password", "private_account_id", "raw_token",
	"secret", "session_token", "token"}
