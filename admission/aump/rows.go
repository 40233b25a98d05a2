package aump

import (
	"fmt"
	"slices"

	wire "github.com/countersign-dev/countersign/events/aump"
)

// checkRow is one check.
type checkRow struct {
	decision string
	codes    []string
	paths    func(*rowInput) []string // the paths at which the check fails; none if it passes
}

// checkRows is the table of the specification, in its order, with the additional rows in their
// places. Rows 0 to 0c, and the end after an amount without a budget (6), are outside the
// table.
var checkRows = []checkRow{
	{wire.Denied, singleCode(CodeSignature), atPath("$.signatures", insufficientSignatures)},
	{wire.Denied, singleCode(CodeScope), atPath("$.agent.id", otherAgent)},
	{wire.Denied, singleCode(CodeInactive), atPath("$.status", isInactive)},
	{wire.Denied, singleCode(CodeInactive), atPath("$.issued_at", notYetIssued)},
	{wire.Denied, singleCode(CodeRevoked), atPath("$.status", func(s *rowInput) bool { return s.Revoked })},
	{wire.Denied, singleCode(CodeExpired), atPath("$.expires_at", func(s *rowInput) bool { return isExpired(s.Mandate, s.Now) })},
	{wire.Denied, singleCode(CodeScope), atPath("$.authority", func(s *rowInput) bool { return s.Mandate.IsUnbounded() })},
	{wire.Denied, singleCode(CodeScope), atPath("$.authority.mode", advisoryCommit)},
	{wire.Denied, singleCode(CodeScope), atPath("$.authority.permissions", notPermitted)},
	{wire.Denied, singleCode(CodeScope), atPath("$.authority.prohibited_actions", prohibitedAction)},
	{wire.Denied, singleCode(CodeScope), atPath("$.purpose.excluded_counterparties", excludedCounterparty)},
	{wire.Denied, singleCode(CodeScope), atPath("$.purpose.allowed_counterparties", notAllowedCounterparty)},
	{wire.Denied, singleCode(CodeScope), atPath("$.purpose.allowed_categories", otherCategory)},
	{wire.Denied, singleCode(CodeScope), atPath("$.authority.budget", noBudget)},
	{wire.Denied, []string{CodeHardConstraint, CodeCurrency}, atPath("$.authority.budget.currency", otherCurrency)},
	{wire.Denied, []string{CodeHardConstraint, CodePrice}, atPath("$.authority.budget.max_total_minor", aboveBudget)},
	{wire.Denied, singleCode(CodeLedgerFull), atPath("$.authority.budget", func(s *rowInput) bool { return s.Action.Amount != nil && s.Spend.Full })},
	{wire.Denied, singleCode(CodeLedgerUnknown), atPath("$.authority.budget", func(s *rowInput) bool { return s.Action.Amount != nil && s.Spend.Unknown })},
	{wire.Denied, singleCode(CodeHardConstraint), brokenConstraints},
	{wire.Denied, singleCode(CodeDisclosure), deniedDisclosures},
	{wire.Denied, singleCode(CodeFactor), atPath("$.compliance.prohibited_decision_factors", prohibitedFactor)},

	{wire.RequiresEscalation, singleCode(CodeEscalation), atPath("$.authority.prohibited_actions", unapprovedDeal)},
	{wire.RequiresEscalation, singleCode(CodeEscalation), atPath("$.purpose.excluded_counterparties", maybeExcludedCounterparty)},
	{wire.RequiresEscalation, singleCode(CodeEscalation), atPath("$.purpose.allowed_counterparties", maybeAllowedCounterparty)},
	{wire.RequiresEscalation, singleCode(CodeReview), atPath("$.compliance.review_required_actions", reviewRequired)},
	{wire.RequiresEscalation, singleCode(CodeEscalation), atPath("$.escalation.required_conditions", conditionMet)},
	{wire.RequiresEscalation, []string{CodeEscalation, CodeConfidence}, atPath("$.escalation.confidence_threshold", lowConfidence)},
	{wire.RequiresEscalation, singleCode(CodeEscalation), atPath("$.authority.mode", supervisedCommit)},
	{wire.RequiresEscalation, singleCode(CodeEscalation), atPath("$.authority.requires_trusted_ui_for_commitment", noTrustedUI)},

	{noteDecision, singleCode(CodeUnevaluated), wordedConstraints},
	{noteDecision, singleCode(CodeClaimsIgnored), atPath("$.context", claimsIgnored)},
	{noteDecision, singleCode(CodeCumulative), atPath("$.authority.budget.max_total_minor", exceedsRemaining)},
	{noteDecision, singleCode(CodeNotVerified), atPath("$.signatures", signaturesUnchecked)},
}

// references are the checks of the reference. A request with a wrong reference is told nothing
// about the mandate in force: no other row is checked.
var references = []checkRow{
	{wire.Denied, singleCode(CodeHashMismatch), atPath("$.mandate_ref.id", otherID)},
	{wire.Denied, singleCode(CodeHashMismatch), atPath("$.mandate_ref.hash", otherHash)},
}

func singleCode(code string) []string { return []string{code} }

// atPath makes a check of one path.
func atPath(path string, fires func(*rowInput) bool) func(*rowInput) []string {
	paths := []string{path}
	return func(s *rowInput) []string {
		if fires(s) {
			return paths
		}
		return nil
	}
}

func otherID(s *rowInput) bool { return s.Ref.ID != s.Mandate.ID }

func otherHash(s *rowInput) bool {
	named, ok := wire.NormaliseHash(s.Ref.Hash)
	return !s.rules.acceptsAnyHash && (!ok || named != s.Mandate.Hash)
}

// otherAgent reports whether the mandate is for another agent than the one that the request names. If
// it names none, there is nothing to compare, and the check passes. mayKnow compares the publisher's agents.
func otherAgent(s *rowInput) bool {
	return !s.rules.anyAgent && s.Agent != "" && s.Agent != s.Mandate.Agent.ID
}

// insufficientSignatures reports whether the signatures do not satisfy the policy.
func insufficientSignatures(s *rowInput) bool { return !s.Signatures.Accepts(s.Mandate.Signatures) }

func signaturesUnchecked(s *rowInput) bool { return s.Mandate.Signatures == "" }

func isInactive(s *rowInput) bool { return s.Mandate.Status != wire.StatusActive }

func notYetIssued(s *rowInput) bool {
	return !s.rules.ignoresIssuedAt && s.Now.Before(s.Mandate.IssuedAt)
}

func advisoryCommit(s *rowInput) bool {
	return !s.rules.advisoryMayCommit && s.commits && s.Mandate.Authority.Mode == wire.ModeAdvisory
}

func notPermitted(s *rowInput) bool {
	return !slices.Contains(s.Mandate.Authority.Permissions, s.Action.Type)
}

func prohibitedAction(s *rowInput) bool {
	return slices.Contains(s.Mandate.Authority.ProhibitedActions, s.Action.Type)
}

// unapprovedDeal: some mandates forbid a deal without approval by a special name instead of the
// action's.
func unapprovedDeal(s *rowInput) bool {
	return s.Action.Type == "accept_deal" && !isApproved(s) &&
		slices.Contains(s.Mandate.Authority.ProhibitedActions, "accept_deal_without_approval")
}

func reviewRequired(s *rowInput) bool {
	return slices.Contains(s.Mandate.Compliance.ReviewRequiredActions, s.Action.Type)
}

func conditionMet(s *rowInput) bool { return len(s.metConditions()) > 0 }

// metConditions are the mandate's conditions of escalation that the request states, in the mandate's order.
func (in Input) metConditions() []string {
	return slices.DeleteFunc(slices.Clone(in.Mandate.Escalation.RequiredConditions), func(c string) bool {
		return !slices.Contains(in.Context.Conditions, c)
	})
}

// lowConfidence passes without a stated confidence: the protocol leaves that open, and its
// published evaluators pass.
func lowConfidence(s *rowInput) bool {
	threshold, confidence := s.Mandate.Escalation.ConfidenceThreshold, s.Context.Confidence
	return threshold != nil && confidence != nil && *confidence < *threshold
}

func supervisedCommit(s *rowInput) bool {
	return s.commits && s.Mandate.Authority.Mode == wire.ModeSupervised
}

func noTrustedUI(s *rowInput) bool {
	required := s.Mandate.Authority.RequiresTrustedUI
	if required == nil && s.rules.trustedUIOptional || required != nil && !*required {
		return false
	}
	return s.commits && !s.Facts.TrustedUI && !(s.rules.trustsContext && s.Context.TrustedUIApproved)
}

func isApproved(s *rowInput) bool {
	return s.Facts.Approved || s.rules.trustsContext && isTruthy(s.Context.Approval)
}

func claimsIgnored(s *rowInput) bool {
	return !s.rules.trustsContext && (s.Context.TrustedUIApproved || isTruthy(s.Context.Approval))
}

// brokenConstraints returns the machine-readable hard constraints that are violated.
func brokenConstraints(s *rowInput) []string {
	return constraintPaths(s, func(c wire.Rule) bool { return c.Op != "" && !constraintHolds(c, s.Action) })
}

// wordedConstraints returns the hard constraints that are not machine readable.
func wordedConstraints(s *rowInput) []string {
	return constraintPaths(s, func(c wire.Rule) bool { return c.Op == "" })
}

func constraintPaths(s *rowInput, which func(wire.Rule) bool) []string {
	var paths []string
	for i, c := range s.Mandate.Preferences.HardConstraints {
		if which(c) {
			paths = append(paths, fmt.Sprintf("$.preferences.hard_constraints[%d]", i))
		}
	}
	return paths
}
