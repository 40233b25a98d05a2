package aana

import (
	"maps"
	"slices"

	wire "github.com/countersign-dev/countersign/events/aana"
)

// Hard blockers of the contract.
const (
	CodeSchemaFailed        = "schema_validation_failed"
	CodeNormalizationFailed = "contract_normalization_failed" // reference-sdk only
	CodeUnsupported         = "authorization_state_not_supported_by_evidence"
	CodeMisclassified       = "public_read_identity_bound_misclassified"
	CodeNotAuthenticated    = "private_read_not_authenticated"                // P
	CodeNoAuthorization     = "write_missing_authorization"                   // A
	CodeNoValidation        = "write_missing_validation_or_confirmation"      // V
	CodeNoConfirmation      = "write_missing_explicit_confirmation"           // X
	CodeHighRisk            = "high_risk_write_missing_explicit_confirmation" // H
	CodeUnknownCategory     = "unknown_tool_category"                         // U
	CodeMissingAuth         = "evidence_missing_authorization"
	CodeNoRefs              = "missing_evidence_refs"
	CodeContradictory       = "contradictory_evidence"
	CodeMissingInformation  = "evidence_marks_missing_information"
	CodeRuntimeRefusal      = "runtime_refusal"
)

// CodeTooManyRefs is why an event with more than MaxEvidenceRefs references is
// malformed.
const CodeTooManyRefs = "too_many_evidence_refs"

// Hard blockers of our own, of the hardened profile.
const (
	CodeArgumentSecret = "proposed_arguments_secret_leak"
	CodeRawArguments   = "proposed_arguments_unparsed"
)

// Reasons of the contract that are no hard blockers; the table of step 3 has the
// rest.
const (
	reasonSchemaFailed  = "event_failed_schema_validation"
	reasonFailClosed    = "fail_closed_runtime_safety"
	reasonDowngraded    = "authorization_state_downgraded_to_evidence_supported_state"
	reasonReclassified  = "public_read_reclassified_identity_bound_private_read"
	reasonMissingAuth   = "evidence_declares_missing_authorization"
	reasonNoRefs        = "missing_evidence_refs_for_consequential_tool"
	reasonContradicts   = "evidence_contradicts_action_or_claim"
	reasonMissing       = "evidence_marks_missing_information"
	reasonStricterRoute = "runtime_recommended_stricter_route"
	reasonLiftedRead    = "authorization_state_lifted_from_auth_evidence_for_schema"
	reasonLiftedWrite   = "authorization_state_lifted_from_write_evidence_for_schema"

	// Of our own.
	reasonCoerced   = "recommended_accept_not_permitted_by_contract" // step 0
	reasonGateFails = "accept_with_hard_blockers_raised_to_ask"      // step 5
)

// matrixCell is one decision of step 3.
type matrixCell struct {
	route    wire.Route
	reason   string
	blockers []string
}

type stateRow map[wire.State]matrixCell

// routeMatrix is step 3: category by effective authorization.
var routeMatrix = map[wire.Category]stateRow{
	wire.PublicRead: sameForAllStates(matrixCell{wire.Accept, "public_read_allowed_without_identity_auth", nil}),
	wire.PrivateRead: {
		wire.None:          {wire.Defer, "private_read_missing_authorization_context", []string{CodeNotAuthenticated}},
		wire.UserClaimed:   {wire.Ask, "private_read_needs_verified_authentication", []string{CodeNotAuthenticated}},
		wire.Authenticated: {wire.Accept, "private_read_has_authenticated_context", nil},
		wire.Validated:     {wire.Accept, "private_read_has_authenticated_context", nil},
		wire.Confirmed:     {wire.Accept, "private_read_has_authenticated_context", nil},
	},
	wire.Write: {
		wire.None:          {wire.Defer, "write_missing_authorization_context", []string{CodeNoAuthorization}},
		wire.UserClaimed:   {wire.Ask, "write_needs_validation_and_confirmation", []string{CodeNoValidation}},
		wire.Authenticated: {wire.Ask, "write_needs_validation_and_confirmation", []string{CodeNoValidation}},
		wire.Validated:     {wire.Ask, "write_validated_but_needs_explicit_confirmation", []string{CodeNoConfirmation}},
		wire.Confirmed:     {wire.Accept, "write_has_explicit_confirmation", nil},
	},
	wire.Unknown: sameForAllStates(matrixCell{wire.Defer, "unknown_tool_category_requires_review", []string{CodeUnknownCategory}}),
}

const reasonHighRisk = "high_risk_write_requires_explicit_confirmation"

// highRiskRow replaces the row of write for high-risk writes.
var highRiskRow = stateRow{
	wire.None:          {wire.Defer, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation}},
	wire.UserClaimed:   {wire.Ask, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation, CodeNoValidation}},
	wire.Authenticated: {wire.Ask, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation, CodeNoValidation}},
	wire.Validated:     {wire.Ask, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation}},
	wire.Confirmed:     {wire.Accept, "write_has_explicit_confirmation", nil},
}

func sameForAllStates(c matrixCell) stateRow {
	r := stateRow{}
	for _, s := range wire.States() {
		r[s] = c
	}
	return r
}

// lookupCell finds the cell. What is in no table is refused.
func lookupCell(c wire.Category, highRisk bool, s wire.State) matrixCell {
	r := routeMatrix[c]
	if c == wire.Write && highRisk {
		r = highRiskRow
	}
	if found, ok := r[s]; ok {
		return found
	}
	return matrixCell{wire.Refuse, reasonSchemaFailed, []string{CodeSchemaFailed}}
}

// identityKeys are argument names that bind a read to an identity.
var identityKeys = wordSet("account_id", "account_key", "address", "card_id", "case_id", "client_id", "customer_id", "employee_id", "email",
	"invoice_id", "loan_id", "order_id", "patient_id", "payment_id", "payroll_id", "phone", "profile_id", "student_id", "subscription_id",
	"ticket_id", "transaction_id", "user_id")

// identityHints are words in a tool's name that do so too.
var identityHints = []string{"account", "booking", "cart", "client", "customer", "invoice", "order", "profile", "reservation", "subscription",
	"ticket", "transaction", "user"}

// searchWords in a tool's name say that it is no read of one identity's data.
var searchWords = wordSet("search", "list")

// riskyVerbs in a tool's name, and riskyDomains, make a write a high-risk one.
var (
	riskyVerbs   = []string{"delete", "deploy", "grant", "pay", "purchase", "reset", "revoke", "send", "transfer"}
	riskyDomains = wordSet("finance", "devops", "security", "legal", "pharma", "healthcare")
)

// consequential are the categories that need evidence; sensitive ones warn about
// weak evidence.
var (
	needsEvidence     = map[wire.Category]bool{wire.PrivateRead: true, wire.Write: true, wire.Unknown: true}
	warnsWeakEvidence = map[wire.Category]bool{wire.PrivateRead: true, wire.Write: true}
)

// Phrases in a summary, in lower case.
var (
	contradictionPhrases = []string{"contradict", "conflict", "inconsistent", "does not match", "disputes", "opposes"}
	missingPhrases       = []string{"evidence missing", "missing evidence", "information is missing", "record is missing", "not available",
		"unavailable", "unknown", "insufficient", "no evidence"}
	missingAuthPhrases = []string{"missing authorization", "removes verified authorization"}
)

const missingAuthSource = "counterfactual.missing_authorization"

// errorRoutes is step 4: the least strict route that an error in the evidence
// leaves. The contract has more errors; the schema has refused those events.
var errorRoutes = map[string]wire.Route{
	codeSecretLeak: wire.Refuse, codePIILeak: wire.Refuse, codeUnsafeRedaction: wire.Refuse,
	codeStale: wire.Defer, codeInvalidTime: wire.Defer, CodeNoRefs: wire.Defer,
}

// Codes of evidence_integrity.
const (
	codeSecretLeak       = "evidence_secret_leak"
	codePIILeak          = "evidence_pii_leak"
	codeUnsafeRedaction  = "unsafe_redaction_status"
	codeStale            = "stale_evidence"
	codeInvalidTime      = "invalid_retrieved_at"
	codeWeakTrust        = "weak_trust_tier"
	codeUnknownRedaction = "unknown_redaction_status"
	codeUnknownFreshness = "unknown_freshness"
	codeNoTimestamp      = "missing_freshness_timestamp"
	codeNoProvenance     = "missing_provenance"
)

// unpublishableCodes are the codes that keep a decision out of public logs and
// claims.
var unpublishableCodes = wordSet(codeSecretLeak, codePIILeak, codeUnsafeRedaction, codeUnknownRedaction, "missing_freshness", codeUnknownFreshness,
	codeStale, "invalid_freshness", codeNoProvenance)

// routeScores are aix by final route: score and the components P and C; F is 1 for
// accept and 0.75 for everything else.
var routeScores = map[wire.Route]float64{wire.Accept: 0.95, wire.Ask: 0.72, wire.Defer: 0.45, wire.Refuse: 0.15}

// Step is one entry of the route table of an envelope.
type Step struct {
	Description      string `json:"description"`
	ExecutionAllowed bool   `json:"execution_allowed"`
	NextStep         string `json:"next_step"`
}

// routeTable is the envelope's route table; revise and retrieve are never routes
// of a tool call.
var routeTable = map[string]Step{
	"accept":   {"Execute what was checked, and nothing else.", true, "execute_checked_action"},
	"revise":   {"Change the proposal and have it checked again.", false, "revise_then_recheck"},
	"retrieve": {"Fetch the evidence that is missing and check again.", false, "retrieve_evidence_then_recheck"},
	"ask":      {"Ask the user or the runtime for what is missing and check again.", false, "ask_then_recheck"},
	"defer":    {"Leave it to better evidence, the domain's owner or a reviewer.", false, "defer_to_review"},
	"refuse":   {"Do not execute: something makes it unsafe.", false, "refuse_action"},
}

// recoveryTexts say what to do next, by final route.
var recoveryTexts = map[wire.Route]string{
	wire.Accept: "Execute exactly what was checked and record this decision.",
	wire.Ask:    "Obtain the missing authorization, confirmation or evidence from the user or the runtime, then ask again.",
	wire.Defer:  "Obtain stronger evidence or a decision of the domain's owner or a reviewer, then ask again.",
	wire.Refuse: "Do not execute this action; remove what the hard blockers name before proposing it again.",
}

func wordSet(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
