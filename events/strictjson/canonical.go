package strictjson

import (
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
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
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; len(s)-n >= 8; n += 8 {
		t := s[n : n+8]
		w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 | uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		quote, slash := w^'"'*ones, w^'\\'*ones
		// A byte of x below n has the high bit set in x - n*ones and not in x itself. The
		// borrow can mark other bytes, but only later ones.
		if care := (w | (w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & high; care != 0 {
			return n + bits.TrailingZeros64(care)/8
		}
	}
	for n < len(s) && s[n] >= ' ' && s[n] < utf8.RuneSelf && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

const hexDigits = "0123456789abcdef"

// appendTree appends the RFC 8785 form of a tree of the types that Parse makes. It reports
// false for content that only canonicalAny can write: another type, a number that is no plain
// integer, a key that is not ASCII and so sorts by its UTF-16 form.
func appendTree(b []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), true
	case bool:
		return strconv.AppendBool(b, v), true
	case string:
		return AppendString(b, v), true
	case json.Number:
		return append(b, v...), plainNumber(string(v))
	case []any:
		return appendList(b, v)
	case map[string]any:
		return appendObject(b, v)
	}
	return b, false
}

func appendList(b []byte, list []any) ([]byte, bool) {
	if list == nil {
		return b, false
	}
	b = append(b, '[')
	var ok bool
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, ok = appendTree(b, e); !ok {
			return b, false
		}
	}
	return append(b, ']'), true
}

func appendObject(b []byte, object map[string]any) ([]byte, bool) {
	if object == nil {
		return b, false
	}
	var room [16]string
	keys := room[:0]
	for k := range object {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	var ok bool
	for i, k := range keys {
		if strings.ContainsFunc(k, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return b, false
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(AppendString(b, k), ':')
		if b, ok = appendTree(b, object[k]); !ok {
			return b, false
		}
	}
	return append(b, '}'), true
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
