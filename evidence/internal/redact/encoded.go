package redact

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxDecodings = 2  // depth of nested encodings that are decoded
	minBase64    = 24 // fewest characters of base64 that are decoded
)

// findEncoded appends what is found in the decoded parts of a text: base64 of text,
// percent-encoding, and escapes of JSON and the like, nested up to depth.
func findEncoded(s string, spans []Span, depth int, m *workBudget, look spanFinder) []Span {
	if len(s) >= minBase64 {
		spans = inBase64(s, spans, depth, m, look)
	}
	if from, signs := nextEscapes(s, depth, maxPointers); from >= 0 {
		spans = findEscaped(s, from, signs, spans, depth, m, look)
	}
	return spans
}

// spanFinder finds spans in a text without decoding it.
type spanFinder func(s string, m *workBudget) []Span

// inBase64 checks every run of at least minBase64 characters of the alphabet, with the lines that continue it. Each such run
// covers a multiple of minBase64-1, so it only probes there.
func inBase64(s string, spans []Span, depth int, m *workBudget, look spanFinder) []Span {
	seen, joined := 0, 0 // ends of what was read, and of what was read as lines of one value
	for probe := minBase64 - 1; probe < len(s); probe += minBase64 - 1 {
		if probe < seen || base64Digit[s[probe]] < 0 {
			continue
		}
		from := probe
		for from > seen && base64Digit[s[from-1]] >= 0 {
			from--
		}
		if from > 0 && s[from-1] == '\\' { // the n of an escaped line break
			from++
		}
		to := base64End(s, probe+1)
		if seen = to; to-from < minBase64 {
			continue
		}
		if m.left < 0 || len(spans) > 2*maxSpans {
			return spans
		}
		found, text := false, false
		if beginsText(s[from:to], m) {
			if from >= joined {
				if lines, end := joinLines(s, from, to); end > to {
					if found, text = holdsSecret(lines, depth, m, look); text {
						seen, to = end, end
					}
					joined = end
				}
			}
			if !text {
				found, _ = holdsSecret(s[from:to], depth, m, look)
			}
		}
		if found {
			spans = append(spans, Span{from, to, EncodedData})
		} else if !text {
			spans = inBase64Path(s, from, to, spans, depth, m, look)
		}
	}
	return spans
}

// inBase64Path checks the parts of a path or a JSON pointer.
func inBase64Path(s string, from, to int, spans []Span, depth int, m *workBudget, look spanFinder) []Span {
	for part := from; part < to; {
		end := to
		if slash := strings.IndexByte(s[part:to], '/'); slash >= 0 {
			end = part + slash
		}
		if end-part >= minBase64 && end-part < to-from && beginsText(s[part:end], m) {
			if found, _ := holdsSecret(s[part:end], depth, m, look); found {
				spans = append(spans, Span{part, end, EncodedData})
			}
		}
		part = end + 1
	}
	return spans
}

func base64End(s string, at int) int {
	for at < len(s) && base64Digit[s[at]] >= 0 {
		at++
	}
	return at
}

// lineBreaks are the ends of lines, also as escapes of JSON.
var lineBreaks = [...]string{"\n", "\r\n", `\n`, `\r\n`}

// joinLines appends to the run s[from:to] the lines of base64 that follow it, and returns where they end. Prose that
// follows does not belong to them: nothing but base64 is in their lines. Nor does what follows a line that ends within a
// group of four characters: another value begins there.
func joinLines(s string, from, to int) (joined string, end int) {
	var b strings.Builder
	for end = to; max(b.Len(), to-from)%4 == 0; {
		next := end
		for _, sign := range lineBreaks {
			if strings.HasPrefix(s[end:], sign) {
				next = end + len(sign)
			}
		}
		if next == end {
			break
		}
		for limit := next + maxBlanks; next < len(s) && next < limit && (s[next] == ' ' || s[next] == '\t'); {
			next++
		}
		stop := base64End(s, next)
		if stop == next || stop < len(s) && byteClass[s[stop]]&quoteChar == 0 && strings.IndexByte("=\n\r\\<", s[stop]) < 0 {
			break
		}
		if b.Len() == 0 {
			b.WriteString(s[from:to])
		}
		b.WriteString(s[next:stop])
		end = stop
	}
	return b.String(), end
}

// holdsSecret reports whether anything is found in the decoded base64, and whether it is base64 of text.
func holdsSecret(v string, depth int, m *workBudget, look spanFinder) (found, isText bool) {
	text, ok := decodeText(v)
	if !ok {
		return false, false
	}
	m.charge(7 * len(text))
	spans := look(text, m)
	if depth > 1 && len(spans) == 0 {
		spans = findEncoded(text, nil, depth-1, m, look)
	}
	return len(spans) > 0, true
}

// base64Digit is the value of a character in either alphabet, or -1.
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

// beginsText reports whether base64 of minBase64 characters or more may be base64 of text. Most input that is not fails
// here.
func beginsText(v string, m *workBudget) bool {
	m.charge(20)
	head := decodeBase64(v[:minBase64])
	return isText(head) || isUTF16(head)
}

// decodeText decodes base64 if the result is text.
func decodeText(v string) (string, bool) {
	out := decodeBase64(v)
	if isUTF16(out[:min(len(out), minBase64/4*3)]) {
		units := make([]uint16, len(out)/2)
		for i := range units {
			units[i] = binary.LittleEndian.Uint16(out[2*i:])
		}
		out = []byte(string(utf16.Decode(units)))
	}
	return string(out), isText(out)
}

// isUTF16 reports whether b is text in UTF-16, little-endian, of ASCII or Latin-1, as PowerShell encodes it.
func isUTF16(b []byte) bool {
	if b[0] == 0xff && b[1] == 0xfe { // byte order mark
		b = b[2:]
	}
	for i := 0; i+1 < len(b); i += 2 {
		if b[i] == 0 || b[i+1] != 0 {
			return false
		}
	}
	return true
}

// decodeBase64 decodes either alphabet; it drops an incomplete last group.
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
	out = out[:0] // it mixes both alphabets
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

// trimCutRune removes an incomplete character from the end of b.
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

// isText reports whether b is text: UTF-8, or nearly ASCII (Latin-1), and nearly without control characters besides white
// space.
func isText(b []byte) bool {
	controls, high := 0, 0
	for _, c := range b {
		switch {
		case c >= 0x80:
			high++
		case c < ' ' && c != '\n' && c != '\t' && c != '\r', c == 0x7f:
			controls++
		}
	}
	return 8*controls <= len(b) && (8*high <= len(b) || utf8.Valid(trimCutRune(b)))
}
