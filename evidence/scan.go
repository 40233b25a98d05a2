package evidence

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
)

// canonicalScanner walks over a text and proves on the way that it is RFC 8785: the same
// bytes that a canonical writer would give for what the text says. It knows the
// common forms only. Where it says no, the text may still be canonical; who
// wants to know asks the long way (ParseRecord), which decides.
//
// The text must be UTF-8. Nothing is copied; what methods return are parts of
// the text.
type canonicalScanner struct {
	text        []byte
	pos         int
	isTextClean func(text []byte) bool // asked of texts that shaped takes; nil: they are taken as they are
}

// maxScanDepth bounds recursion; deeper texts go the long way.
const maxScanDepth = 80

func (s *canonicalScanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// literal takes exactly these bytes.
func (s *canonicalScanner) literal(want string) bool {
	if len(s.text)-s.pos < len(want) || string(s.text[s.pos:s.pos+len(want)]) != want {
		return false
	}
	s.pos += len(want)
	return true
}

// value takes one JSON value.
func (s *canonicalScanner) value(depth int) bool {
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
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	_, ok := s.number()
	return ok
}

// object takes an object, the keys of which must be in their order. member, if
// there is one, takes the value of a key; without, any value will do.
func (s *canonicalScanner) object(depth int, member func(key []byte) bool) bool {
	if !s.literal("{") {
		return false
	}
	if s.literal("}") {
		return true
	}
	var last []byte
	for first := true; ; first = false {
		key, plain, ok := s.scanString()
		if !ok || !plain || !byteOrdered(key) || !first && bytes.Compare(last, key) >= 0 || !s.literal(":") {
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
		if s.literal("}") {
			return true
		}
		if !s.literal(",") {
			return false
		}
		last = key
	}
}

// byteOrdered reports whether a key's bytes sort as its UTF-16 units do: they
// may not only where a rune above U+DFFF is in it, the UTF-8 of which begins
// with 0xEE or more.
func byteOrdered(key []byte) bool {
	for _, c := range key {
		if c >= 0xEE {
			return false
		}
	}
	return true
}

func (s *canonicalScanner) array(depth int) bool {
	return s.scanElements(func() bool { return s.value(depth) })
}

// scanElements takes an array, the elements of which take takes.
func (s *canonicalScanner) scanElements(take func() bool) bool {
	if !s.literal("[") {
		return false
	}
	if s.literal("]") {
		return true
	}
	for take() {
		if s.literal("]") {
			return true
		}
		if !s.literal(",") {
			return false
		}
	}
	return false
}

// scanString takes a string and gives what is between its quotes. It is plain when
// nothing in it is escaped; then that is the value.
func (s *canonicalScanner) scanString() (inner []byte, plain, ok bool) {
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

// plainPrefixLen counts the bytes before the first quote, backslash or control
// character, eight at a time: each term marks the highest bit of such a byte,
// and of others only above the first.
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

// escapeLen gives the length of an escape in its canonical spelling, 0 if b does
// not begin with one: the short ones where they exist, \u00xx in lower case for
// the other control characters, and nothing else.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 || b[2] != '0' || b[3] != '0' || b[4] != '0' && b[4] != '1' || hexValue[b[5]] > 15 {
			return 0
		}
		if b[4] == '0' && (b[5] == '8' || b[5] == '9' || b[5] == 'a' || b[5] == 'c' || b[5] == 'd') {
			return 0 // has a short form
		}
		return 6
	}
	return 0
}

// number takes a number: an integer of at most 15 digits, or a fraction that is
// written as the shortest decimal and needs no exponent.
func (s *canonicalScanner) number() (lit []byte, ok bool) {
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

// plainInteger reports whether a literal is an integer that every reader takes
// for the same value, in its one spelling.
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

// plainFraction reports whether a literal is the shortest decimal of the float64
// next to it, in the range that ECMAScript writes without an exponent.
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

// integer takes a non-negative integer of at most 15 digits.
func (s *canonicalScanner) integer() (n uint64, ok bool) {
	start := s.pos
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		n = n*10 + uint64(s.text[s.pos]-'0')
		s.pos++
	}
	return n, plainInteger(s.text[start:s.pos])
}
