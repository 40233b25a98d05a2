package aump

import (
	"math"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
)

func noBudget(s *rowInput) bool { return s.Action.Amount != nil && s.Mandate.Authority.Budget == nil }

func otherCurrency(s *rowInput) bool {
	b := s.Mandate.Authority.Budget
	return s.Action.Amount != nil && b != nil && s.Action.Amount.Currency != b.Currency
}

// aboveBudget compares the number even where the currency differs: the published evaluators do,
// and it only adds a reason.
func aboveBudget(s *rowInput) bool {
	b := s.Mandate.Authority.Budget
	return s.Action.Amount != nil && b != nil && (s.Action.Amount.Total > b.MaxTotal || exceedsRemaining(s))
}

// exceedsRemaining reports whether an amount is within the budget but not within what is left
// of it. It counts for every action with an amount: whether an action commits is the agent's
// claim, and an offer must be one that could be honoured.
func exceedsRemaining(s *rowInput) bool {
	b := s.Mandate.Authority.Budget
	return s.Action.Amount != nil && b != nil && s.Action.Amount.Currency == b.Currency && s.Action.Amount.Total <= b.MaxTotal &&
		totalSpend(s.Spend, s.Action.Amount.Total) > b.MaxTotal
}

// totalSpend adds without overflow.
func totalSpend(spent mandate.Spend, amount int64) int64 {
	total := amount
	for _, n := range []int64{spent.Reserved, spent.Settled} {
		if n > math.MaxInt64-total {
			return math.MaxInt64
		}
		total += max(0, n)
	}
	return total
}
