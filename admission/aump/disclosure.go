package aump

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aump"
)

// deniedDisclosures returns the fields that an action must not disclose. Prohibited and
// protected override allowed. A request may have 50,000 fields, so what is in the mandate is
// prepared once.
func deniedDisclosures(s *rowInput) []string {
	var paths []string
	var secrets [][]string
	var notes []string
	if len(s.Action.Disclosures) > 0 && !s.rules.exactDisclosures {
		secrets, notes = s.secretPaths(), quotableNotes(s.Mandate.Preferences.PrivateNotes)
	}
	for i, d := range s.Action.Disclosures {
		if s.deniesDisclosure(d.Field, secrets) {
			paths = append(paths, fmt.Sprintf("$.proposed_action.disclosures[%d].field", i))
		}
		if quotesNote(notes, d.Content) {
			paths = append(paths, fmt.Sprintf("$.proposed_action.disclosures[%d].content", i))
		}
		if len(paths) > maxPaths {
			break
		}
	}
	return paths
}

func (s *rowInput) deniesDisclosure(field string, secrets [][]string) bool {
	d := s.Mandate.Disclosure
	named := func(rules []wire.DisclosureRule) bool {
		return slices.ContainsFunc(rules, func(r wire.DisclosureRule) bool { return r.Field == field })
	}
	return named(d.Prohibited) || protectedField(s.Mandate.Negotiation, field) || // as the published evaluators
		!s.rules.exactDisclosures && revealsSecret(secrets, field) ||
		d.Default != wire.DiscloseAllow && !named(d.Allowed)
}

// protectedField compares as the published evaluators do: a protected field by its name or
// below any other name, private notes below any name.
func protectedField(n wire.Negotiation, field string) bool {
	under := func(name string) bool { return strings.HasSuffix(field, "."+name) }
	return under("private_notes") || slices.ContainsFunc(n.ProtectedFields, func(p string) bool { return field != "" && (field == p || under(p)) })
}

// revealsSecret reports whether a field is a protected or prohibited field in another spelling,
// a part of one, or something that contains one.
func revealsSecret(secrets [][]string, field string) bool {
	f := pathSegments(field)
	return len(f) == 0 || // a field without a path could be anything
		slices.ContainsFunc(secrets, func(p []string) bool { return hasPathPrefix(f, p) || hasPathPrefix(p, f) || containsPath(p, f) })
}

// secretPaths are the paths in a mandate that must not be disclosed, in segments.
func (s *rowInput) secretPaths() [][]string {
	list := []string{"preferences.private_notes", "private_notes"}
	for _, r := range s.Mandate.Disclosure.Prohibited {
		list = append(list, r.Field)
	}
	for _, name := range s.Mandate.Negotiation.ProtectedFields {
		list = append(list, name, "negotiation."+name)
	}
	for part, rules := range map[string][]wire.Rule{
		"hard_constraints": s.Mandate.Preferences.HardConstraints, "soft_preferences": s.Mandate.Preferences.SoftPreferences,
	} {
		for i, r := range rules {
			if r.Protected { // by its id, and by its place, as reasons name it
				list = append(list, part+"."+r.ID, part+"."+strconv.Itoa(i), "preferences."+part+"."+r.ID, "preferences."+part+"."+strconv.Itoa(i))
			}
		}
	}
	paths := make([][]string, len(list))
	for i, path := range list {
		paths[i] = pathSegments(path)
	}
	return paths
}

// pathSegments splits a path: a.b[0] is a, b, 0. Case and white space are ignored.
func pathSegments(path string) []string {
	return strings.FieldsFunc(strings.ToLower(path), func(r rune) bool { return strings.ContainsRune(".[]/'\"$* \t\r\n", r) })
}

// hasPathPrefix reports whether path is p or below it; an empty p is no prefix.
func hasPathPrefix(path, p []string) bool {
	return len(p) > 0 && len(path) >= len(p) && slices.Equal(path[:len(p)], p)
}

// containsPath reports whether p occurs anywhere in a path: foo.private_notes.0.
func containsPath(p, path []string) bool {
	for i := range path {
		if hasPathPrefix(path[i:], p) {
			return true
		}
	}
	return false
}

// minQuote is the minimum length in bytes of a private note that is searched for: a shorter
// note may occur in any text by chance.
const minQuote = 8

// quotableNotes are the notes that are searched for, as quotesNote compares them.
func quotableNotes(notes []string) (list []string) {
	for _, n := range notes {
		if n = normalizeSpace(n); len(n) >= minQuote {
			list = append(list, n)
		}
	}
	return list
}

// quotesNote reports whether a text contains one of the notes verbatim. Case and white space are
// ignored.
func quotesNote(notes []string, text string) bool {
	if len(notes) == 0 {
		return false
	}
	text = normalizeSpace(text)
	return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(text, n) })
}

func normalizeSpace(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }
