package view

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
)

// scanner walks over a text and proves that it is RFC 8785: the same bytes that a canonical writer
// would produce for its value. It knows only the common forms. A negative answer is not final;
// ParseRecord then decides. ADR 14 has what the scanner saves.
//
// The text must be UTF-8. Nothing is copied; the results are parts of the text.
type scanner struct {
	text []byte
	pos  int
}

// maxScanDepth bounds recursion; the scanner does not accept deeper texts.
const maxScanDepth = 80

func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// atEnd reports whether the whole text is consumed.
func (s *scanner) atEnd() bool { return s.pos == len(s.text) }

// scanValue consumes one JSON value and returns its text.
func (s *scanner) scanValue() (raw []byte, ok bool) {
	start := s.pos
	ok = s.value(0)
	return s.text[start:s.pos], ok
}

// matchLiteral consumes exactly these bytes.
func (s *scanner) matchLiteral(want string) bool {
	if len(s.text)-s.pos < len(want) || string(s.text[s.pos:s.pos+len(want)]) != want {
		return false
	}
	s.pos += len(want)
	return true
}

// value consumes one JSON value.
func (s *scanner) value(depth int) bool {
	if depth > maxScanDepth {
		return false
	}
	switch s.peek() {
	case '"':
		_, _, ok := s.scanString()
		return ok
	case '{':
		return s.object(depth+1, nil)
	case '[':
		return s.array(depth + 1)
	case 't':
		return s.matchLiteral("true")
	case 'f':
		return s.matchLiteral("false")
	case 'n':
		return s.matchLiteral("null")
	}
	_, ok := s.number()
	return ok
}

// object consumes an object with its keys in canonical order. member consumes the value of a
// key; a nil member accepts any value.
func (s *scanner) object(depth int, member func(key []byte) bool) bool {
	if !s.matchLiteral("{") {
		return false
	}
	if s.matchLiteral("}") {
		return true
	}
	var last []byte
	for first := true; ; first = false {
		key, plain, ok := s.scanString()
		if !ok || !plain || !byteOrdered(key) || !first && bytes.Compare(last, key) >= 0 || !s.matchLiteral(":") {
			return false
		}
		if member != nil {
			ok = member(key)
		} else {
			ok = s.value(depth)
		}
		if !ok {
			return false
		}
		if s.matchLiteral("}") {
			return true
		}
		if !s.matchLiteral(",") {
			return false
		}
		last = key
	}
}

// byteOrdered reports whether a key's bytes sort like its UTF-16 units. They may not if the
// key has a rune above U+DFFF, and the UTF-8 of such a rune begins with 0xEE or more.
func byteOrdered(key []byte) bool {
	for _, c := range key {
		if c >= 0xEE {
			return false
		}
	}
	return true
}

// scanObject consumes an object; member consumes the value of a key.
func (s *scanner) scanObject(member func(key []byte) bool) bool { return s.object(1, member) }

func (s *scanner) array(depth int) bool {
	return s.scanElements(func() bool { return s.value(depth) })
}

// scanElements consumes an array; take consumes one element.
func (s *scanner) scanElements(take func() bool) bool {
	if !s.matchLiteral("[") {
		return false
	}
	if s.matchLiteral("]") {
		return true
	}
	for take() {
		if s.matchLiteral("]") {
			return true
		}
		if !s.matchLiteral(",") {
			return false
		}
	}
	return false
}

// scanString consumes a string and returns the bytes between its quotes. If plain is true,
// there are no escapes and the bytes are the value.
func (s *scanner) scanString() (inner []byte, plain, ok bool) {
	if s.peek() != '"' {
		return nil, false, false
	}
	start, i := s.pos+1, s.pos+1
	plain = true
	for {
		i += plainPrefixLen(s.text[i:])
		if i >= len(s.text) {
			return nil, false, false
		}
		switch s.text[i] {
		case '"':
			s.pos = i + 1
			return s.text[start:i], plain, true
		case '\\':
			n := escapeLen(s.text[i:])
			if n == 0 {
				return nil, false, false
			}
			plain = false
			i += n
		default: // a control character
			return nil, false, false
		}
	}
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// plainPrefixLen counts the bytes before the first quote, backslash or control character. It
// reads eight bytes at a time: each term sets the highest bit of such a byte, and may set
// it in other bytes only after the first one.
func plainPrefixLen(b []byte) int {
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(lowBits*'"'), x^(lowBits*'\\')
		if m := ((quote-lowBits)&^quote | (slash-lowBits)&^slash | (x-lowBits*' ')&^x) & highBits; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// escapeLen returns the length of a canonical escape at the beginning of b, or 0 if there is
// none. Canonical are the short escapes where they exist, and \u00xx in lower case for the
// other control characters.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 || b[2] != '0' || b[3] != '0' || b[4] != '0' && b[4] != '1' || !isLowerHex(b[5]) {
			return 0
		}
		if b[4] == '0' && (b[5] == '8' || b[5] == '9' || b[5] == 'a' || b[5] == 'c' || b[5] == 'd') {
			return 0 // has a short form
		}
		return 6
	}
	return 0
}

// number consumes a number: an integer of at most 15 digits, or a fraction that is the
// shortest decimal and needs no exponent.
func (s *scanner) number() (lit []byte, ok bool) {
	start := s.pos
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ',', '}', ']':
			lit = s.text[start:s.pos]
			return lit, plainInteger(lit) || plainFraction(lit)
		}
		s.pos++
	}
	return nil, false
}

const maxPlainDigits = 15

// plainInteger reports whether a literal is the canonical spelling of an integer of at most
// 15 digits, which every reader decodes to the same value.
func plainInteger(lit []byte) bool {
	digits := lit
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
		if len(digits) > 0 && digits[0] == '0' {
			return false
		}
	}
	if len(digits) == 0 || len(digits) > maxPlainDigits || digits[0] == '0' && len(digits) > 1 {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// plainFraction reports whether a literal is the shortest decimal of its float64, in the
// range that ECMAScript writes without an exponent.
func plainFraction(lit []byte) bool {
	const longest = 25
	if len(lit) > longest || bytes.IndexByte(lit, '.') < 0 {
		return false
	}
	f, err := strconv.ParseFloat(string(lit), 64)
	if err != nil || f > -1e-6 && f < 1e-6 || f >= 1e21 || f <= -1e21 {
		return false
	}
	var room [2 * longest]byte
	return bytes.Equal(strconv.AppendFloat(room[:0], f, 'f', -1, 64), lit)
}

// integer consumes a non-negative integer of at most 15 digits.
func (s *scanner) integer() (n uint64, ok bool) {
	start := s.pos
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		n = n*10 + uint64(s.text[s.pos]-'0')
		s.pos++
	}
	return n, plainInteger(s.text[start:s.pos])
}

// scanMember consumes a member that is a string without escapes.
func (s *scanner) scanMember(name string, into *[]byte) bool {
	if !s.matchLiteral(name) {
		return false
	}
	inner, plain, ok := s.scanString()
	*into = inner
	return ok && plain
}

// scanOptionalMember consumes a member that is omitted when it is empty.
func (s *scanner) scanOptionalMember(name string, into *[]byte) bool {
	if s.pos+len(name) > len(s.text) || string(s.text[s.pos:s.pos+len(name)]) != name {
		return true
	}
	var value []byte
	ok := s.scanMember(name, &value) && len(value) > 0
	if into != nil {
		*into = value
	}
	return ok
}

func (s *scanner) scanCount(into *uint64) (ok bool) {
	*into, ok = s.integer()
	return ok
}

func isLowerHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }
