package strictjson

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign-dev/countersign/events/casefold"
)

// Value is a value of a document. It does not change. The zero Value stands for a missing member.
type Value struct{ nodes []node }

// Kinds of values.
const (
	KindObject = '{'
	KindArray  = '['
	KindString = '"'
	KindNumber = '0'
	KindTrue   = 't'
	KindFalse  = 'f'
	KindNull   = 'n'
)

// Exists reports whether there is a value.
func (v Value) Exists() bool { return len(v.nodes) > 0 }

// Kind is one of the kinds, 0 if there is no value.
func (v Value) Kind() byte {
	if len(v.nodes) == 0 {
		return 0
	}
	return v.nodes[0].kind
}

// Key is the name of a member, "" for any other value.
func (v Value) Key() string {
	if len(v.nodes) == 0 {
		return ""
	}
	return v.nodes[0].key
}

// Text is the text of a string, or the literal of a number; "" for any other value.
func (v Value) Text() string {
	if len(v.nodes) == 0 {
		return ""
	}
	return v.nodes[0].text
}

// Escaped reports whether a string is written with escapes.
func (v Value) Escaped() bool { return len(v.nodes) > 0 && v.nodes[0].escaped }

// Len is the number of members of an object, or of items of an array.
func (v Value) Len() int {
	if len(v.nodes) == 0 {
		return 0
	}
	return int(v.nodes[0].members)
}

// Get returns a member of an object.
func (v Value) Get(key string) Value {
	s := nameHashOf(key)
	if len(v.nodes) == 0 || v.nodes[0].memberMask&s.maskBit() == 0 {
		return Value{}
	}
	for i := 1; i < len(v.nodes); {
		n := &v.nodes[i]
		end := i + int(n.size)
		if n.nameHash == s && n.key == key {
			return Value{v.nodes[i:end:end]}
		}
		i = end
	}
	return Value{}
}

// MemberText is the text of a member of an object; "" if that is absent or no string.
func (v Value) MemberText(key string) string {
	if m := v.Get(key); m.Kind() == KindString {
		return m.Text()
	}
	return ""
}

// All iterates over the members of an object, or the items of an array, in order.
func (v Value) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for i := 1; i < len(v.nodes); {
			end := i + int(v.nodes[i].size)
			if !yield(Value{v.nodes[i:end:end]}) {
				return
			}
			i = end
		}
	}
}

// Tree returns the value in the Go types of Parse. It shares nothing with the document.
func (v Value) Tree() any {
	switch v.Kind() {
	case KindObject:
		m := make(map[string]any, v.Len())
		for c := range v.All() {
			m[c.Key()] = c.Tree()
		}
		return m
	case KindArray:
		list := make([]any, 0, v.Len())
		for c := range v.All() {
			list = append(list, c.Tree())
		}
		return list
	case KindString:
		return v.Text()
	case KindNumber:
		return json.Number(v.Text())
	case KindTrue, KindFalse:
		return v.Kind() == KindTrue
	}
	return nil
}

// ObjectTree is Tree for an object; nil for any other value.
func (v Value) ObjectTree() map[string]any {
	tree, _ := v.Tree().(map[string]any)
	return tree
}

// PathIn returns the JSON pointer of a value that was reached from root; "" for any other value.
// Names that do not lead to the value are not copied: one may be as long as the document.
func (v Value) PathIn(root Value) string {
	if !root.holds(v) {
		return ""
	}
	var path strings.Builder
	for below := root; &below.nodes[0] != &v.nodes[0]; {
		i := 0
		for child := range below.All() {
			if !child.holds(v) {
				i++
				continue
			}
			step := child.Key()
			if below.Kind() == KindArray {
				step = strconv.Itoa(i)
			}
			path.WriteByte('/')
			path.WriteString(EscapePointer(step))
			below = child
			break
		}
	}
	return path.String()
}

// holds reports whether w is v or a value below it.
func (v Value) holds(w Value) bool {
	if len(w.nodes) == 0 {
		return false
	}
	for i := range v.nodes {
		if &v.nodes[i] == &w.nodes[0] {
			return true
		}
	}
	return false
}

// AppendCanonical appends the RFC 8785 form. For no value it appends nothing.
func (v Value) AppendCanonical(b []byte) []byte {
	switch v.Kind() {
	case KindObject:
		var room [24]Value
		b = append(b, '{')
		for i, c := range v.AppendSorted(room[:0]) {
			if i > 0 {
				b = append(b, ',')
			}
			b = c.AppendMember(b)
		}
		return append(b, '}')
	case KindArray:
		b = append(b, '[')
		first := len(b)
		for c := range v.All() {
			if len(b) > first {
				b = append(b, ',')
			}
			b = c.AppendCanonical(b)
		}
		return append(b, ']')
	case KindString:
		return appendText(b, v.Text(), v.Escaped())
	case KindNumber:
		return appendNumber(b, v.Text())
	case KindTrue:
		return append(b, "true"...)
	case KindFalse:
		return append(b, "false"...)
	case KindNull:
		return append(b, "null"...)
	}
	return b
}

// AppendMember appends a member's key and value.
func (v Value) AppendMember(b []byte) []byte {
	return v.AppendCanonical(append(appendText(b, v.nodes[0].key, v.nodes[0].keyForm&escapedKey != 0), ':'))
}

// appendText appends a text. One that was read without escapes needs none.
func appendText(b []byte, s string, escaped bool) []byte {
	if escaped {
		return AppendString(b, s)
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendNumber appends the canonical form of a number that Parse accepted.
func appendNumber(b []byte, lit string) []byte {
	if plainNumber(lit) {
		return append(b, lit...)
	}
	canonical := jsontext.Value(lit)
	if err := canonical.Canonicalize(); err != nil {
		return append(b, lit...) // not from Parse
	}
	return append(b, canonical...)
}

// CanonicalNumber returns the canonical form of a number that Parse accepted.
func CanonicalNumber(lit string) string {
	if plainNumber(lit) {
		return lit
	}
	return string(appendNumber(nil, lit))
}

// AppendSorted appends the members of an object to a list, in the order of RFC 8785; for any
// other value it appends nothing. Key prefixes mostly decide the order.
func (v Value) AppendSorted(list []Value) []Value {
	if v.Kind() != KindObject {
		return list
	}
	start := len(list)
	for m := range v.All() {
		list = append(list, m)
	}
	slices.SortFunc(list[start:], func(a, b Value) int { return a.nodes[0].compareKey(&b.nodes[0]) })
	return list
}

func (n *node) compareKey(other *node) int {
	if n.keyForm&other.keyForm&wideKey != 0 {
		return CompareKeys(n.key, other.key)
	}
	return strings.Compare(n.key, other.key)
}

// IsText reports whether the value is a certain string.
func (v Value) IsText(s string) bool { return v.Kind() == KindString && v.Text() == s }

// WithText returns a copy of an object in which the string that the keys lead to has another text.
// An object without such a string is returned as it is.
func (v Value) WithText(text string, keys ...string) Value {
	at := v
	for _, key := range keys {
		at = at.Get(key)
	}
	if at.Kind() != KindString {
		return v
	}
	nodes := slices.Clone(v.nodes)
	for i := range nodes {
		if &v.nodes[i] == &at.nodes[0] {
			nodes[i].text, nodes[i].escaped = text, plainBytes(text) < len(text)
		}
	}
	return Value{nodes}
}

// Replacement is a member of an object, and the tree that takes its value's place. Drop removes the
// member.
type Replacement struct {
	Member Value
	Tree   any
	Drop   bool
}

// Replace returns a copy of a value with other members. The members are below v, none below another,
// in the order of the document.
func (v Value) Replace(list []Replacement) Value {
	nodes, _ := v.appendReplaced(make([]node, 0, len(v.nodes)), list)
	return Value{nodes}
}

// appendReplaced appends v to nodes. It takes off list what it has replaced.
func (v Value) appendReplaced(nodes []node, list []Replacement) ([]node, []Replacement) {
	if len(list) == 0 {
		return append(nodes, v.nodes...), list
	}
	place := len(nodes)
	nodes = append(nodes, v.nodes[0])
	for c := range v.All() {
		if len(list) == 0 || &c.nodes[0] != &list[0].Member.nodes[0] {
			nodes, list = c.appendReplaced(nodes, list)
			continue
		}
		if list[0].Drop {
			nodes[place].members--
		} else {
			old := &c.nodes[0]
			n := node{key: old.key, keyForm: old.keyForm, nameHash: old.nameHash}
			nodes = appendNodes(nodes, n, list[0].Tree)
		}
		list = list[1:]
	}
	nodes[place].size = int32(len(nodes) - place)
	return nodes, list
}

// FromTree returns the Value of a tree of the Go types of Parse. Values of any other Go type have
// no kind of JSON.
func FromTree(tree any) Value {
	return Value{appendNodes(make([]node, 0, countNodes(tree)), node{}, tree)}
}

func countNodes(tree any) int {
	n := 1
	switch tree := tree.(type) {
	case map[string]any:
		for _, member := range tree {
			n += countNodes(member)
		}
	case []any:
		for _, item := range tree {
			n += countNodes(item)
		}
	}
	return n
}

// kindOther is the kind of values of Go types that Parse does not make.
const kindOther = 1

// appendNodes appends a value and its children. n has the value's key.
func appendNodes(nodes []node, n node, tree any) []node {
	place := len(nodes)
	n.size = 1
	switch tree := tree.(type) {
	case nil:
		n.kind = KindNull
	case bool:
		if n.kind = KindFalse; tree {
			n.kind = KindTrue
		}
	case string:
		n.kind, n.text, n.escaped = KindString, tree, plainBytes(tree) < len(tree)
	case json.Number:
		n.kind, n.text = KindNumber, string(tree)
	case []any:
		n.kind, n.members = KindArray, int32(len(tree))
		nodes = append(nodes, n)
		for _, item := range tree {
			nodes = appendNodes(nodes, node{}, item)
		}
	case map[string]any:
		n.kind, n.members = KindObject, int32(len(tree))
		nodes = append(nodes, n)
		for key, member := range tree {
			m := keyNode(key)
			nodes[place].memberMask |= m.nameHash.maskBit()
			nodes = appendNodes(nodes, m, member)
		}
	default:
		n.kind = kindOther
	}
	if len(nodes) == place {
		return append(nodes, n)
	}
	nodes[place].size = int32(len(nodes) - place)
	return nodes
}

func keyNode(key string) node {
	n := node{key: key, nameHash: nameHashOf(key)}
	if plainBytes(key) < len(key) {
		n.keyForm |= escapedKey
	}
	if !casefold.IsASCII(key) {
		n.keyForm |= wideKey
	}
	return n
}
