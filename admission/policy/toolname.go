package policy

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxToolName is the longest tool name, in bytes, that a policy looks at.
const MaxToolName = 256

// ToolName reports whether a tool name can be told from every other by a
// program and by a person alike. It is false for the empty name, for names
// longer than MaxToolName, and for names with invalid UTF-8, control or format
// characters (NUL, zero width, right-to-left overrides), white space at either
// end or other than a space inside, characters that have a compatibility form
// (full-width letters, unnormalised accents), or letters that mix Latin with a
// script whose letters look like Latin ones.
func ToolName(name string) bool {
	if name == "" || len(name) > MaxToolName || name[0] == ' ' || name[len(name)-1] == ' ' {
		return false
	}
	if ascii, ok := plainASCII(name); ascii {
		return ok
	}
	if !utf8.ValidString(name) || !norm.NFKC.IsNormalString(name) {
		return false
	}
	latin, other := false, false
	for _, r := range name {
		if r != ' ' && !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r) || unicode.Is(unicode.Co, r) {
			return false
		}
		latin = latin || unicode.Is(unicode.Latin, r)
		other = other || unicode.IsLetter(r) && !unicode.In(r, mixable...)
	}
	return !latin || !other
}

// mixable are the scripts that stand beside Latin letters in honest names (the
// "highly restrictive" profile of Unicode Technical Standard 39) and what
// belongs to no script.
var mixable = []*unicode.RangeTable{
	unicode.Latin, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo,
	unicode.Common, unicode.Inherited,
}

func plainASCII(s string) (ascii, printable bool) {
	printable = true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			return false, false
		case c < ' ' || c == 0x7f:
			printable = false
		}
	}
	return true, printable
}

// clean reports whether an operand other than the tool name may be compared at
// all: valid UTF-8 without control and format characters.
func clean(s string) bool {
	if ascii, ok := plainASCII(s); ascii {
		return ok
	}
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Cf) {
			return false
		}
	}
	return true
}
