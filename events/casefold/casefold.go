// Package casefold compares names without regard to case, in one way for tools, agents and
// members of documents.
package casefold

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// String maps texts that differ only in case to one text, by Unicode's simple case folding.
func String(s string) string {
	if IsASCII(s) {
		// U+017F and U+212A fold to the ASCII letters s and k, so the other branch must give
		// lower case too.
		return strings.ToLower(s)
	}
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return unicode.ToLower(least)
	}, s)
}

// IsASCII reports whether a text has no character beyond ASCII.
func IsASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
