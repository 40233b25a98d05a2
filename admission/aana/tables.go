package aana

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// Hard blockers of the contract.
const (
	CodeSchemaFailed        = "schema_validation_failed"                      // the event does not follow the schema of the contract
	CodeNormalizationFailed = "contract_normalization_failed"                 // the event could not be normalized (profile reference-sdk only)
	CodeUnsupported         = "authorization_state_not_supported_by_evidence" // the evidence does not support the authorization state that the event claims
	CodeMisclassified       = "public_read_identity_bound_misclassified"      // a read that is bound to an identity is declared as a public read
	CodeNotAuthenticated    = "private_read_not_authenticated"                // a private read without an authenticated user
	CodeNoAuthorization     = "write_missing_authorization"                   // a write without authorization
	CodeNoValidation        = "write_missing_validation_or_confirmation"      // a write that is neither validated nor confirmed
	CodeNoConfirmation      = "write_missing_explicit_confirmation"           // a write without explicit confirmation
	CodeHighRisk            = "high_risk_write_missing_explicit_confirmation" // a high-risk write without explicit confirmation
	CodeUnknownCategory     = "unknown_tool_category"                         // the category of the tool is unknown
	CodeMissingAuth         = "evidence_missing_authorization"                // the evidence says that authorization is missing
	CodeNoRefs              = "missing_evidence_refs"
	CodeContradictory       = "contradictory_evidence"             // the evidence contradicts the action
	CodeMissingInformation  = "evidence_marks_missing_information" // the evidence says that information is missing
	CodeRuntimeRefusal      = "runtime_refusal"                    // the runtime itself recommends to refuse
)

// CodeTooManyRefs is why an event with more than MaxEvidenceRefs references is
// malformed.
const CodeTooManyRefs = "too_many_evidence_refs" // the event has more references to evidence than it may have

// Countersign's own hard blockers, in the hardened profile.
const (
	CodeArgumentSecret = "proposed_arguments_secret_leak" // a proposed argument holds a secret
	CodeRawArguments   = "proposed_arguments_unparsed"    // the proposed arguments are text that could not be parsed
)

// Reasons of the contract that are no hard blockers.
const (
	reasonSchemaFailed  = "event_failed_schema_validation"                             // the event does not follow the schema of the contract
	reasonFailClosed    = "fail_closed_runtime_safety"                                 // the evaluation could not be completed, and fails closed
	reasonDowngraded    = "authorization_state_downgraded_to_evidence_supported_state" // the authorization state was lowered to what the evidence supports
	reasonReclassified  = "public_read_reclassified_identity_bound_private_read"       // the public read is judged as a private read, because it is bound to an identity
	reasonMissingAuth   = "evidence_declares_missing_authorization"                    // the evidence declares that authorization is missing
	reasonNoRefs        = "missing_evidence_refs_for_consequential_tool"               // a consequential tool without evidence references
	reasonContradicts   = "evidence_contradicts_action_or_claim"                       // the evidence contradicts the action or a claim
	reasonMissing       = "evidence_marks_missing_information"                         // the evidence says that information is missing
	reasonStricterRoute = "runtime_recommended_stricter_route"                         // the runtime recommends a stricter route, and that one counts
	reasonLiftedRead    = "authorization_state_lifted_from_auth_evidence_for_schema"   // the authorization state was raised, for the schema only, to what the evidence of authentication says
	reasonLiftedWrite   = "authorization_state_lifted_from_write_evidence_for_schema"  // the authorization state was raised, for the schema only, to what the evidence of the write says

	// Of our own.
	reasonCoerced   = "recommended_accept_not_permitted_by_contract" // the runtime recommends accept, and the contract does not permit it
	reasonGateFails = "accept_with_hard_blockers_raised_to_ask"      // accept with hard blockers became ask
)

// Reasons of the contract that step 3 gives.
const (
	reasonPublicRead       = "public_read_allowed_without_identity_auth"       // accept: a public read needs no authorization
	reasonReadNone         = "private_read_missing_authorization_context"      // defer: a private read without any authorization
	reasonReadClaimed      = "private_read_needs_verified_authentication"      // ask: a private read of a user that only claims to be authenticated
	reasonReadAllowed      = "private_read_has_authenticated_context"          // accept: a private read of an authenticated user
	reasonWriteNone        = "write_missing_authorization_context"             // defer: a write without any authorization
	reasonWriteUnvalidated = "write_needs_validation_and_confirmation"         // ask: a write that is neither validated nor confirmed
	reasonWriteUnconfirmed = "write_validated_but_needs_explicit_confirmation" // ask: a write that is validated and not confirmed
	reasonWriteConfirmed   = "write_has_explicit_confirmation"                 // accept: a write that is confirmed
	reasonUnknownTool      = "unknown_tool_category_requires_review"           // defer: the category of the tool is unknown
	reasonHighRisk         = "high_risk_write_requires_explicit_confirmation"  // ask or defer: a high-risk write that is not confirmed
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
	wire.PublicRead: sameForAllStates(matrixCell{wire.Accept, reasonPublicRead, nil}),
	wire.PrivateRead: {
		wire.None:          {wire.Defer, reasonReadNone, []string{CodeNotAuthenticated}},
		wire.UserClaimed:   {wire.Ask, reasonReadClaimed, []string{CodeNotAuthenticated}},
		wire.Authenticated: {wire.Accept, reasonReadAllowed, nil},
		wire.Validated:     {wire.Accept, reasonReadAllowed, nil},
		wire.Confirmed:     {wire.Accept, reasonReadAllowed, nil},
	},
	wire.Write: {
		wire.None:          {wire.Defer, reasonWriteNone, []string{CodeNoAuthorization}},
		wire.UserClaimed:   {wire.Ask, reasonWriteUnvalidated, []string{CodeNoValidation}},
		wire.Authenticated: {wire.Ask, reasonWriteUnvalidated, []string{CodeNoValidation}},
		wire.Validated:     {wire.Ask, reasonWriteUnconfirmed, []string{CodeNoConfirmation}},
		wire.Confirmed:     {wire.Accept, reasonWriteConfirmed, nil},
	},
	wire.Unknown: sameForAllStates(matrixCell{wire.Defer, reasonUnknownTool, []string{CodeUnknownCategory}}),
}

// highRiskRow replaces the row of write for high-risk writes.
var highRiskRow = stateRow{
	wire.None:          {wire.Defer, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation}},
	wire.UserClaimed:   {wire.Ask, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation, CodeNoValidation}},
	wire.Authenticated: {wire.Ask, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation, CodeNoValidation}},
	wire.Validated:     {wire.Ask, reasonHighRisk, []string{CodeHighRisk, CodeNoConfirmation}},
	wire.Confirmed:     {wire.Accept, reasonWriteConfirmed, nil},
}

// evidenceCodes are the codes of the contract's reasons to ask that better evidence of the same
// call removes. A route that the runtime recommends is a claim, not evidence.
var evidenceCodes = wordSet(CodeNotAuthenticated, CodeNoValidation, CodeNoConfirmation, CodeHighRisk, reasonCoerced, reasonGateFails)

func sameForAllStates(c matrixCell) stateRow {
	r := stateRow{}
	for _, s := range wire.States() {
		r[s] = c
	}
	return r
}

// lookupCell returns the cell of step 3. An unlisted combination is refused.
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

// joinedIdentityKeys are identityKeys without separators: userid and user-id are user_id, too.
var joinedIdentityKeys = withoutSeparators(identityKeys)

// identityHints are words of a tool's name that bind a read to an identity.
var identityHints = []string{"account", "booking", "cart", "client", "customer", "invoice", "order", "profile", "reservation", "subscription",
	"ticket", "transaction", "user"}

// searchWords in a tool's name mean that it does not read one identity's data.
var searchWords = wordSet("search", "list")

// riskyVerbs in a tool's name, and riskyDomains, make a write a high-risk one.
var (
	riskyVerbs   = []string{"delete", "deploy", "grant", "pay", "purchase", "reset", "revoke", "send", "transfer"}
	riskyDomains = wordSet("finance", "devops", "security", "legal", "pharma", "healthcare")
)

// needsEvidence are the categories that need evidence; warnsWeakEvidence those that warn about
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

// errorRoutes is step 4: the least strict route with an error in the evidence. The contract has
// more errors; the schema has refused those events.
var errorRoutes = map[string]wire.Route{
	codeSecretLeak: wire.Refuse, codePIILeak: wire.Refuse, codeUnsafeRedaction: wire.Refuse,
	codeStale: wire.Defer, codeInvalidTime: wire.Defer, CodeNoRefs: wire.Defer,
}

// Codes of evidence_integrity; issueTexts says what they mean.
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

// blockerCodes are the codes that are hard blockers. A record has them in one list with its reasons.
var blockerCodes = wordSet(CodeSchemaFailed, CodeNormalizationFailed, CodeUnsupported, CodeMisclassified, CodeNotAuthenticated, CodeNoAuthorization,
	CodeNoValidation, CodeNoConfirmation, CodeHighRisk, CodeUnknownCategory, CodeMissingAuth, CodeNoRefs, CodeContradictory, CodeMissingInformation,
	CodeRuntimeRefusal, CodeTooManyRefs, CodeArgumentSecret, CodeRawArguments, codeSecretLeak, codePIILeak, codeUnsafeRedaction, codeStale,
	codeInvalidTime)

// reasonCodes are the codes in the record of a valid event that block nothing by themselves.
var reasonCodes = wordSet(reasonDowngraded, reasonReclassified, reasonMissingAuth, reasonNoRefs, reasonContradicts, reasonStricterRoute,
	reasonLiftedRead, reasonLiftedWrite, reasonCoerced, reasonGateFails, reasonPublicRead, reasonReadNone, reasonReadClaimed, reasonReadAllowed,
	reasonWriteNone, reasonWriteUnvalidated, reasonWriteUnconfirmed, reasonWriteConfirmed, reasonUnknownTool, reasonHighRisk, codeWeakTrust,
	codeUnknownRedaction, codeUnknownFreshness, codeNoTimestamp, codeNoProvenance, call.CodeNoToolCallID, call.CodeWeakScope)

// IsBlocker reports whether a recorded code of this evaluator is a hard blocker.
func IsBlocker(code string) bool { return blockerCodes[code] }

// IsReason reports whether a recorded code of this evaluator blocks nothing by itself. A code
// that is neither blocker nor reason means that the event was not valid.
func IsReason(code string) bool { return reasonCodes[code] }

// ConcernsFreshness reports whether a code is about the age of evidence.
func ConcernsFreshness(code string) bool { return freshnessCodes[code] }

var freshnessCodes = wordSet(codeStale, codeInvalidTime, codeUnknownFreshness, codeNoTimestamp)

// ArePublishable reports whether none of the codes excludes a decision from public logs and
// claims.
func ArePublishable(codes []string) bool {
	return !slices.ContainsFunc(codes, func(c string) bool { return unpublishableCodes[c] || !blockerCodes[c] && !reasonCodes[c] })
}

// unpublishableCodes are the known codes that exclude a decision from public logs and claims.
var unpublishableCodes = wordSet(codeSecretLeak, codePIILeak, codeUnsafeRedaction, codeUnknownRedaction, codeUnknownFreshness,
	codeStale, codeNoProvenance)

// routeScores are aix by final route: the score and the components P and C; F is 1 for accept
// and 0.75 for every other route.
var routeScores = map[wire.Route]float64{wire.Accept: 0.95, wire.Ask: 0.72, wire.Defer: 0.45, wire.Refuse: 0.15}

// Step is one entry of the route table of an envelope.
type Step struct {
	Description      string `json:"description"`
	ExecutionAllowed bool   `json:"execution_allowed"`
	NextStep         string `json:"next_step"`
}

// routeTable is the envelope's route table; revise and retrieve are never routes of a tool
// call.
var routeTable = map[string]Step{
	"accept":   {"Execute what was checked, and nothing else.", true, "execute_checked_action"},
	"revise":   {"Change the proposal and have it checked again.", false, "revise_then_recheck"},
	"retrieve": {"Fetch the evidence that is missing and check again.", false, "retrieve_evidence_then_recheck"},
	"ask":      {"Ask the user or the runtime for what is missing and check again.", false, "ask_then_recheck"},
	"defer":    {"Leave it to better evidence, the domain's owner or a reviewer.", false, "defer_to_review"},
	"refuse":   {"Do not execute: something makes it unsafe.", false, "refuse_action"},
}

// recoveryTexts state the next step, by final route.
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

// withoutSeparators returns a set of the words of another without their underscores.
func withoutSeparators(words map[string]bool) map[string]bool {
	m := make(map[string]bool, len(words))
	for w := range words {
		m[strings.ReplaceAll(w, "_", "")] = true
	}
	return m
}
