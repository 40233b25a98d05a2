package strictjson

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxFlat is the longest document that a Flat reads, in bytes. It bounds what one
// text that somebody keeps of it holds on to.
const MaxFlat = 8 << 10

// Bounds of what a Flat reads otherwise.
const (
	maxFlatDepth   = 8
	maxFlatMembers = 64 // of one object
)

// Flat reads small documents of the usual kind without making a tree of each: the
// values of one lie in a list that is used again for the next. What it reads,
// Parse reads the same (FuzzFlat); that it does not read a document says nothing
// about it. The zero Flat is ready; it belongs to one goroutine.
type Flat struct {
	text    string
	nodes   []node
	scratch []byte
}

// node is a value; those below it follow it.
type node struct {
	key, text  string // text of a string, or a number's literal
	kind       byte
	escaped    bool     // the string has escapes
	nameHash   nameHash // of the key
	keyPrefix  uint64   // the key's first eight bytes, as a number
	size       int32    // how many nodes it is, itself included
	members    int32    // of an object, or items of an array
	memberMask uint64   // of the members of an object
}

// Read reads a document, which must be an object.
func (f *Flat) Read(raw []byte, lim Limits) (Value, bool) {
	if len(raw) > MaxFlat || lim.MaxBytes > 0 && len(raw) > lim.MaxBytes || lim.MaxDepth > 0 && lim.MaxDepth < maxFlatDepth || !utf8.Valid(raw) {
		return Value{}, false
	}
	clear(f.nodes) // the texts of the last document may go
	f.text, f.nodes = string(raw), f.nodes[:0]
	at := f.skipSpace(0)
	if at == len(f.text) || f.text[at] != '{' {
		return Value{}, false
	}
	end, ok := f.parseValue(node{}, at, 1)
	if !ok || f.skipSpace(end) != len(f.text) {
		return Value{}, false
	}
	return Value{f.nodes}, true
}

func (f *Flat) skipSpace(at int) int {
	for at < len(f.text) && (f.text[at] == ' ' || f.text[at] == '\n' || f.text[at] == '\r' || f.text[at] == '\t') {
		at++
	}
	return at
}

// parseValue reads the value that begins at a place and gives the place behind it. Of the
// node its key is known.
func (f *Flat) parseValue(n node, at, depth int) (end int, ok bool) {
	if at >= len(f.text) {
		return 0, false
	}
	n.kind, n.size = f.text[at], 1
	switch n.kind {
	case '{', '[':
		if depth > maxFlatDepth {
			return 0, false
		}
		place := len(f.nodes)
		f.nodes = append(f.nodes, n)
		if n.kind == '{' {
			end, ok = f.parseObject(at+1, depth, place)
		} else {
			end, ok = f.parseArray(at+1, depth, place)
		}
		f.nodes[place].size = int32(len(f.nodes) - place)
		return end, ok
	case '"':
		n.text, end, ok = f.parseString(at + 1)
		n.escaped = end-at != len(n.text)+2
	case 't':
		end, ok = f.matchLiteral(at, "true")
	case 'f':
		end, ok = f.matchLiteral(at, "false")
	case 'n':
		end, ok = f.matchLiteral(at, "null")
	default:
		n.kind = KindNumber
		n.text, end, ok = f.parseNumber(at)
	}
	f.nodes = append(f.nodes, n)
	return end, ok
}

func (f *Flat) matchLiteral(at int, word string) (int, bool) {
	return at + len(word), strings.HasPrefix(f.text[at:], word)
}

func (f *Flat) parseArray(at, depth, place int) (end int, ok bool) {
	if at = f.skipSpace(at); at < len(f.text) && f.text[at] == ']' {
		return at + 1, true
	}
	for {
		if at, ok = f.parseValue(node{}, f.skipSpace(at), depth+1); !ok {
			return 0, false
		}
		f.nodes[place].members++
		at = f.skipSpace(at)
		switch {
		case at >= len(f.text):
			return 0, false
		case f.text[at] == ']':
			return at + 1, true
		case f.text[at] != ',':
			return 0, false
		}
		at++
	}
}

func (f *Flat) parseObject(at, depth, place int) (end int, ok bool) {
	if at = f.skipSpace(at); at < len(f.text) && f.text[at] == '}' {
		return at + 1, true
	}
	for {
		var n node
		if n, at, ok = f.parseKey(f.skipSpace(at)); !ok || f.nodes[place].members == maxFlatMembers {
			return 0, false
		}
		mark := n.nameHash.maskBit()
		if f.nodes[place].memberMask&mark != 0 && f.hasKey(place, n.key) {
			return 0, false
		}
		f.nodes[place].memberMask |= mark
		if at = f.skipSpace(at); at >= len(f.text) || f.text[at] != ':' {
			return 0, false
		}
		if at, ok = f.parseValue(n, f.skipSpace(at+1), depth+1); !ok {
			return 0, false
		}
		f.nodes[place].members++
		at = f.skipSpace(at)
		switch {
		case at >= len(f.text):
			return 0, false
		case f.text[at] == '}':
			return at + 1, true
		case f.text[at] != ',':
			return 0, false
		}
		at++
	}
}

// parseKey reads the name of a member: ASCII without escapes.
func (f *Flat) parseKey(at int) (n node, end int, ok bool) {
	if at >= len(f.text) || f.text[at] != '"' {
		return n, 0, false
	}
	rest := f.text[at+1:]
	length := plainBytes(rest)
	if length == len(rest) || rest[length] != '"' {
		return n, 0, false
	}
	n.key = rest[:length]
	n.nameHash, n.keyPrefix = nameHashOf(n.key), keyPrefixOf(n.key)
	return n, at + 1 + length + 1, true
}

// keyPrefixOf are the first eight bytes of a name as a number, by which names are ordered
// as far as it goes.
func keyPrefixOf(name string) uint64 {
	var room [8]byte
	copy(room[:], name)
	return binary.BigEndian.Uint64(room[:])
}

// hasKey tells whether the object that begins at a place has a key already, in
// whichever case.
func (f *Flat) hasKey(place int, key string) bool {
	for i := place + 1; i < len(f.nodes); i += int(f.nodes[i].size) {
		if k := f.nodes[i].key; len(k) == len(key) && strings.EqualFold(k, key) {
			return true
		}
	}
	return false
}

// parseString reads a string from behind its quotation mark.
func (f *Flat) parseString(at int) (text string, end int, ok bool) {
	for i := at + plainBytes(f.text[at:]); i < len(f.text); i++ {
		switch c := f.text[i]; {
		case c == '"':
			return f.text[at:i], i + 1, true
		case c < ' ':
			return "", 0, false
		case c == '\\':
			return f.parseEscaped(at, i)
		}
	}
	return "", 0, false
}

// parseEscaped reads a string whose first escape is known. Halves of surrogate pairs
// it leaves to others.
func (f *Flat) parseEscaped(at, i int) (text string, end int, ok bool) {
	b := append(f.scratch[:0], f.text[at:i]...)
	defer func() { f.scratch = b }()
	for i < len(f.text) {
		c := f.text[i]
		i++
		switch {
		case c == '"':
			return string(b), i, true
		case c < ' ':
			return "", 0, false
		case c != '\\':
			b = append(b, c)
			continue
		case i >= len(f.text):
			return "", 0, false
		}
		c = f.text[i]
		i++
		if c == 'u' {
			if i+4 > len(f.text) {
				return "", 0, false
			}
			r, err := strconv.ParseUint(f.text[i:i+4], 16, 16)
			if err != nil || !utf8.ValidRune(rune(r)) {
				return "", 0, false
			}
			b, i = utf8.AppendRune(b, rune(r)), i+4
			continue
		}
		short := strings.IndexByte(`"\/bfnrt`, c)
		if short < 0 {
			return "", 0, false
		}
		b = append(b, "\"\\/\b\f\n\r\t"[short])
	}
	return "", 0, false
}

// parseNumber reads an integer of at most 15 digits, or a decimal that a float64 holds
// faithfully.
func (f *Flat) parseNumber(at int) (lit string, end int, ok bool) {
	end = at
	point := -1
	for end < len(f.text) {
		c := f.text[end]
		if c == '.' && point < 0 {
			point = end - at
		} else if (c < '0' || c > '9') && (c != '-' || end != at) {
			break
		}
		end++
	}
	lit = f.text[at:end]
	if point < 0 {
		return lit, end, plainInteger(lit)
	}
	whole := strings.TrimPrefix(lit[:point], "-")
	if whole == "" || point+1 == len(lit) || whole != "0" && whole[0] == '0' {
		return "", 0, false
	}
	code, _ := checkNumber(lit)
	return lit, end, code == ""
}
