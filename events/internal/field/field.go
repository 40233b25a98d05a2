// Package field reads typed members from the trees of strictjson, for the protocols' typed
// models. An absent member leaves the zero value; a member of the wrong JSON type (null
// included) is recorded as an Error and leaves the zero value too. Begin reading with Root.
package field

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Error is events.FieldError.
type Error = events.FieldError

// Values of Error.Want.
const (
	WantString     = "a string"
	WantInteger    = "an integer"
	WantNumber     = "a number"
	WantBool       = "true or false"
	WantObject     = "an object"
	WantStrings    = "an array of strings"
	WantObjects    = "an array of objects"
	WantObjectsMap = "an object of objects"
)

// Object reads the members of one JSON object. The zero Object has no members.
type Object struct {
	Members map[string]any // shared with the tree; nil if the object is absent or read from a document
	value   strictjson.Value
	path    string // not kept for an object of a document
	first   **Error
}

// Root is the outermost object of a document. first receives the first error found while
// reading it and the objects below it.
func Root(tree map[string]any, first **Error) Object { return Object{Members: tree, first: first} }

// Fail records that a member has the wrong type.
func (o Object) Fail(key, want string) {
	if o.first != nil && *o.first == nil {
		*o.first = &Error{Path: o.pointerTo(key), Want: want}
	}
}

func (o Object) failSelf(want string) {
	if o.first != nil && *o.first == nil {
		*o.first = &Error{Path: o.path, Want: want}
	}
}

func (o Object) elementAt(key string, i int) Object {
	return Object{path: o.pointerTo(key) + "/" + strconv.Itoa(i), first: o.first}
}

func (o Object) pointerTo(key string) string { return o.path + "/" + strictjson.EscapePointer(key) }

// readMember is the only function that distinguishes absence and wrong type.
func readMember[T any](o Object, key, want string) (v T, ok bool) {
	m, there := o.Members[key]
	if !there {
		return v, false
	}
	if v, ok = m.(T); !ok {
		o.Fail(key, want)
	}
	return v, ok
}

// Text reads a string.
func (o Object) Text(key string) string {
	if o.hasValue() {
		if v, ok := o.memberValue(key, KindString, WantString); ok {
			return v.Text()
		}
		return ""
	}
	s, _ := readMember[string](o, key, WantString)
	return s
}

// TextPtr reads a string; nil if it is absent.
func (o Object) TextPtr(key string) *string {
	if o.hasValue() {
		if v, ok := o.memberValue(key, KindString, WantString); ok {
			s := v.Text()
			return &s
		}
		return nil
	}
	if s, ok := readMember[string](o, key, WantString); ok {
		return &s
	}
	return nil
}

// Bool reads a boolean; nil if it is absent.
func (o Object) Bool(key string) *bool {
	if o.hasValue() {
		if v, ok := o.memberValue(key, KindBool, WantBool); ok {
			b := v.Kind() == strictjson.KindTrue
			return &b
		}
		return nil
	}
	if b, ok := readMember[bool](o, key, WantBool); ok {
		return &b
	}
	return nil
}

// Int reads a number without a fraction (1, 1.0 and 1e0 are the same integer);
// nil if it is absent.
func (o Object) Int(key string) *int64 {
	n, ok := o.numberLiteral(key, WantInteger)
	if !ok {
		return nil
	}
	i, ok := parseInteger(string(n))
	if !ok {
		o.Fail(key, WantInteger)
		return nil
	}
	return &i
}

func (o Object) numberLiteral(key, want string) (json.Number, bool) {
	if o.hasValue() {
		v, ok := o.memberValue(key, KindNumber, want)
		return json.Number(v.Text()), ok
	}
	return readMember[json.Number](o, key, want)
}

func parseInteger(lit string) (int64, bool) {
	if i, err := strconv.ParseInt(lit, 10, 64); err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(lit, 64)
	// strictjson refuses integers beyond 2^53; another source of trees may not.
	if err != nil || f < -(1<<53) || f > 1<<53 || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// Number reads a number; nil if it is absent.
func (o Object) Number(key string) *float64 {
	n, ok := o.numberLiteral(key, WantNumber)
	if !ok {
		return nil
	}
	f, err := n.Float64()
	if err != nil {
		o.Fail(key, WantNumber)
		return nil
	}
	return &f
}

// Map reads an object as it is in the tree; nil if it is absent.
func (o Object) Map(key string) map[string]any {
	if o.hasValue() {
		v, ok := o.memberValue(key, KindObject, WantObject)
		if !ok {
			return nil
		}
		return v.Tree().(map[string]any)
	}
	m, _ := readMember[map[string]any](o, key, WantObject)
	return m
}

// Child opens an object below this one. ok is false if it is absent or no object.
func (o Object) Child(key string) (child Object, ok bool) {
	if o.hasValue() {
		child.first = o.first
		if v, there := o.memberValue(key, KindObject, WantObject); there {
			child.value, ok = v, true
		}
		return child, ok
	}
	m, ok := readMember[map[string]any](o, key, WantObject)
	return Object{Members: m, path: o.pointerTo(key), first: o.first}, ok
}

// Texts reads an array of strings; nil if it is absent.
func (o Object) Texts(key string) []string {
	list, ok := o.arrayMember(key, WantStrings)
	if !ok {
		return nil
	}
	texts := make([]string, 0, len(list))
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			o.elementAt(key, i).failSelf(WantString)
			return nil
		}
		texts = append(texts, s)
	}
	return texts
}

func (o Object) arrayMember(key, want string) ([]any, bool) {
	if o.hasValue() {
		v, ok := o.memberValue(key, KindArray, want)
		if !ok {
			return nil, false
		}
		return v.Tree().([]any), true
	}
	return readMember[[]any](o, key, want)
}

// Objects opens the objects of an array; nil if it is absent.
func (o Object) Objects(key string) []Object {
	list, ok := o.arrayMember(key, WantObjects)
	if !ok {
		return nil
	}
	objects := make([]Object, 0, len(list))
	for i, e := range list {
		el := o.elementAt(key, i)
		if el.Members, ok = e.(map[string]any); !ok {
			el.failSelf(WantObject)
			return nil
		}
		objects = append(objects, el)
	}
	return objects
}

// MapOfMaps reads an object of objects; nil if it is absent.
func (o Object) MapOfMaps(key string) map[string]map[string]any {
	members := o.Map(key)
	if members == nil {
		return nil
	}
	maps := make(map[string]map[string]any, len(members))
	for name, v := range members {
		m, ok := v.(map[string]any)
		if !ok {
			o.Fail(key, WantObjectsMap) // the error names no member, because the order of members is random
			return nil
		}
		maps[name] = m
	}
	return maps
}

// Instant reads RFC 3339 text as events.ParseTime does. Any other text gives the zero Time.
func Instant(text string) time.Time {
	t, err := events.ParseTime(text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Names of JSON types, as Kind returns them.
const (
	KindString = "string"
	KindNumber = "number"
	KindBool   = "boolean"
	KindObject = "object"
	KindArray  = "array"
	KindNull   = "null"
)

// Kind names the JSON type of a value of a tree; "" for anything else.
func Kind(v any) string {
	switch v.(type) {
	case nil:
		return KindNull
	case string:
		return KindString
	case json.Number:
		return KindNumber
	case bool:
		return KindBool
	case map[string]any:
		return KindObject
	case []any:
		return KindArray
	default:
		return ""
	}
}
