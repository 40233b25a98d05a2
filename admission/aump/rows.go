package aump

import (
	"fmt"
	"slices"

	wire "github.com/countersign-dev/countersign/events/aump"
)

// row is one check.
type row struct {
	decision string
	codes    []string
	where    func(*subject) []string // the paths at which it fires; none if it does not
}

// rows is the table of the specification, in its order, with the rows that go
// beyond it where they belong. Rows 0 to 0c, and the end after an amount without
// a budget (6), are not table work.
var rows = []row{
	{wire.Denied, one(CodeSignature), at("$.signatures", unsigned)},
	{wire.Denied, one(CodeScope), at("$.agent.id", otherAgent)},
	{wire.Denied, one(CodeInactive), at("$.status", inactive)},
	{wire.Denied, one(CodeInactive), at("$.issued_at", early)},
	{wire.Denied, one(CodeRevoked), at("$.status", func(s *subject) bool { return s.Revoked })},
	{wire.Denied, one(CodeExpired), at("$.expires_at", func(s *subject) bool { return expired(s.Mandate, s.Now) })},
	{wire.Denied, one(CodeScope), at("$.authority", func(s *subject) bool { return unbounded(s.Mandate) })},
	{wire.Denied, one(CodeScope), at("$.authority.mode", advising)},
	{wire.Denied, one(CodeScope), at("$.authority.permissions", notPermitted)},
	{wire.Denied, one(CodeScope), at("$.authority.prohibited_actions", prohibited)},
	{wire.Denied, one(CodeScope), at("$.purpose.excluded_counterparties", excluded)},
	{wire.Denied, one(CodeScope), at("$.purpose.allowed_counterparties", notAmong)},
	{wire.Denied, one(CodeScope), at("$.purpose.allowed_categories", otherCategory)},
	{wire.Denied, one(CodeScope), at("$.authority.budget", noBudget)},
	{wire.Denied, []string{CodeHardConstraint, CodeCurrency}, at("$.authority.budget.currency", otherCurrency)},
	{wire.Denied, []string{CodeHardConstraint, CodePrice}, at("$.authority.budget.max_total_minor", aboveBudget)},
	{wire.Denied, one(CodeLedgerFull), at("$.authority.budget", func(s *subject) bool { return s.Action.Amount != nil && s.Spend.Full })},
	{wire.Denied, one(CodeLedgerUnknown), at("$.authority.budget", func(s *subject) bool { return s.Action.Amount != nil && s.Spend.Unknown })},
	{wire.Denied, one(CodeHardConstraint), brokenConstraints},
	{wire.Denied, one(CodeDisclosure), disclosures},
	{wire.Denied, one(CodeFactor), at("$.compliance.prohibited_decision_factors", prohibitedFactor)},

	{wire.RequiresEscalation, one(CodeEscalation), at("$.authority.prohibited_actions", unapprovedDeal)},
	{wire.RequiresEscalation, one(CodeEscalation), at("$.purpose.excluded_counterparties", perhapsExcluded)},
	{wire.RequiresEscalation, one(CodeEscalation), at("$.purpose.allowed_counterparties", perhapsAmong)},
	{wire.RequiresEscalation, one(CodeReview), at("$.compliance.review_required_actions", reviewRequired)},
	{wire.RequiresEscalation, one(CodeEscalation), at("$.escalation.required_conditions", conditionMet)},
	{wire.RequiresEscalation, []string{CodeEscalation, CodeConfidence}, at("$.escalation.confidence_threshold", unsure)},
	{wire.RequiresEscalation, one(CodeEscalation), at("$.authority.mode", supervised)},
	{wire.RequiresEscalation, one(CodeEscalation), at("$.authority.requires_trusted_ui_for_commitment", noTrustedUI)},

	{note, one(CodeUnevaluated), inWords},
	{note, one(CodeClaimsIgnored), at("$.context", claimsIgnored)},
	{note, one(CodeCumulative), at("$.authority.budget.max_total_minor", cumulative)},
	{note, one(CodeNotVerified), at("$.signatures", notLookedAt)},
}

// references are the checks of the reference. A request that does not know which mandate
// it names is told nothing about the one in force: no row is looked at.
var references = []row{
	{wire.Denied, one(CodeHashMismatch), at("$.mandate_ref.id", otherID)},
	{wire.Denied, one(CodeHashMismatch), at("$.mandate_ref.hash", otherHash)},
}

func one(code string) []string { return []string{code} }

// at is a check of one place.
func at(path string, fires func(*subject) bool) func(*subject) []string {
	paths := []string{path}
	return func(s *subject) []string {
		if fires(s) {
			return paths
		}
		return nil
	}
}

func otherID(s *subject) bool { return s.Ref.ID != s.Mandate.ID }

func otherHash(s *subject) bool {
	named, ok := wire.NormaliseHash(s.Ref.Hash)
	return !s.rules.anyReference && (!ok || named != s.Mandate.Hash)
}

// otherAgent reports whether the mandate is for another agent than the one that asks:
// none of those that the publisher is registered for, or not the one that the request
// names. A request that names none, of a publisher that is registered for none, is let
// through: there is nothing to compare with.
func otherAgent(s *subject) bool {
	id := s.Mandate.Agent.ID
	unregistered := len(s.Agents) > 0 && !slices.Contains(s.Agents, id)
	return !s.rules.anyAgent && (unregistered || s.Agent != "" && s.Agent != id)
}

// unsigned reports whether the signatures fall short of the policy.
func unsigned(s *subject) bool { return !s.Signatures.Accepts(s.Mandate.Signatures) }

func notLookedAt(s *subject) bool { return s.Mandate.Signatures == "" }

func inactive(s *subject) bool { return s.Mandate.Status != wire.StatusActive }

func early(s *subject) bool { return !s.rules.anyStart && s.Now.Before(s.Mandate.IssuedAt) }

func advising(s *subject) bool {
	return !s.rules.advisoryMay && s.commits && s.Mandate.Authority.Mode == wire.ModeAdvisory
}

func notPermitted(s *subject) bool {
	return !slices.Contains(s.Mandate.Authority.Permissions, s.Action.Type)
}

func prohibited(s *subject) bool {
	return slices.Contains(s.Mandate.Authority.ProhibitedActions, s.Action.Type)
}

// unapprovedDeal: some mandates forbid a deal without approval by a name of its
// own instead of the action's.
func unapprovedDeal(s *subject) bool {
	return s.Action.Type == "accept_deal" && !approved(s) &&
		slices.Contains(s.Mandate.Authority.ProhibitedActions, "accept_deal_without_approval")
}

func reviewRequired(s *subject) bool {
	return slices.Contains(s.Mandate.Compliance.ReviewRequiredActions, s.Action.Type)
}

func conditionMet(s *subject) bool {
	return slices.ContainsFunc(s.Mandate.Escalation.RequiredConditions, func(c string) bool {
		return slices.Contains(s.Context.Conditions, c)
	})
}

// unsure does not fire without a confidence: the protocol leaves that open and
// its published evaluators let it pass.
func unsure(s *subject) bool {
	threshold, confidence := s.Mandate.Escalation.ConfidenceThreshold, s.Context.Confidence
	return threshold != nil && confidence != nil && *confidence < *threshold
}

func supervised(s *subject) bool { return s.commits && s.Mandate.Authority.Mode == wire.ModeSupervised }

func noTrustedUI(s *subject) bool {
	required := s.Mandate.Authority.RequiresTrustedUI
	if required == nil && s.rules.optionalUI || required != nil && !*required {
		return false
	}
	return s.commits && !s.Facts.TrustedUI && !(s.rules.trustContext && s.Context.TrustedUIApproved)
}

func approved(s *subject) bool {
	return s.Facts.Approved || s.rules.trustContext && truthy(s.Context.Approval)
}

func claimsIgnored(s *subject) bool {
	return !s.rules.trustContext && (s.Context.TrustedUIApproved || truthy(s.Context.Approval))
}

// brokenConstraints judges the hard constraints that are machine readable.
func brokenConstraints(s *subject) []string {
	return constraints(s, func(c wire.Rule) bool { return c.Op != "" && !holds(c, s.Action) })
}

// inWords finds those that are not.
func inWords(s *subject) []string {
	return constraints(s, func(c wire.Rule) bool { return c.Op == "" })
}

func constraints(s *subject, which func(wire.Rule) bool) []string {
	var paths []string
	for i, c := range s.Mandate.Preferences.HardConstraints {
		if which(c) {
			paths = append(paths, fmt.Sprintf("$.preferences.hard_constraints[%d]", i))
		}
	}
	return paths
}
