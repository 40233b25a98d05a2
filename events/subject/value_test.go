package subject

import (
	"strings"
	"testing"
)

// TestValue: what stands for a text that is too long is found by the text and by
// itself; everything else is itself.
func TestValue(t *testing.T) {
	long, odd := strings.Repeat("long-", 20), strings.Repeat("é", 30)
	for _, text := range []string{"", "s-1", "a.b c", "~", "~h", "~habc", "~h" + strings.Repeat("g", 64), long, odd} {
		value := TokenValue(text)
		if again := TokenValue(value); again != value {
			t.Errorf("%q is %q, and that is %q", text, value, again)
		}
		if Token(value) != Escape(text) {
			t.Errorf("%q has the token %q, by its value %q", text, Escape(text), Token(value))
		}
		if parsed, _ := Unescape(Escape(text)); parsed != value {
			t.Errorf("%q is read as %q, and its value is %q", text, parsed, value)
		}
	}
}
