package redact

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// maxPointers is how often the escapes of JSON pointers are undone in one text.
const maxPointers = 2

// family is what writes escapes in one way. Those of JSON pointers, by which members
// are named, are undone by themselves: %2F in a name is no / until the name is
// known.
type family []byte

var (
	inTexts    = family{'%', '\\', '&'}
	inPointers = family{'~'}
)

// firstEscape is where the first escape of a text stands: %41, \u0041, \x41, &#65;; in
// pointers ~1, ~0. -1 when there is none.
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

// findEscaped looks at a text with its escapes undone, and with those undone that it
// has then, and says where in the original it found something.
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
		found := look(text, m) // %23 in a URL's password is one only until it is undone
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

// nextEscapes is where the escapes begin that are to be undone next, and which; -1
// when there are none, or enough of them were undone.
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

// offsetMap say where the parts of a text whose escapes were undone were before:
// from view on, it is as the original from origin on.
type offsetMap []struct{ view, origin int }

// undoEscapes undoes the escapes of a text, from a little before the first one on: what
// an escape can be part of begins near it.
func undoEscapes(s string, first int, signs family, m *workBudget) (string, offsetMap) {
	near := first
	if other := firstEscape(s[:first], inTexts); other >= 0 { // to be undone after those of pointers
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
		if s[i] == '%' || s[i+1] == 'x' { // a byte, not a character
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

// appendQuery appends a part of a text in which, where it has percent signs, a
// plus sign may stand for a blank.
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

// plainRun is how many bytes there are before the next that may begin an escape.
func plainRun(s string, signs family) int {
	if len(signs) == 1 {
		if i := strings.IndexByte(s, signs[0]); i >= 0 {
			return i
		}
		return len(s)
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == '%' || c == '\\' || c == '&' {
			return i
		}
	}
	return len(s)
}

// originalOffset is where a place of the view is in the original. The end of a span
// that lies in an escaped character is the end of its escape.
func (p offsetMap) originalOffset(at int, end bool) int {
	i := sort.Search(len(p), func(i int) bool { return p[i].view > at }) - 1
	where := p[i].origin + at - p[i].view
	if i+1 < len(p) && where > p[i].origin && end && where > p[i+1].origin {
		return p[i+1].origin
	}
	return where
}

// readEscape reads the escape at i: the character and how many bytes it takes; one
// byte, as it is, where there is none.
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
	case rest[0] == '~' && len(rest) > 1 && i > 0 && byteClass[s[i-1]]&space == 0: // a pointer begins with /; "~10 %" is none
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

// readShortEscape reads one of JSON's escapes of two characters. Alone they are no
// reason to look at a text once more; beside others they are undone as well.
func readShortEscape(s string, i int) (c rune, n int) {
	if s[i] == '\\' && i+1 < len(s) {
		switch s[i+1] {
		case '"', '\\', '\'':
			return rune(s[i+1]), 2
		case 'n', 'r', 't':
			return ' ', 2
		}
	}
	return rune(s[i]), 1
}

// readEntity reads &#65; and &#x41;.
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

// hexNumber is the value of a text of hexadecimal digits, -1 if it is none.
func hexNumber(s string) (v rune) {
	for i := 0; i < len(s); i++ {
		d := hexDigit(s[i])
		if d < 0 {
			return -1
		}
		v = v<<4 | d
	}
	return v
}
