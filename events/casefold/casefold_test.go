package casefold

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Two texts have one fold if and only if strings.EqualFold takes them for equal.
func TestStringAgreesWithEqualFold(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune("aAsSkKzZ1_ſ\u212aßẞΣσςİıÅå\u212bЖж")))
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		if rapid.Bool().Draw(t, "other case") {
			b = strings.ToUpper(a)
		}
		if got, want := String(a) == String(b), strings.EqualFold(a, b); got != want {
			t.Fatalf("%q and %q: one fold %v, EqualFold %v", a, b, got, want)
		}
	})
}
