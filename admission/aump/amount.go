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

// aboveBudget looks at the number also where the currency is another: the
// published evaluators do, and it only adds a reason.
func aboveBudget(s *rowInput) bool {
	b := s.Mandate.Authority.Budget
	return s.Action.Amount != nil && b != nil && (s.Action.Amount.Total > b.MaxTotal || exceedsRemaining(s))
}

// exceedsRemaining reports whether an amount that is within the budget is not within
// what is left of it. It counts for every action with an amount: whether one
// commits is the agent's word, and an offer that could not be honoured is none.
func exceedsRemaining(s *rowInput) bool {
	b := s.Mandate.Authority.Budget
	return s.Action.Amount != nil && b != nil && s.Action.Amount.Currency == b.Currency && s.Action.Amount.Total <= b.MaxTotal &&
		totalSpend(s.Spend, s.Action.Amount.Total) > b.MaxTotal
}

// totalSpend adds without wrapping around.
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
