package aump

import (
	"fmt"
	"slices"
	"strings"

	wire "github.com/countersign-dev/countersign/events/aump"
)

// deniedDisclosures finds the fields that an action must not tell. Prohibited and
// protected win over allowed.
func deniedDisclosures(s *rowInput) []string {
	var paths []string
	for i, d := range s.Action.Disclosures {
		if s.deniesDisclosure(d.Field) {
			paths = append(paths, fmt.Sprintf("$.proposed_action.disclosures[%d].field", i))
		}
		if !s.rules.exactDisclosures && quotesNote(s.Mandate.Preferences.PrivateNotes, d.Content) {
			paths = append(paths, fmt.Sprintf("$.proposed_action.disclosures[%d].content", i))
		}
	}
	return paths
}

func (s *rowInput) deniesDisclosure(field string) bool {
	d := s.Mandate.Disclosure
	named := func(rules []wire.DisclosureRule) bool {
		return slices.ContainsFunc(rules, func(r wire.DisclosureRule) bool { return r.Field == field })
	}
	return named(d.Prohibited) || protectedField(s.Mandate.Negotiation, field) || // as the published evaluators
		!s.rules.exactDisclosures && s.revealsSecret(field) ||
		d.Default != wire.DiscloseAllow && !named(d.Allowed)
}

// protectedField compares as the published evaluators do: a protected field by
// its name or under any other, private notes under any.
func protectedField(n wire.Negotiation, field string) bool {
	under := func(name string) bool { return strings.HasSuffix(field, "."+name) }
	return under("private_notes") || slices.ContainsFunc(n.ProtectedFields, func(p string) bool { return field != "" && (field == p || under(p)) })
}

// revealsSecret reports whether a field is a protected or prohibited one under another
// spelling, a part of one, or something that contains one.
func (s *rowInput) revealsSecret(field string) bool {
	f := pathSegments(field)
	if len(f) == 0 {
		return true // nobody can say what it tells
	}
	for _, secret := range s.secretPaths() {
		p := pathSegments(secret)
		if hasPathPrefix(f, p) || hasPathPrefix(p, f) || containsPath(p, f) {
			return true
		}
	}
	return false
}

// secretPaths are the paths in a mandate that must not be told.
func (s *rowInput) secretPaths() []string {
	list := []string{"preferences.private_notes"}
	for _, r := range s.Mandate.Disclosure.Prohibited {
		list = append(list, r.Field)
	}
	for _, name := range s.Mandate.Negotiation.ProtectedFields {
		list = append(list, name, "negotiation."+name)
	}
	for part, rules := range map[string][]wire.Rule{
		"hard_constraints": s.Mandate.Preferences.HardConstraints, "soft_preferences": s.Mandate.Preferences.SoftPreferences,
	} {
		for _, r := range rules {
			if r.Protected {
				list = append(list, "preferences."+part+"."+r.ID)
			}
		}
	}
	return list
}

// pathSegments takes a path apart: a.b[0] is a, b, 0. Case and white space do not
// count.
func pathSegments(path string) []string {
	return strings.FieldsFunc(strings.ToLower(path), func(r rune) bool { return strings.ContainsRune(".[]/'\"$* \t\r\n", r) })
}

// hasPathPrefix reports whether path leads to, or into, what p leads to; an empty p
// leads nowhere.
func hasPathPrefix(path, p []string) bool {
	return len(p) > 0 && len(path) >= len(p) && slices.Equal(path[:len(p)], p)
}

// containsPath reports whether p stands anywhere in a path: foo.private_notes.0.
func containsPath(p, path []string) bool {
	for i := range path {
		if hasPathPrefix(path[i:], p) {
			return true
		}
	}
	return false
}

// minQuote is the shortest private note, in bytes, whose words are looked for: a
// shorter one may stand in any text by chance.
const minQuote = 8

// quotesNote reports whether a text contains a private note word for word. Case and
// white space do not count.
func quotesNote(notes []string, text string) bool {
	text = normalizeSpace(text)
	return slices.ContainsFunc(notes, func(n string) bool {
		n = normalizeSpace(n)
		return len(n) >= minQuote && strings.Contains(text, n)
	})
}

func normalizeSpace(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }
