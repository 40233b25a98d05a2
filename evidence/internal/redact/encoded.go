package redact

import (
	"encoding/base64"
	"sort"
	"strings"
	"unicode/utf8"
)

const (
	maxDecodings = 2  // encodings inside of each other that are looked through
	minBase64    = 24 // characters of base64 that are decoded
)

// encoded adds what stands in a text in another spelling: base64 of text,
// percent-encoding, and escapes of JSON and the like, depth of them inside of
// each other.
func encoded(s string, spans []Span, depth int, m *meter, look looker) []Span {
	if len(s) >= minBase64 {
		spans = inBase64(s, spans, depth, m, look)
	}
	if from := escapes(s); from >= 0 {
		spans = unescaped(s, from, spans, depth, m, look)
	}
	return spans
}

// looker finds what stands in a text as it is.
type looker func(s string, m *meter) []Span

// inBase64 looks at every run of minBase64 characters of the alphabet or more:
// one of them stands at a multiple of minBase64-1, so others need not be looked at.
func inBase64(s string, spans []Span, depth int, m *meter, look looker) []Span {
	seen := 0
	for probe := minBase64 - 1; probe < len(s); probe += minBase64 - 1 {
		if probe < seen || base64Digit[s[probe]] < 0 {
			continue
		}
		from := probe
		for from > seen && base64Digit[s[from-1]] >= 0 {
			from--
		}
		to := probe + 1
		for to < len(s) && base64Digit[s[to]] >= 0 {
			to++
		}
		if seen = to; to-from < minBase64 {
			continue
		}
		if m.charge(20); m.left < 0 || len(spans) > 2*maxSpans {
			return spans
		}
		if text, ok := decodeText(s[from:to]); ok {
			m.charge(5 * len(text))
			found := look(text, m)
			if depth > 1 && len(found) == 0 {
				found = encoded(text, nil, depth-1, m, look)
			}
			if len(found) > 0 {
				spans = append(spans, Span{from, to, EncodedData})
			}
		}
	}
	return spans
}

// base64Digit is the value of a character in either alphabet, -1 for none.
var base64Digit = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = int8(i)
	}
	t['-'], t['_'] = 62, 63
	return t
}()

// decodeText decodes base64 if that gives text. Most of what is not base64 of
// text shows it within a few characters.
func decodeText(v string) (string, bool) {
	const first = minBase64 / 4 * 4
	if head := decode64(v[:first]); !isText(head) || !utf8.Valid(whole(head)) {
		return "", false
	}
	out := decode64(v)
	return string(out), isText(out[:max(0, len(out)-2)]) && utf8.Valid(out)
}

// decode64 decodes either alphabet; what is left of the last group is cut off.
func decode64(v string) []byte {
	if len(v)%4 == 1 {
		v = v[:len(v)-1]
	}
	out := make([]byte, len(v)/4*3+2)
	for _, e := range [...]*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if n, err := e.Decode(out, []byte(v)); err == nil {
			return out[:n]
		}
	}
	out = out[:0] // both alphabets are in it
	i := 0
	for ; i+4 <= len(v); i += 4 {
		w := uint32(base64Digit[v[i]])<<18 | uint32(base64Digit[v[i+1]])<<12 | uint32(base64Digit[v[i+2]])<<6 | uint32(base64Digit[v[i+3]])
		out = append(out, byte(w>>16), byte(w>>8), byte(w))
	}
	switch len(v) - i {
	case 2:
		out = append(out, byte(base64Digit[v[i]]<<2|base64Digit[v[i+1]]>>4))
	case 3:
		w := uint32(base64Digit[v[i]])<<12 | uint32(base64Digit[v[i+1]])<<6 | uint32(base64Digit[v[i+2]])
		out = append(out, byte(w>>10), byte(w>>2))
	}
	return out
}

// whole is a text without the character that its end may have cut.
func whole(b []byte) []byte {
	for n := len(b); n > 0 && len(b)-n < utf8.UTFMax; n-- {
		if b[n-1] < 0x80 {
			return b[:n]
		}
		if utf8.RuneStart(b[n-1]) {
			if utf8.FullRune(b[n-1:]) {
				return b
			}
			return b[:n-1]
		}
	}
	return b
}

// isText reports whether no control character but white space is in b.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return true
}

// escapes is where the first escape of a text stands: %41, \u0041, \x41, &#65;.
// -1 when there is none.
func escapes(s string) int {
	first := -1
	for _, sign := range [...]byte{'%', '\\', '&'} {
		for i := 0; i < len(s); i++ {
			next := strings.IndexByte(s[i:], sign)
			if next < 0 {
				break
			}
			if i += next; first >= 0 && i >= first {
				break
			}
			if _, n := unescape(s, i); n > 1 {
				first = i
				break
			}
		}
	}
	return first
}

// unescaped looks at a text with all its escapes undone, and says where in the
// original it found something.
func unescaped(s string, first int, spans []Span, depth int, m *meter, look looker) []Span {
	text, levels := s, []pieces(nil)
	for ; depth > 0 && first >= 0; depth-- {
		var p pieces
		text, p = undo(text, first, m)
		levels = append(levels, p)
		first = escapes(text)
	}
	m.charge(len(text))
	found := look(text, m)
	if len(text) >= minBase64 {
		found = inBase64(text, found, 1, m, look)
	}
	for _, sp := range found {
		for i := len(levels) - 1; i >= 0; i-- {
			sp.Start, sp.End = levels[i].original(sp.Start, false), levels[i].original(sp.End, true)
		}
		spans = append(spans, sp)
	}
	return spans
}

// pieces say where the parts of a text whose escapes were undone were before:
// from view on, it is as the original from origin on.
type pieces []struct{ view, origin int }

// undo undoes the escapes of a text, from a little before the first one on: what
// an escape can be part of begins near it.
func undo(s string, first int, m *meter) (string, pieces) {
	m.charge(2 * len(s))
	at := max(0, first-2*maxIdent)
	view := make([]byte, 0, len(s)-at)
	p := pieces{{0, at}}
	for i := first; i < len(s) && m.left >= 0; i += plainRun(s[i:]) {
		m.charge(8)
		c, n := unescape(s, i)
		if n == 1 {
			i++
			continue
		}
		view = append(view, s[at:i]...)
		if s[i] == '%' || s[i+1] == 'x' { // a byte, not a character
			view = append(view, byte(c))
		} else {
			view = utf8.AppendRune(view, c)
		}
		i += n
		at = i
		p = append(p, struct{ view, origin int }{len(view), at})
	}
	view = append(view, s[at:]...)
	if s[first] == '%' { // a query
		for i, c := range view {
			if c == '+' {
				view[i] = ' '
			}
		}
	}
	return string(view), p
}

// plainRun is how many bytes there are before the next that may begin an escape.
func plainRun(s string) int {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == '%' || c == '\\' || c == '&' {
			return i
		}
	}
	return len(s)
}

// original is where a place of the view is in the original. The end of a span
// that lies in an escaped character is the end of its escape.
func (p pieces) original(at int, end bool) int {
	i := sort.Search(len(p), func(i int) bool { return p[i].view > at }) - 1
	where := p[i].origin + at - p[i].view
	if i+1 < len(p) && where > p[i].origin && end && where > p[i+1].origin {
		return p[i+1].origin
	}
	return where
}

// unescape reads the escape at i: the character and how many bytes it takes; one
// byte, as it is, where there is none.
func unescape(s string, i int) (c rune, n int) {
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
	case rest[0] == '&' && len(rest) > 3 && rest[1] == '#':
		return entity(rest)
	}
	return rune(s[i]), 1
}

// entity reads &#65; and &#x41;.
func entity(s string) (c rune, n int) {
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
