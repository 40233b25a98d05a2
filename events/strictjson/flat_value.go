package strictjson

import (
	"encoding/json"
	"iter"
	"strings"
)

// Value is a value of a document that a Flat has read, good until that reads the
// next one; the texts that it gives stay good. The zero Value is that of a member
// that is not there.
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

// Exists tells whether there is a value at all.
func (v Value) Exists() bool { return len(v.nodes) > 0 }

// Kind is one of the kinds, 0 if there is no value.
func (v Value) Kind() byte {
	if len(v.nodes) == 0 {
		return 0
	}
	return v.nodes[0].kind
}

// Key is the name of a member.
func (v Value) Key() string { return v.nodes[0].key }

// Text is the text of a string, or the literal of a number; "" of anything else.
func (v Value) Text() string {
	if len(v.nodes) == 0 {
		return ""
	}
	return v.nodes[0].text
}

// Escaped tells whether a string is written with escapes.
func (v Value) Escaped() bool { return len(v.nodes) > 0 && v.nodes[0].escaped }

// Len is how many members an object has, or items an array.
func (v Value) Len() int { return int(v.nodes[0].members) }

// Get is a member of an object.
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

// All are the members of an object, or the items of an array, in order.
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

// Tree is the value as Parse gives it. It shares nothing with the document.
func (v Value) Tree() any {
	switch v.Kind() {
	case KindObject:
		m := make(map[string]any, v.Len())
		for c := range v.All() {
			m[strings.Clone(c.Key())] = c.Tree()
		}
		return m
	case KindArray:
		list := make([]any, 0, v.Len())
		for c := range v.All() {
			list = append(list, c.Tree())
		}
		return list
	case KindString:
		return strings.Clone(v.Text())
	case KindNumber:
		return json.Number(strings.Clone(v.Text()))
	case KindTrue, KindFalse:
		return v.Kind() == KindTrue
	}
	return nil
}

// AppendCanonical appends the RFC 8785 form. It reports false for a value whose
// form only Canonical can write.
func (v Value) AppendCanonical(b []byte) ([]byte, bool) {
	ok := true
	switch v.Kind() {
	case KindObject:
		var room [24]Value
		b = append(b, '{')
		for i, c := range v.AppendSorted(room[:0]) {
			if i > 0 {
				b = append(b, ',')
			}
			if b, ok = c.AppendMember(b); !ok {
				return b, false
			}
		}
		return append(b, '}'), true
	case KindArray:
		b = append(b, '[')
		i := 0
		for c := range v.All() {
			if i++; i > 1 {
				b = append(b, ',')
			}
			if b, ok = c.AppendCanonical(b); !ok {
				return b, false
			}
		}
		return append(b, ']'), true
	case KindString:
		if v.Escaped() {
			return AppendString(b, v.Text()), true
		}
		return appendPlain(b, v.Text()), true
	case KindNumber:
		return append(b, v.Text()...), plainNumber(v.Text())
	case KindTrue:
		return append(b, "true"...), true
	case KindFalse:
		return append(b, "false"...), true
	case KindNull:
		return append(b, "null"...), true
	}
	return b, false
}

// AppendMember appends a member's key and value.
func (v Value) AppendMember(b []byte) ([]byte, bool) {
	return v.AppendCanonical(append(appendPlain(b, v.Key()), ':'))
}

// appendPlain appends a text that stood without escapes where it was read: it
// needs none.
func appendPlain(b []byte, s string) []byte { return append(append(append(b, '"'), s...), '"') }

// AppendSorted appends the members of an object to a list, in the order of RFC 8785. They
// are few, and their first letters mostly tell which comes first. Anything else has
// no members.
func (v Value) AppendSorted(list []Value) []Value {
	if v.Kind() != KindObject {
		return list
	}
	var places [maxFlatMembers]int16
	n := 0
	for i := 1; i < len(v.nodes); i += int(v.nodes[i].size) {
		at := n
		for ; at > 0 && v.nodes[i].sortsBefore(&v.nodes[places[at-1]]); at-- {
			places[at] = places[at-1]
		}
		places[at] = int16(i)
		n++
	}
	for _, i := range places[:n] {
		end := int(i) + int(v.nodes[i].size)
		list = append(list, Value{v.nodes[i:end:end]})
	}
	return list
}

func (n *node) sortsBefore(other *node) bool {
	return n.keyPrefix < other.keyPrefix || n.keyPrefix == other.keyPrefix && n.key < other.key
}
