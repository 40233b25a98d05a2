package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// byJSON is a text as encoding/json writes it, but for what is not UTF-8: that it
// escapes.
func byJSON(t *testing.T, s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(string([]rune(s))); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// TestAppendString: every byte, and what is not UTF-8, at every place of texts of
// every length that is looked at in another way.
func TestAppendString(t *testing.T) {
	for size := range 28 {
		for at := range size {
			for c := range 256 {
				text := []byte("The quick brown fox jumps over")[:size]
				text[at] = byte(c)
				if got, want := string(AppendString(nil, string(text))), byJSON(t, string(text)); got != want {
					t.Fatalf("%q is %s, not %s", text, got, want)
				}
			}
		}
	}
	for _, s := range []string{"", "é", "seven..é eight", `"\`, "\x00\x1f\x7f", "\xed\xa0\x80 surrogate", "𝄞 clef 𝄞", strings.Repeat("plain text ", 99) + "\n"} {
		if got, want := string(AppendString(nil, s)), byJSON(t, s); got != want {
			t.Errorf("%q is %s, not %s", s, got, want)
		}
	}
}
