package aump

import (
	"slices"
	"strings"
)

// normalizeName makes names comparable where being found in a list counts against the
// one who chose the spelling.
func normalizeName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

func isListed(list []string, name string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return normalizeName(l) == normalizeName(name) })
}

// namedAfter reports whether a name claims to belong to a class in the list: it
// starts with the singular of a plural, as local_buyer_001 of local_buyers.
func namedAfter(list []string, name string) bool {
	return slices.ContainsFunc(list, func(class string) bool {
		for _, one := range singularForms(normalizeName(class)) {
			rest, ok := strings.CutPrefix(normalizeName(name), one)
			if ok && (rest == "" || strings.ContainsAny(rest[:1], "_-.:/#@ ")) {
				return true
			}
		}
		return false
	})
}

func singularForms(class string) []string {
	if stem, ok := strings.CutSuffix(class, "ies"); ok && stem != "" {
		return []string{stem + "y"}
	}
	if stem, ok := strings.CutSuffix(class, "s"); ok && stem != "" {
		return []string{stem}
	}
	return nil
}

// listMatch is how an action's counterparty stands to a list of the purpose.
type listMatch int

const (
	matchNoList listMatch = iota // there is no list, or an action that commits nobody
	matchFound
	matchUncertain // only a person can say
	matchOutside
	matchUnnamed // the action commits the principal to someone whom it does not name
)

func matchCounterparty(s *rowInput, list []string) listMatch {
	switch {
	case s.rules.ignoresCounterparties || len(list) == 0:
		return matchNoList
	case s.Action.Counterparty == nil || normalizeName(*s.Action.Counterparty) == "":
		if s.commits {
			return matchUnnamed
		}
		return matchNoList
	case isListed(list, *s.Action.Counterparty):
		return matchFound
	case namedAfter(list, *s.Action.Counterparty):
		return matchUncertain
	}
	return matchOutside
}

func excludedCounterparty(s *rowInput) bool {
	return matchCounterparty(s, s.Mandate.Purpose.ExcludedCounterparties) == matchFound
}

func maybeExcludedCounterparty(s *rowInput) bool {
	st := matchCounterparty(s, s.Mandate.Purpose.ExcludedCounterparties)
	return st == matchUncertain || st == matchUnnamed
}

// notAllowedCounterparty wants a listed name to the letter: being found speaks for the one who
// chose the spelling.
func notAllowedCounterparty(s *rowInput) bool {
	list := s.Mandate.Purpose.AllowedCounterparties
	switch matchCounterparty(s, list) {
	case matchOutside, matchUnnamed:
		return true
	case matchFound:
		return !slices.Contains(list, *s.Action.Counterparty)
	}
	return false
}

func maybeAllowedCounterparty(s *rowInput) bool {
	return matchCounterparty(s, s.Mandate.Purpose.AllowedCounterparties) == matchUncertain
}

// otherCategory looks at attributes.category, where there is one: AUMP's own
// action has no category.
func otherCategory(s *rowInput) bool {
	allowed := s.Mandate.Purpose.AllowedCategories
	category, there := s.Action.Attributes["category"]
	if s.rules.ignoresCounterparties || len(allowed) == 0 || !there {
		return false
	}
	name, ok := category.(string)
	return !ok || !slices.Contains(allowed, name)
}

// prohibitedFactor finds a prohibited factor by its name, also below another
// (applicant.age for age).
func prohibitedFactor(s *rowInput) bool {
	return slices.ContainsFunc(s.Action.DecisionFactors, func(factor string) bool {
		return slices.ContainsFunc(s.Mandate.Compliance.ProhibitedDecisionFactors, func(prohibited string) bool {
			f, p := normalizeName(factor), normalizeName(prohibited)
			return f == p || strings.HasSuffix(f, "."+p)
		})
	})
}
