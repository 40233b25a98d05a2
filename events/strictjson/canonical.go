package strictjson

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/casefold"
)

// AppendString appends a string in RFC 8785 form: only what must be escaped is escaped. Bytes
// that are not UTF-8 become U+FFFD, as with encoding/json.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := plainBytes(s); i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		if short := strings.IndexByte("\"\\\b\t\n\f\r", c); short >= 0 {
			b = append(b, '\\', `"\btnfr`[short])
		} else {
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// plainBytes is the number of bytes before the first that needs care: a quotation mark, a
// backslash, a control character, a non-ASCII byte.
func plainBytes(s string) (n int) {
	for n < len(s) && s[n] >= ' ' && s[n] < utf8.RuneSelf && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

const hexDigits = "0123456789abcdef"

// isPlainTree reports whether FromTree takes a tree for what json.Marshal writes of it, and its
// numbers are in their canonical form already: it has no value of another type, no nil map or slice,
// and no key that is not UTF-8.
func isPlainTree(tree any) bool {
	switch tree := tree.(type) {
	case nil, bool, string:
		return true
	case json.Number:
		return plainNumber(string(tree))
	case []any:
		return tree != nil && !slices.ContainsFunc(tree, func(item any) bool { return !isPlainTree(item) })
	case map[string]any:
		for key, member := range tree {
			if !utf8.ValidString(key) || !isPlainTree(member) {
				return false
			}
		}
		return tree != nil
	}
	return false
}

// CompareKeys orders the keys of an object as RFC 8785 does: by UTF-16 code units. That differs from
// the order of bytes only where a rune beyond U+FFFF meets one from U+E000 on.
func CompareKeys(a, b string) int {
	if casefold.IsASCII(a) || casefold.IsASCII(b) {
		return strings.Compare(a, b)
	}
	for a != "" && b != "" {
		r, n := utf8.DecodeRuneInString(a)
		s, m := utf8.DecodeRuneInString(b)
		if r != s {
			if wideR, wideS := r > 0xFFFF, s > 0xFFFF; wideR != wideS {
				return cmp.Compare(firstUnit(r), firstUnit(s))
			}
			return cmp.Compare(r, s)
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

// firstUnit is the first UTF-16 code unit of a rune.
func firstUnit(r rune) rune {
	if r > 0xFFFF {
		high, _ := utf16.EncodeRune(r)
		return high
	}
	return r
}

// plainInteger reports whether a number's text is certainly its canonical form: an integer of
// at most 15 digits, not a negative zero.
func plainInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || len(digits) > 15 || digits[0] == '0' && s != "0" {
		return false
	}
	return !strings.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
}

// plainNumber extends plainInteger to decimals with at most 15 significant digits that need no
// exponent.
func plainNumber(s string) bool {
	whole, fraction, decimal := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	if !decimal {
		return plainInteger(s)
	}
	if !plainInteger(whole) || whole[0] == '-' || fraction == "" || len(whole)+len(fraction) > 15 || fraction[len(fraction)-1] == '0' {
		return false
	}
	digits := strings.TrimLeft(fraction, "0")
	if strings.ContainsFunc(fraction, func(r rune) bool { return r < '0' || r > '9' }) {
		return false
	}
	return whole != "0" || len(fraction)-len(digits) <= 5
}
