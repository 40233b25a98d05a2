package redact

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// maxPointers is how often the escapes of JSON pointers are resolved in one text.
const maxPointers = 2

// family is a set of signs that begin escapes. Those of JSON pointers, which name members, are
// resolved separately: %2F in a name is no / until the name is known.
type family []byte

var (
	inTexts    = family{'%', '\\', '&'}
	inPointers = family{'~'}
)

// firstEscape returns the position of the first escape of a text: %41, \u0041, \x41, &#65;; in
// pointers ~1, ~0. It returns -1 if there is none.
func firstEscape(s string, signs family) int {
	first := -1
	for _, sign := range signs {
		for i := 0; i < len(s); i++ {
			next := strings.IndexByte(s[i:], sign)
			if next < 0 {
				break
			}
			if i += next; first >= 0 && i >= first {
				break
			}
			if _, n := readEscape(s, i); n > 1 {
				first = i
				break
			}
		}
	}
	return first
}

// findEscaped searches a text with its escapes resolved, and repeats this while the result has
// escapes. It appends the spans of its findings in the original text.
func findEscaped(s string, first int, signs family, spans []Span, depth int, m *workBudget, look spanFinder) []Span {
	text, levels := s, []offsetMap(nil)
	for pointers := maxPointers; first >= 0; {
		if signs[0] == inPointers[0] {
			pointers--
		} else {
			depth--
		}
		var p offsetMap
		text, p = undoEscapes(text, first, signs, m)
		levels = append(levels, p)
		m.charge(len(text))
		found := look(text, m) // # in a URL's password appears only after %23 is resolved
		if first, signs = nextEscapes(text, depth, pointers); first < 0 && len(text) >= minBase64 {
			found = inBase64(text, found, 1, m, look)
		}
		for _, sp := range found {
			for i := len(levels) - 1; i >= 0; i-- {
				sp.Start, sp.End = levels[i].originalOffset(sp.Start, false), levels[i].originalOffset(sp.End, true)
			}
			spans = append(spans, sp)
		}
	}
	return spans
}

// nextEscapes returns the position and the family of the escapes to resolve next, or -1 if there
// are none or the depth is used up.
func nextEscapes(s string, depth, pointers int) (first int, signs family) {
	if pointers > 0 {
		if first = firstEscape(s, inPointers); first >= 0 {
			return first, inPointers
		}
	}
	if depth > 0 {
		return firstEscape(s, inTexts), inTexts
	}
	return -1, nil
}

// offsetMap maps positions of a resolved text to the original: from view on, it equals the
// original from origin on.
type offsetMap []struct{ view, origin int }

// undoEscapes resolves the escapes of a text. The result begins shortly before the first one,
// because a secret with an escape in it begins near it.
func undoEscapes(s string, first int, signs family, m *workBudget) (string, offsetMap) {
	near := first
	if other := firstEscape(s[:first], inTexts); other >= 0 { // to be resolved after those of pointers
		near = other
	}
	at := max(0, near-2*maxIdent)
	m.charge(2 * (len(s) - at))
	view := make([]byte, 0, len(s)-at)
	query := signs[0] == '%' && strings.IndexByte(s, '%') >= 0
	p := offsetMap{{0, at}}
	for i := first; i < len(s) && m.left >= 0; i += plainRun(s[i:], signs) {
		m.charge(12)
		c, n := readEscape(s, i)
		if n == 1 && signs[0] != inPointers[0] {
			c, n = readShortEscape(s, i)
		}
		if n == 1 {
			i++
			continue
		}
		view = appendQuery(view, s[at:i], query)
		if s[i] == '%' || s[i+1] == 'x' { // these escapes stand for a byte, not a character
			view = append(view, byte(c))
		} else {
			view = utf8.AppendRune(view, c)
		}
		i += n
		at = i
		p = append(p, struct{ view, origin int }{len(view), at})
	}
	return string(appendQuery(view, s[at:], query)), p
}

// appendQuery appends s. In a text with percent signs (query) a plus sign stands for a blank.
func appendQuery(view []byte, s string, query bool) []byte {
	at := len(view)
	view = append(view, s...)
	if query {
		for i, c := range view[at:] {
			if c == '+' {
				view[at+i] = ' '
			}
		}
	}
	return view
}

// plainRun is the number of bytes before the next one that may begin an escape.
func plainRun(s string, signs family) int {
	if len(signs) == 1 {
		if i := strings.IndexByte(s, signs[0]); i >= 0 {
			return i
		}
		return len(s)
	}
	for i := range len(s) {
		if c := s[i]; c == '%' || c == '\\' || c == '&' {
			return i
		}
	}
	return len(s)
}

// originalOffset maps a position of the view to the original. The end of a span inside an
// escaped character is mapped to the end of its escape.
func (p offsetMap) originalOffset(at int, end bool) int {
	i := sort.Search(len(p), func(i int) bool { return p[i].view > at }) - 1
	where := p[i].origin + at - p[i].view
	if i+1 < len(p) && where > p[i].origin && end && where > p[i+1].origin {
		return p[i+1].origin
	}
	return where
}

// readEscape decodes the escape at i and returns the character and the length of the escape. If
// there is none, it returns the byte and 1.
func readEscape(s string, i int) (c rune, n int) {
	switch rest := s[i:]; {
	case rest[0] == '%' && len(rest) > 2:
		if v := hexNumber(rest[1:3]); v >= 0 {
			return v, 3
		}
	case rest[0] == '\\' && len(rest) > 1 && rest[1] == '/':
		return '/', 2
	case rest[0] == '\\' && len(rest) > 3 && rest[1] == 'x':
		if v := hexNumber(rest[2:4]); v >= 0 {
			return v, 4
		}
	case rest[0] == '\\' && len(rest) > 5 && rest[1] == 'u':
		if v := hexNumber(rest[2:6]); v >= 0 {
			return v, 6
		}
	case rest[0] == '~' && len(rest) > 1 && i > 0 && byteClass[s[i-1]]&space == 0: // a pointer begins with /, so "~10 %" is none
		switch rest[1] {
		case '0':
			return '~', 2
		case '1':
			return '/', 2
		}
	case rest[0] == '&' && len(rest) > 3 && rest[1] == '#':
		return readEntity(rest)
	}
	return rune(s[i]), 1
}

// readShortEscape decodes one of JSON's escapes of two characters. They alone do not make
// firstEscape start, but they are resolved together with other escapes.
func readShortEscape(s string, i int) (c rune, n int) {
	if s[i] == '\\' && i+1 < len(s) {
		switch s[i+1] {
		case '"', '\\', '\'':
			return rune(s[i+1]), 2
		case 'n', 'r':
			return '\n', 2
		case 't':
			return ' ', 2
		}
	}
	return rune(s[i]), 1
}

// readEntity decodes &#65; and &#x41;.
func readEntity(s string) (c rune, n int) {
	digits, base := 2, rune(10)
	if s[2] == 'x' || s[2] == 'X' {
		digits, base = 3, 16
	}
	for n = digits; n < len(s) && n < 10; n++ {
		v := hexDigit(s[n])
		if v < 0 || v >= base {
			break
		}
		c = c*base + v
	}
	if n == digits || n >= len(s) || s[n] != ';' || c > utf8.MaxRune {
		return '&', 1
	}
	return c, n + 1
}

func hexDigit(c byte) rune {
	switch l := lowerASCII(c); {
	case l >= '0' && l <= '9':
		return rune(l - '0')
	case l >= 'a' && l <= 'f':
		return rune(l-'a') + 10
	}
	return -1
}

// hexNumber is the value of hexadecimal digits, or -1.
func hexNumber(s string) (v rune) {
	for i := range len(s) {
		d := hexDigit(s[i])
		if d < 0 {
			return -1
		}
		v = v<<4 | d
	}
	return v
}
