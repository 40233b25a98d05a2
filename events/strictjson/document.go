package strictjson

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/casefold"
)

// Bounds of what a Document keeps and does.
const (
	// maxSharedText is the longest document, in bytes, of which all texts share one copy. It
	// bounds the memory that one kept text pins.
	maxSharedText = 8 << 10
	// maxKeptNodes is the largest list of values that the next document uses again.
	maxKeptNodes = 4 << 10
	// maxScannedMembers is the largest object with keys that are compared one by one.
	maxScannedMembers = 32
	// maxNesting bounds the recursion if Limits do not.
	maxNesting = 10_000
)

// Document is a parsed document: the list of its values in the order of the text. Each Parse
// uses the list of the last document again. The zero Document is ready; it belongs to one
// goroutine.
type Document struct {
	text    string
	shared  bool // values refer to text
	nodes   []node
	scratch []byte
	lim     Limits

	defect *Error
	// defectPath holds the keys and indexes that lead to the defect, the innermost first.
	defectPath []string
}

// node is a value; its children follow it.
type node struct {
	key, text  string // text of a string, or a number's literal
	kind       byte
	escaped    bool // the string has escapes
	keyForm    keyForm
	shared     bool     // key and text may be parts of the text of the document
	nameHash   nameHash // of the key
	size       int32    // number of nodes, itself included
	members    int32    // of an object, or items of an array
	memberMask uint64   // of the members of an object
}

// keyForm says what is unusual about a key.
type keyForm uint8

const (
	escapedKey keyForm = 1 << iota // it has escapes
	wideKey                        // it is not ASCII
)

// Parse reads a document. The Value is valid until the next Parse; its texts stay valid. The
// error is always an *Error.
func (d *Document) Parse(raw []byte, lim Limits) (Value, error) {
	if e := checkBytes(raw, lim); e != nil {
		return Value{}, e
	}
	d.begin(raw, lim)
	end, ok := d.parseValue(node{}, d.skipSpace(0), 1)
	if ok {
		if end = d.skipSpace(end); end == len(d.text) {
			return Value{d.nodes}, nil
		}
		d.fail(TrailingData, end, "something follows the JSON value")
	}
	return Value{}, d.takeDefect()
}

// ParseObject is Parse for documents that must be a JSON object.
func (d *Document) ParseObject(raw []byte, lim Limits) (Value, error) {
	v, err := d.Parse(raw, lim)
	if err == nil && v.Kind() != KindObject {
		return Value{}, &Error{Code: NotObject, Detail: "the JSON value is not an object"}
	}
	return v, err
}

// checkBytes refuses a text for its size or its encoding.
func checkBytes(raw []byte, lim Limits) *Error {
	most := lim.MaxBytes
	if most <= 0 || most > math.MaxInt32 {
		most = math.MaxInt32 // positions of values are 32 bits long
	}
	if len(raw) > most {
		return &Error{Code: TooLarge, Offset: int64(most), Detail: fmt.Sprintf("%d bytes, at most %d are read", len(raw), most)}
	}
	if i := invalidUTF8(raw); i >= 0 {
		return &Error{Code: InvalidUTF8, Offset: int64(i), Detail: "the bytes are not UTF-8"}
	}
	return nil
}

func (d *Document) begin(raw []byte, lim Limits) {
	clear(d.nodes) // release the texts of the last document
	if d.nodes = d.nodes[:0]; cap(d.nodes) > maxKeptNodes {
		d.nodes = nil
	}
	if cap(d.scratch) > maxSharedText {
		d.scratch = nil
	}
	if lim.MaxDepth <= 0 || lim.MaxDepth > maxNesting {
		lim.MaxDepth = maxNesting
	}
	d.text, d.shared, d.lim, d.defect, d.defectPath = string(raw), len(raw) <= maxSharedText, lim, nil, nil
}

// fail records the defect of the document and returns false.
func (d *Document) fail(code Code, at int, detail string) bool {
	d.defect = &Error{Code: code, Offset: int64(at), Detail: detail}
	return false
}

// failSyntax records that the text is not JSON.
func (d *Document) failSyntax(at int) bool {
	if at >= len(d.text) {
		return d.fail(NotJSON, len(d.text), "the document ends too early")
	}
	return d.fail(NotJSON, at, "not valid JSON")
}

// inside records that the defect lies below a key or an index and returns false.
func (d *Document) inside(token string) bool {
	d.defectPath = append(d.defectPath, token)
	return false
}

// takeDefect returns the defect with its path. It keeps nothing of the document.
func (d *Document) takeDefect() *Error {
	var path strings.Builder
	for i := len(d.defectPath) - 1; i >= 0; i-- {
		path.WriteByte('/')
		path.WriteString(EscapePointer(d.defectPath[i]))
	}
	e := d.defect
	e.Path = path.String()
	d.text, d.defect, d.defectPath = "", nil, nil
	return e
}

func (d *Document) skipSpace(at int) int {
	for at < len(d.text) && (d.text[at] == ' ' || d.text[at] == '\n' || d.text[at] == '\r' || d.text[at] == '\t') {
		at++
	}
	return at
}

// parseValue reads the value at a position and returns the position after it. n has the value's
// key.
func (d *Document) parseValue(n node, at, depth int) (end int, ok bool) {
	if at >= len(d.text) {
		return 0, d.failSyntax(at)
	}
	n.kind, n.size, n.shared = d.text[at], 1, d.shared
	switch n.kind {
	case '{', '[':
		return d.parseContainer(n, at, depth)
	case '"':
		n.text, end, ok = d.parseString(at + 1)
		n.escaped = end-at != len(n.text)+2
	case 't':
		end, ok = d.matchLiteral(at, "true")
	case 'f':
		end, ok = d.matchLiteral(at, "false")
	case 'n':
		end, ok = d.matchLiteral(at, "null")
	default:
		n.kind = KindNumber
		n.text, end, ok = d.parseNumber(at)
	}
	d.nodes = append(d.nodes, n)
	return end, ok
}

func (d *Document) parseContainer(n node, at, depth int) (end int, ok bool) {
	if depth > d.lim.MaxDepth {
		return 0, d.fail(TooDeep, at+1, fmt.Sprintf("nested deeper than %d levels", d.lim.MaxDepth))
	}
	place := len(d.nodes)
	d.nodes = append(d.nodes, n)
	if n.kind == '{' {
		end, ok = d.parseMembers(at+1, depth, place)
	} else {
		end, ok = d.parseItems(at+1, depth, place)
	}
	d.nodes[place].size = int32(len(d.nodes) - place)
	return end, ok
}

func (d *Document) matchLiteral(at int, word string) (int, bool) {
	if strings.HasPrefix(d.text[at:], word) {
		return at + len(word), true
	}
	if strings.HasPrefix(word, d.text[at:]) {
		at = len(d.text)
	}
	return 0, d.failSyntax(at)
}

func (d *Document) parseItems(at, depth, place int) (end int, ok bool) {
	if at = d.skipSpace(at); at < len(d.text) && d.text[at] == ']' {
		return at + 1, true
	}
	for {
		between := "]}" // errors of the array and not of its next item
		if d.nodes[place].members == 0 {
			between = ",:"
		}
		if at = d.skipSpace(at); at >= len(d.text) || strings.IndexByte(between, d.text[at]) >= 0 {
			return 0, d.failSyntax(at)
		}
		if at, ok = d.parseValue(node{}, at, depth+1); !ok {
			return 0, d.inside(strconv.Itoa(int(d.nodes[place].members)))
		}
		d.nodes[place].members++
		if at, ok = d.parseSeparator(at, ']'); !ok || d.text[at-1] == ']' {
			return at, ok
		}
	}
}

// parseSeparator reads a comma or the end of a container.
func (d *Document) parseSeparator(at int, closing byte) (end int, ok bool) {
	at = d.skipSpace(at)
	if at < len(d.text) && (d.text[at] == closing || d.text[at] == ',') {
		return at + 1, true
	}
	return 0, d.failSyntax(at)
}

func (d *Document) parseMembers(at, depth, place int) (end int, ok bool) {
	if at = d.skipSpace(at); at < len(d.text) && d.text[at] == '}' {
		return at + 1, true
	}
	var folded map[string]string // the keys by their folded form, if they need it
	for {
		var n node
		if n, at, ok = d.parseKey(d.skipSpace(at)); !ok {
			return 0, false
		}
		if folded, ok = d.addKey(place, &n, folded, at); !ok {
			return 0, d.inside(n.key)
		}
		if at = d.skipSpace(at); at >= len(d.text) || d.text[at] != ':' {
			d.failSyntax(at)
			return 0, d.inside(n.key)
		}
		if at, ok = d.parseValue(n, d.skipSpace(at+1), depth+1); !ok {
			return 0, d.inside(n.key)
		}
		d.nodes[place].members++
		if at, ok = d.parseSeparator(at, '}'); !ok || d.text[at-1] == '}' {
			return at, ok
		}
	}
}

// parseKey reads the name of a member.
func (d *Document) parseKey(at int) (n node, end int, ok bool) {
	if at >= len(d.text) || d.text[at] != '"' {
		return n, 0, d.failSyntax(at)
	}
	rest := d.text[at+1:]
	if length := plainBytes(rest); length < len(rest) && rest[length] == '"' {
		n.key, end = d.ownText(rest[:length]), at+1+length+1
	} else {
		if n.key, end, ok = d.parseString(at + 1); !ok {
			return n, 0, false
		}
		if end-at != len(n.key)+2 {
			n.keyForm |= escapedKey
		}
		if !casefold.IsASCII(n.key) {
			n.keyForm |= wideKey
		}
	}
	n.nameHash = nameHashOf(n.key)
	return n, end, true
}

// nameHash is a cheap hash of a name.
type nameHash uint32

func nameHashOf(name string) nameHash {
	n := len(name)
	if n == 0 {
		return 0
	}
	return nameHash(uint32(n)<<24 | uint32(name[0])<<16 | uint32(name[n/2])<<8 | uint32(name[n-1]))
}

// maskBit is the same bit for names that differ only in case.
func (s nameHash) maskBit() uint64 {
	length, begin, end := uint(s>>24), uint(s>>16&0xff|0x20), uint(s&0xff|0x20)
	return 1 << ((7*length + 5*begin + end) & 63)
}

// ownText returns a part of the document as values hold it.
func (d *Document) ownText(s string) string {
	if d.shared {
		return s
	}
	return strings.Clone(s)
}

// addKey refuses a key that the object at a position already has, in any case. folded is nil as
// long as the object is small and its keys are ASCII.
func (d *Document) addKey(place int, n *node, folded map[string]string, at int) (map[string]string, bool) {
	object := &d.nodes[place]
	bit := n.nameHash.maskBit()
	known := object.memberMask&bit != 0
	object.memberMask |= bit
	if folded == nil && n.keyForm&wideKey == 0 && object.members < maxScannedMembers {
		if known {
			for i := place + 1; i < len(d.nodes); i += int(d.nodes[i].size) {
				if k := d.nodes[i].key; len(k) == len(n.key) && strings.EqualFold(k, n.key) {
					return nil, d.failKey(k == n.key, at)
				}
			}
		}
		return nil, true
	}
	if folded == nil {
		folded = make(map[string]string, object.members+1)
		for i := place + 1; i < len(d.nodes); i += int(d.nodes[i].size) {
			folded[casefold.String(d.nodes[i].key)] = d.nodes[i].key
		}
	}
	f := casefold.String(n.key)
	if k, there := folded[f]; there {
		return folded, d.failKey(k == n.key, at)
	}
	folded[f] = n.key
	return folded, true
}

func (d *Document) failKey(same bool, at int) bool {
	if same {
		return d.fail(DuplicateKey, at, "the object has this key twice")
	}
	return d.fail(CaseCollision, at, "the object has this key twice, in different case")
}

// parseString reads a string from after its quotation mark.
func (d *Document) parseString(at int) (text string, end int, ok bool) {
	for i := at + plainBytes(d.text[at:]); i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '"':
			return d.ownText(d.text[at:i]), i + 1, true
		case c < ' ':
			return "", 0, d.failSyntax(i)
		case c == '\\':
			return d.parseEscaped(at, i)
		}
	}
	return "", 0, d.failSyntax(len(d.text))
}

// parseEscaped reads a string from its first escape on.
func (d *Document) parseEscaped(at, i int) (text string, end int, ok bool) {
	b := append(d.scratch[:0], d.text[at:i]...)
	for i < len(d.text) {
		switch c := d.text[i]; {
		case c == '"':
			d.scratch = b
			return string(b), i + 1, true
		case c < ' ':
			return "", 0, d.failSyntax(i)
		case c != '\\':
			b, i = append(b, c), i+1
		default:
			if b, i, ok = d.parseEscape(b, i); !ok {
				return "", 0, false
			}
		}
	}
	return "", 0, d.failSyntax(i)
}

// parseEscape appends what the escape at a position stands for.
func (d *Document) parseEscape(b []byte, at int) ([]byte, int, bool) {
	if at+1 >= len(d.text) {
		return b, 0, d.failSyntax(len(d.text))
	}
	c := d.text[at+1]
	if c != 'u' {
		short := strings.IndexByte(`"\/bfnrt`, c)
		if short < 0 {
			return b, 0, d.failSyntax(at)
		}
		return append(b, "\"\\/\b\f\n\r\t"[short]), at + 2, true
	}
	r, ok := d.parseUnit(at)
	if !ok {
		return b, 0, false
	}
	end := at + 6
	if utf8.ValidRune(r) {
		return utf8.AppendRune(b, r), end, true
	}
	low, digits := scanUnit(d.text[end:])
	if pair := utf16.DecodeRune(r, low); digits == 4 && pair != utf8.RuneError {
		return utf8.AppendRune(b, pair), end + 6, true
	}
	if digits < 4 && end+2+digits >= len(d.text) && couldBeLow(low, digits) {
		return b, 0, d.failSyntax(len(d.text))
	}
	return b, 0, d.fail(InvalidUTF8, at, "a \\u escape is half of a surrogate pair")
}

// couldBeLow reports whether the first digits of a code unit can begin the second half of a
// surrogate pair.
func couldBeLow(unit rune, digits int) bool {
	switch digits {
	case -2, -1, 0:
		return true
	case 1:
		return unit == 0xD
	}
	return unit>>(4*(digits-2)) >= 0xDC && unit>>(4*(digits-2)) <= 0xDF
}

// parseUnit reads the UTF-16 code unit of the \u escape at a position.
func (d *Document) parseUnit(at int) (rune, bool) {
	unit, digits := scanUnit(d.text[at:])
	if digits == 4 {
		return unit, true
	}
	if end := at + 2 + digits; end >= len(d.text) {
		at = end
	}
	return 0, d.failSyntax(at)
}

// scanUnit reads the digits of a \u escape at the beginning of a text: at most four. A text that
// ends before has -1 or -2 digits, one that is no \u escape has 5.
func scanUnit(s string) (unit rune, digits int) {
	if len(s) < 2 {
		if strings.HasPrefix(`\u`, s) {
			return 0, len(s) - 2
		}
		return 0, 5
	}
	if s[:2] != `\u` {
		return 0, 5
	}
	for _, c := range []byte(s[2:min(len(s), 6)]) {
		digit := strings.IndexByte("0123456789abcdefABCDEF", c)
		if digit < 0 {
			break
		}
		if digit > 15 {
			digit -= 6
		}
		unit = unit<<4 | rune(digit)
		digits++
	}
	return unit, digits
}

// parseNumber reads a number that a float64 holds faithfully.
func (d *Document) parseNumber(at int) (lit string, end int, ok bool) {
	end, plain, ok := d.scanNumber(at)
	if !ok {
		return "", 0, false
	}
	lit = d.text[at:end]
	if !plain || !plainInteger(lit) {
		if code, detail := checkNumber(lit); code != "" {
			return "", 0, d.fail(code, end, detail)
		}
	}
	return d.ownText(lit), end, true
}

// scanNumber finds the end of the number at a position. plain reports that it has neither a
// fraction nor an exponent.
func (d *Document) scanNumber(at int) (end int, plain, ok bool) {
	if d.text[at] == '-' {
		at++
	}
	if at < len(d.text) && d.text[at] == '0' {
		at++
	} else if at, ok = d.scanDigits(at); !ok {
		return 0, false, false
	}
	plain = true
	if at < len(d.text) && d.text[at] == '.' {
		if at, ok = d.scanDigits(at + 1); !ok {
			return 0, false, false
		}
		plain = false
	}
	if at < len(d.text) && d.text[at]|0x20 == 'e' {
		if at++; at < len(d.text) && (d.text[at] == '+' || d.text[at] == '-') {
			at++
		}
		if at, ok = d.scanDigits(at); !ok {
			return 0, false, false
		}
		plain = false
	}
	return at, plain, true
}

// scanDigits finds the end of one digit or more.
func (d *Document) scanDigits(at int) (end int, ok bool) {
	for end = at; end < len(d.text) && d.text[end]-'0' <= 9; end++ {
	}
	if end == at {
		return 0, d.failSyntax(at)
	}
	return end, true
}
