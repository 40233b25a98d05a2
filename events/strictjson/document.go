package strictjson

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/casefold"
)

// Bounds of what parsing does.
const (
	// maxScannedMembers is the largest object with keys that are compared one by one.
	maxScannedMembers = 32
	// maxNesting bounds the recursion if Limits do not. It is the bound of jsontext.
	maxNesting = 10_000
	// typicalValue is how many bytes of a text make a value in most events.
	typicalValue = 24
	// maxFirstNodes bounds the list that is made before the values are known.
	maxFirstNodes = 512
)

// parser makes the list of a document's values, in the order of the text.
type parser struct {
	nodes  []node
	lim    Limits
	tokens jsontext.Decoder
}

// node is a value; its children follow it.
type node struct {
	key, text  string // text of a string, or a number's literal
	kind       byte
	escaped    bool // the string has escapes
	keyForm    keyForm
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

// Read parses a document. The error is always an *Error.
func Read(raw []byte, lim Limits) (Value, error) {
	if e := checkBytes(raw, lim); e != nil {
		return Value{}, e
	}
	if lim.MaxDepth <= 0 || lim.MaxDepth > maxNesting {
		lim.MaxDepth = maxNesting
	}
	d := parser{lim: lim, nodes: make([]node, 0, min(1+len(raw)/typicalValue, maxFirstNodes))}
	d.tokens.Reset(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true)) // addKey refuses them
	err := d.parseValue(node{}, 1)
	if err == nil {
		rest := bytes.TrimLeft(raw[d.tokens.InputOffset():], " \t\r\n")
		if len(rest) == 0 {
			return Value{d.nodes}, nil
		}
		err = &Error{Code: TrailingData, Offset: int64(len(raw) - len(rest)), Detail: "something follows the JSON value"}
	}
	return Value{}, ownError(err, d.tokens.StackPointer(), d.tokens.InputOffset())
}

// ReadObject is Read for documents that must be a JSON object.
func ReadObject(raw []byte, lim Limits) (Value, error) {
	v, err := Read(raw, lim)
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

// fail refuses what was read last.
func (d *parser) fail(code Code, detail string) error {
	return &Error{Code: code, Path: string(d.tokens.StackPointer()), Offset: d.tokens.InputOffset(), Detail: detail}
}

// parseValue reads the next value. n has the value's key.
func (d *parser) parseValue(n node, depth int) (err error) {
	n.kind, n.size = byte(d.tokens.PeekKind()), 1
	switch n.kind {
	case KindObject, KindArray:
		return d.parseContainer(n, depth)
	case KindString:
		n.text, n.escaped, err = d.parseString()
	case KindNumber:
		n.text, err = d.parseNumber()
	default: // a literal, or what is no value
		_, err = d.tokens.ReadToken()
	}
	d.nodes = append(d.nodes, n)
	return err
}

func (d *parser) parseContainer(n node, depth int) error {
	if _, err := d.tokens.ReadToken(); err != nil || depth > d.lim.MaxDepth { // err: beyond maxNesting
		return d.fail(TooDeep, fmt.Sprintf("nested deeper than %d levels", d.lim.MaxDepth))
	}
	place := len(d.nodes)
	d.nodes = append(d.nodes, n)
	var folded map[string]string // the keys by their folded form, if they need it
	for next := d.tokens.PeekKind(); next != '}' && next != ']'; next = d.tokens.PeekKind() {
		var child node
		var err error
		if n.kind == KindObject {
			if child, err = d.parseKey(); err != nil {
				return err
			}
			if folded, err = d.addKey(place, &child, folded); err != nil {
				return err
			}
		}
		if err = d.parseValue(child, depth+1); err != nil {
			return err
		}
		d.nodes[place].members++
	}
	d.nodes[place].size = int32(len(d.nodes) - place)
	_, err := d.tokens.ReadToken() // refuses the end of the other kind
	return err
}

// parseKey reads the name of a member.
func (d *parser) parseKey() (n node, err error) {
	if d.tokens.PeekKind() != KindString {
		_, err = d.tokens.ReadToken() // says what is wrong
		return n, err
	}
	key, escaped, err := d.parseString()
	n.key, n.nameHash = key, nameHashOf(key)
	if escaped {
		n.keyForm |= escapedKey
	}
	if !casefold.IsASCII(key) {
		n.keyForm |= wideKey
	}
	return n, err
}

func (d *parser) parseString() (text string, escaped bool, err error) {
	v, err := d.tokens.ReadValue()
	if err != nil {
		return "", false, err
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1]), false, nil
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), true, err
}

// parseNumber reads a number that a float64 holds faithfully.
func (d *parser) parseNumber() (lit string, err error) {
	v, err := d.tokens.ReadValue()
	if err != nil {
		return "", err
	}
	lit = string(v)
	if !plainInteger(lit) {
		if code, detail := checkNumber(lit); code != "" {
			return "", d.fail(code, detail)
		}
	}
	return lit, nil
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

// addKey refuses a key that the object at a position already has, in any case. folded is nil as
// long as the object is small and its keys are ASCII.
func (d *parser) addKey(place int, n *node, folded map[string]string) (map[string]string, error) {
	object := &d.nodes[place]
	bit := n.nameHash.maskBit()
	known := object.memberMask&bit != 0
	object.memberMask |= bit
	if folded == nil && n.keyForm&wideKey == 0 && object.members < maxScannedMembers {
		if known {
			for i := place + 1; i < len(d.nodes); i += int(d.nodes[i].size) {
				if k := d.nodes[i].key; len(k) == len(n.key) && strings.EqualFold(k, n.key) {
					return nil, d.failKey(k == n.key)
				}
			}
		}
		return nil, nil
	}
	if folded == nil {
		folded = make(map[string]string, object.members+1)
		for i := place + 1; i < len(d.nodes); i += int(d.nodes[i].size) {
			folded[casefold.String(d.nodes[i].key)] = d.nodes[i].key
		}
	}
	f := casefold.String(n.key)
	if k, there := folded[f]; there {
		return folded, d.failKey(k == n.key)
	}
	folded[f] = n.key
	return folded, nil
}

func (d *parser) failKey(same bool) error {
	if same {
		return d.fail(DuplicateKey, "the object has this key twice")
	}
	return d.fail(CaseCollision, "the object has this key twice, in different case")
}
