package redact

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

const (
	maxDecodings = 2  // encodings inside of each other that are looked through
	minBase64    = 24 // characters of base64 that are decoded
)

// findEncoded adds what stands in a text in another spelling: base64 of text,
// percent-encoding, and escapes of JSON and the like, depth of them inside of
// each other.
func findEncoded(s string, spans []Span, depth int, m *workBudget, look spanFinder) []Span {
	if len(s) >= minBase64 {
		spans = inBase64(s, spans, depth, m, look)
	}
	if from, signs := nextEscapes(s, depth, maxPointers); from >= 0 {
		spans = findEscaped(s, from, signs, spans, depth, m, look)
	}
	return spans
}

// spanFinder finds what stands in a text as it is.
type spanFinder func(s string, m *workBudget) []Span

// inBase64 looks at every run of minBase64 characters of the alphabet or more:
// one of them stands at a multiple of minBase64-1, so others need not be looked at.
func inBase64(s string, spans []Span, depth int, m *workBudget, look spanFinder) []Span {
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
		if m.left < 0 || len(spans) > 2*maxSpans {
			return spans
		}
		if holdsSecret(s[from:to], depth, m, look) {
			spans = append(spans, Span{from, to, EncodedData})
			continue
		}
		for part := from; part < to; { // of a path or of a JSON pointer
			end := to
			if slash := strings.IndexByte(s[part:to], '/'); slash >= 0 {
				end = part + slash
			}
			if end-part >= minBase64 && end-part < to-from && holdsSecret(s[part:end], depth, m, look) {
				spans = append(spans, Span{part, end, EncodedData})
			}
			part = end + 1
		}
	}
	return spans
}

// holdsSecret reports whether something is found in what base64 says.
func holdsSecret(v string, depth int, m *workBudget, look spanFinder) bool {
	m.charge(20)
	text, ok := decodeText(v)
	if !ok {
		return false
	}
	m.charge(7 * len(text))
	found := look(text, m)
	if depth > 1 && len(found) == 0 {
		found = findEncoded(text, nil, depth-1, m, look)
	}
	return len(found) > 0
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
	if head := decodeBase64(v[:first]); !isText(head) || !utf8.Valid(trimCutRune(head)) {
		return "", false
	}
	out := decodeBase64(v)
	return string(out), isText(out[:max(0, len(out)-2)]) && utf8.Valid(out)
}

// decodeBase64 decodes either alphabet; what is left of the last group is cut off.
func decodeBase64(v string) []byte {
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

// trimCutRune is a text without the character that its end may have cut.
func trimCutRune(b []byte) []byte {
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
