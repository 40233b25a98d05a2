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
	seen := 0 // end of what was read
	var lines base64Lines
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
		found := false
		text, encoded := beginsText(s[from:to], m)
		if text && from >= lines.next {
			if lines = joinLines(s, from, to, from >= lines.end); lines.end > to {
				if found, lines.areText = holdsSecret(lines.text, depth, m, look); found {
					seen, to = lines.end, lines.end
				}
			}
		}
		if text && !found && (encoded || !lines.areText) {
			found, text = holdsSecret(s[from:to], depth, m, look)
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
		if end-part >= minBase64 && end-part < to-from {
			if text, _ := beginsText(s[part:end], m); text {
				if found, _ := holdsSecret(s[part:end], depth, m, look); found {
					spans = append(spans, Span{part, end, EncodedData})
				}
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

// base64Lines is base64 in lines of one width. The last may have another one, and the first, because words can stand before it.
type base64Lines struct {
	text    string // of all lines
	areText bool   // it is base64 of text, and nothing was found in it
	next    int    // where other lines may begin: at the first change of the width
	end     int
}

// joinLines reads the run s[from:to] and the lines of base64 that follow it: nothing else is in them. With anyFirst the run may
// have another width than they. Only few calls read the same line, so the work is in proportion to the text.
func joinLines(s string, from, to int, anyFirst bool) base64Lines {
	width, next := to-from, 0
	var b strings.Builder
	b.WriteString(s[from:to])
	for start := nextLine(s, to); start >= 0 && (to-from == width || anyFirst); start = nextLine(s, to) {
		stop := base64End(s, start)
		if !endsLine(s[stop:]) {
			break
		}
		if next == 0 && stop-start != to-from {
			next = start
		}
		if anyFirst {
			width, anyFirst = stop-start, false
		}
		b.WriteString(s[start:stop])
		from, to = start, stop
	}
	if next == 0 {
		next = to
	}
	return base64Lines{text: b.String(), next: next, end: to}
}

// nextLine returns where the line after end begins, without blanks and signs of quotations and comments, or -1. Line breaks
// may be escapes of JSON, also nested.
func nextLine(s string, end int) int {
	broken := false
	for at := end; at < len(s) && at < end+maxBlanks; at++ {
		switch c := s[at]; {
		case c == '\n' || c == '\r' || s[at-1] == '\\' && (c == 'n' || c == 'r'):
			broken = true
		case strings.IndexByte(" \t\\>#*|", c) >= 0 || s[at-1] == '\\' && c == 't':
		case broken && base64Digit[c] >= 0:
			return at
		default:
			return -1
		}
	}
	return -1
}

// endsLine reports whether a line ends where s begins, or nothing follows in it but blanks and the end of a value.
func endsLine(s string) bool {
	s = strings.TrimLeft(s, " \t")
	return s == "" || byteClass[s[0]]&quoteChar != 0 || strings.IndexByte("=\n\r\\<", s[0]) >= 0
}

// holdsSecret reports whether anything is found in the decoded base64, and whether it is base64 of text.
func holdsSecret(v string, depth int, m *workBudget, look spanFinder) (found, isText bool) {
	m.charge(len(v))
	text, ok := decodeText(v)
	if !ok {
		return false, false
	}
	m.charge(2 * len(text))
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

// beginsText reports whether base64 of minBase64 characters or more may be base64 of text, and whether that text may be
// encoded itself. Most input that is not base64 of text fails here.
func beginsText(v string, m *workBudget) (text, encoded bool) {
	m.charge(20)
	head := decodeBase64(v[:minBase64])
	if !isText(head) {
		wide := orderOfUTF16(head) != nil
		return wide, wide
	}
	return true, base64End(string(head), 0) == len(head)
}

// decodeText decodes base64 if the result is text.
func decodeText(v string) (string, bool) {
	out := decodeBase64(v)
	if order := orderOfUTF16(out[:min(len(out), minBase64/4*3)]); order != nil {
		out = fromUTF16(out, order)
	}
	return string(out), isText(out)
}

func fromUTF16(b []byte, order binary.ByteOrder) []byte {
	text := make([]byte, 0, len(b)/2)
	for ; len(b) > 1; b = b[2:] {
		c := rune(order.Uint16(b))
		if utf16.IsSurrogate(c) && len(b) > 3 {
			if c = utf16.DecodeRune(c, rune(order.Uint16(b[2:]))); c != utf8.RuneError {
				b = b[2:]
			}
		}
		text = utf8.AppendRune(text, c)
	}
	return text
}

// orderOfUTF16 returns the order of the bytes of UTF-16 by its mark. Without one it is little-endian, as PowerShell encodes
// it, and its first characters are of few blocks, unlike those of other data.
func orderOfUTF16(head []byte) binary.ByteOrder {
	switch {
	case head[0] == 0xff && head[1] == 0xfe:
		return binary.LittleEndian
	case head[0] == 0xfe && head[1] == 0xff:
		return binary.BigEndian
	case isText(head):
		return nil
	}
	const fewBlocks = 4
	var blocks [256]bool
	count := 0
	for i := 0; i+1 < len(head); i += 2 {
		if block := &blocks[head[i+1]]; !*block {
			*block = true
			count++
		}
	}
	if count > fewBlocks {
		return nil
	}
	return binary.LittleEndian
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
