package aump

import (
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/countersign-dev/countersign/admission/policy/names"
)

// normalizeName makes names comparable where a match counts against the party that chose the
// spelling: case, white space, invisible characters and the width of letters make no difference.
func normalizeName(s string) string {
	visible := strings.Map(func(r rune) rune {
		if names.IsInvisible(r) {
			return -1
		}
		return r
	}, norm.NFKC.String(s))
	return normalizeSpace(visible)
}

func isListed(list []string, name string) bool {
	name = normalizeName(name)
	return slices.ContainsFunc(list, func(l string) bool { return normalizeName(l) == name })
}

// namedAfter reports whether a name claims to belong to a class in the list: it starts with the
// singular of a plural, as local_buyer_001 of local_buyers.
func namedAfter(list []string, name string) bool {
	name = normalizeName(name)
	return slices.ContainsFunc(list, func(class string) bool {
		return slices.ContainsFunc(singularForms(normalizeName(class)), func(one string) bool { return startsWithWord(name, one) })
	})
}

// startsWithWord reports whether a name is a word, or continues it after a separator.
func startsWithWord(name, word string) bool {
	rest, ok := strings.CutPrefix(name, word)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], "_-.:/#@ "))
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

// listMatch is the relation of an action's counterparty to a list of the purpose.
type listMatch int

const (
	matchNoList listMatch = iota // there is no list, or the action does not commit
	matchFound
	matchUncertain // only a person can decide
	matchOutside
	matchUnnamed // the action commits the principal to an unnamed party
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

// maybeExcludedCounterparty also finds a party that is named after an entry as it stands, as
// competitors_7 after competitors. An allowed list does not: there it would loosen a denial.
func maybeExcludedCounterparty(s *rowInput) bool {
	list := s.Mandate.Purpose.ExcludedCounterparties
	switch matchCounterparty(s, list) {
	case matchUncertain, matchUnnamed:
		return true
	case matchOutside:
		name := normalizeName(*s.Action.Counterparty)
		return slices.ContainsFunc(list, func(entry string) bool { return startsWithWord(name, normalizeName(entry)) })
	}
	return false
}

// notAllowedCounterparty requires an exact match, but for the case of a name after a class: here
// a match counts in favour of the party that chose the spelling.
func notAllowedCounterparty(s *rowInput) bool {
	list := s.Mandate.Purpose.AllowedCounterparties
	switch matchCounterparty(s, list) {
	case matchOutside, matchUnnamed:
		return true
	case matchFound:
		return !slices.Contains(list, *s.Action.Counterparty)
	case matchUncertain:
		return normalizeName(*s.Action.Counterparty) != strings.ToLower(strings.TrimSpace(*s.Action.Counterparty))
	}
	return false
}

func maybeAllowedCounterparty(s *rowInput) bool {
	return matchCounterparty(s, s.Mandate.Purpose.AllowedCounterparties) == matchUncertain
}

// otherCategory checks attributes.category if present: AUMP's own action has no category.
func otherCategory(s *rowInput) bool {
	allowed := s.Mandate.Purpose.AllowedCategories
	category, there := s.Action.Attributes["category"]
	if s.rules.ignoresCounterparties || len(allowed) == 0 || !there {
		return false
	}
	name, ok := category.(string)
	return !ok || !slices.Contains(allowed, name)
}

// prohibitedFactor finds a prohibited factor by its name, also below another name
// (applicant.age for age).
func prohibitedFactor(s *rowInput) bool {
	var prohibited []string
	for _, p := range s.Mandate.Compliance.ProhibitedDecisionFactors {
		prohibited = append(prohibited, "."+normalizeName(p))
	}
	return len(prohibited) > 0 && slices.ContainsFunc(s.Action.DecisionFactors, func(factor string) bool {
		f := "." + normalizeName(factor)
		return slices.ContainsFunc(prohibited, func(p string) bool { return strings.HasSuffix(f, p) })
	})
}
