package aump

import (
	"slices"
	"strings"
)

// fold makes names comparable where being found in a list counts against the
// one who chose the spelling.
func fold(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

func listed(list []string, name string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return fold(l) == fold(name) })
}

// namedAfter reports whether a name claims to belong to a class in the list: it
// starts with the singular of a plural, as local_buyer_001 of local_buyers.
func namedAfter(list []string, name string) bool {
	return slices.ContainsFunc(list, func(class string) bool {
		for _, one := range singulars(fold(class)) {
			rest, ok := strings.CutPrefix(fold(name), one)
			if ok && (rest == "" || strings.ContainsAny(rest[:1], "_-.:/#@ ")) {
				return true
			}
		}
		return false
	})
}

func singulars(class string) []string {
	if stem, ok := strings.CutSuffix(class, "ies"); ok && stem != "" {
		return []string{stem + "y"}
	}
	if stem, ok := strings.CutSuffix(class, "s"); ok && stem != "" {
		return []string{stem}
	}
	return nil
}

// standing is how an action's counterparty stands to a list of the purpose.
type standing int

const (
	unlisted standing = iota // there is no list, or an action that commits nobody
	found
	perhaps // only a person can say
	outside
	nobody // the action commits the principal to someone whom it does not name
)

func stand(s *subject, list []string) standing {
	switch {
	case s.rules.anyone || len(list) == 0:
		return unlisted
	case s.Action.Counterparty == nil || fold(*s.Action.Counterparty) == "":
		if s.commits {
			return nobody
		}
		return unlisted
	case listed(list, *s.Action.Counterparty):
		return found
	case namedAfter(list, *s.Action.Counterparty):
		return perhaps
	}
	return outside
}

func excluded(s *subject) bool {
	return stand(s, s.Mandate.Purpose.ExcludedCounterparties) == found
}

func perhapsExcluded(s *subject) bool {
	st := stand(s, s.Mandate.Purpose.ExcludedCounterparties)
	return st == perhaps || st == nobody
}

// notAmong wants a listed name to the letter: being found speaks for the one who
// chose the spelling.
func notAmong(s *subject) bool {
	list := s.Mandate.Purpose.AllowedCounterparties
	switch stand(s, list) {
	case outside, nobody:
		return true
	case found:
		return !slices.Contains(list, *s.Action.Counterparty)
	}
	return false
}

func perhapsAmong(s *subject) bool {
	return stand(s, s.Mandate.Purpose.AllowedCounterparties) == perhaps
}

// otherCategory looks at attributes.category, where there is one: AUMP's own
// action has no category.
func otherCategory(s *subject) bool {
	allowed := s.Mandate.Purpose.AllowedCategories
	category, there := s.Action.Attributes["category"]
	if s.rules.anyone || len(allowed) == 0 || !there {
		return false
	}
	name, ok := category.(string)
	return !ok || !slices.Contains(allowed, name)
}

// prohibitedFactor finds a prohibited factor by its name, also below another
// (applicant.age for age).
func prohibitedFactor(s *subject) bool {
	return slices.ContainsFunc(s.Action.DecisionFactors, func(factor string) bool {
		return slices.ContainsFunc(s.Mandate.Compliance.ProhibitedDecisionFactors, func(prohibited string) bool {
			f, p := fold(factor), fold(prohibited)
			return f == p || strings.HasSuffix(f, "."+p)
		})
	})
}
