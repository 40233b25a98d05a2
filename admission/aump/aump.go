// Package aump is the Agentic User Mandate Protocol 0.1 as an admission protocol: it evaluates
// a proposed action by the mandate that it names. The specification defines the evaluator; tool
// policies can only tighten its result. Begin reading with Evaluate.
//
// The mandate in force as the service knows it decides, never the request's statements about
// it. A request only names its mandate, by id and hash. Of its context, values that make a
// decision stricter count (conditions, low confidence); values that would loosen it
// (trusted_ui_approved, approval) are claims and count only if Countersign's own records
// confirm them.
//
// Every row of the table in rows.go is checked; a denial outranks an escalation. Each list of
// the answer is without duplicates and in the order of the findings, so its i-th code and its
// i-th path need not belong together.
//
// The profile reference-sdk decides as the protocol's published evaluators do. The hardened
// profile, the default, closes their gaps:
//
//   - the reference must carry the hash of the mandate in force. With another hash the mandate
//     does not exist; a publisher that is registered for its agent is told that the hash is
//     another, and nothing else;
//   - for a publisher that is registered for other agents alone, the mandate does not exist;
//   - the mandate must be for the requesting agent: for one that the publisher is
//     registered for, and for the one that the request names, where either is known;
//   - a mandate is not valid before it was issued, nor once revoked;
//   - an advisory mandate commits to nothing;
//   - requires_trusted_ui_for_commitment holds unless it is false;
//   - counterparties and categories are compared with the purpose. A list names parties or
//     classes of parties; only a person can decide whether a party belongs to a class, so a
//     party that is named after a class (local_buyer_001 of local_buyers) is escalated,
//     where exact comparison would deny it;
//   - disclosing a part of a protected field, or something that contains it, counts as
//     disclosing it; so does quoting a private note under another name;
//   - money that earlier actions spent counts against the budget.
//
// A decision is a pure function of the spend ledger's content; the ledger's document is
// mandate.Account. The service stores it, and so determines what two concurrent requests see.
package aump

import (
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// Name of the protocol and of its evaluator.
const Name = "aump"

// Reason codes of AUMP.
const (
	CodeSchemaInvalid   = call.CodeSchemaInvalid
	CodeNotFound        = "mandate_not_found"                // there is no such mandate, or none that the publisher may know of
	CodeHashMismatch    = "mandate_hash_mismatch"            // the mandate has another hash than the request names; for a publisher that is registered for its agent
	CodeRevoked         = "mandate_revoked"                  // the mandate was revoked
	CodeSignature       = "signature_invalid"                // a signature of the mandate does not verify
	CodeInactive        = "mandate_inactive"                 // the mandate is not active
	CodeExpired         = "mandate_expired"                  // the mandate has expired
	CodeScope           = "scope_violation"                  // the action, the agent or the counterparty lies outside the mandate
	CodeHardConstraint  = "hard_constraint_violation"        // the action breaks a hard constraint of the mandate
	CodePrice           = "price_above_budget"               // the price is above what is left of the mandate's budget
	CodeCurrency        = "currency_mismatch"                // the price is in another currency than the mandate's budget
	CodeDisclosure      = "disclosure_denied"                // the mandate does not allow to disclose this
	CodeFactor          = "prohibited_decision_factor"       // the decision rests on a factor that the mandate prohibits
	CodeReview          = "compliance_review_required"       // the mandate wants a compliance review
	CodeEscalation      = "escalation_required"              // the mandate wants the principal to decide
	CodeConfidence      = "confidence_below_threshold"       // the agent's confidence is below the mandate's threshold
	CodeLedgerFull      = "ledger_full"                      // too many outcomes of actions under the mandate are awaited
	CodeLedgerUnknown   = "ledger_unreadable"                // what was spent under the mandate cannot be read
	CodeEvidenceMandate = "evidence_mandate_mismatch"        // an evidence event names another mandate
	CodeEvidenceHash    = "evidence_mandate_hash_mismatch"   // an evidence event names another hash of the mandate
	CodeEvidenceType    = "evidence_event_type_not_required" // an evidence event has a type that the mandate does not require
	CodeEvidenceRetain  = "evidence_retention_mismatch"      // an evidence event names another retention than the mandate
	CodeEvidencePrivate = "evidence_private_field_leak"      // an evidence event holds a private field
	CodeEvidenceChain   = "evidence_event_hash_mismatch"     // the hash of an evidence event is not that of its contents
)

// Reason codes that occur in decision records only; they change no verdict.
const (
	CodeWithinMandate = "within_mandate"            // the action lies within the mandate
	CodeUnevaluated   = "unevaluated_constraints"   // the mandate has a hard constraint in words, which no program evaluates
	CodeClaimsIgnored = "context_claims_ignored"    // the request approves of itself, which counts for nothing
	CodeCumulative    = "cumulative_spend"          // the price is too high because of what was spent before
	CodeNotVerified   = "signature_not_verified"    // the mandate has signatures, and no keys are there to check them
	CodeReasonsCut    = "further_reasons_not_given" // there are more reasons than the record lists
)

// ActionCommit is the action of a proposal that commits the principal, for policies.
const ActionCommit = "commit"

// Evaluator implements call.Protocol.
type Evaluator struct{}

// HasNativeEvaluator implements call.Protocol: the mandate decides.
func (Evaluator) HasNativeEvaluator() bool { return true }

// NativeVerdict implements call.Protocol. AUMP has no defer; any unknown verdict is denied.
func (Evaluator) NativeVerdict(v events.Verdict) string {
	switch v {
	case events.Allow:
		return wire.Allowed
	case events.Ask, events.Defer:
		return wire.RequiresEscalation
	}
	return wire.Denied
}

// decisionVerdicts maps AUMP's decisions to verdicts; a note allows.
var decisionVerdicts = map[string]events.Verdict{
	wire.Denied: events.Deny, wire.RequiresEscalation: events.Ask, wire.Allowed: events.Allow, noteDecision: events.Allow,
}
