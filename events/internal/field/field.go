// Package field reads typed members from the objects of strictjson, for the protocols' typed
// models. An absent member leaves the zero value; a member of the wrong JSON type (null
// included) is recorded as an Error and leaves the zero value too. Begin reading with Root.
package field

import (
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
	value, root strictjson.Value
	first       **Error
}

// Root is the outermost object of a document. first receives the first error found while
// reading it and the objects below it.
func Root(v strictjson.Value, first **Error) Object { return Object{v, v, first} }

// Value is the object itself.
func (o Object) Value() strictjson.Value { return o.value }

// Get returns a member of any JSON type.
func (o Object) Get(key string) strictjson.Value { return o.value.Get(key) }

// Fail records that a member has the wrong type.
func (o Object) Fail(key, want string) {
	if o.first != nil && *o.first == nil {
		*o.first = &Error{Path: o.value.PathIn(o.root) + "/" + strictjson.EscapePointer(key), Want: want}
	}
}

// failValue records that a value below the object has the wrong type.
func (o Object) failValue(v strictjson.Value, want string) {
	if o.first != nil && *o.first == nil {
		*o.first = &Error{Path: v.PathIn(o.root), Want: want}
	}
}

// member is the only function that distinguishes absence and wrong type.
func (o Object) member(key, kind, want string) (v strictjson.Value, ok bool) {
	v = o.value.Get(key)
	if v.Exists() && kinds[v.Kind()] != kind {
		o.Fail(key, want)
		return strictjson.Value{}, false
	}
	return v, v.Exists()
}

// Text reads a string.
func (o Object) Text(key string) string {
	v, _ := o.member(key, KindString, WantString)
	return v.Text()
}

// TextPtr reads a string; nil if it is absent.
func (o Object) TextPtr(key string) *string {
	v, ok := o.member(key, KindString, WantString)
	if !ok {
		return nil
	}
	s := v.Text()
	return &s
}

// Bool reads a boolean; nil if it is absent.
func (o Object) Bool(key string) *bool {
	v, ok := o.member(key, KindBool, WantBool)
	if !ok {
		return nil
	}
	b := v.Kind() == strictjson.KindTrue
	return &b
}

// Int reads a number without a fraction (1, 1.0 and 1e0 are the same integer);
// nil if it is absent.
func (o Object) Int(key string) *int64 {
	v, ok := o.member(key, KindNumber, WantInteger)
	if !ok {
		return nil
	}
	i, ok := parseInteger(v.Text())
	if !ok {
		o.Fail(key, WantInteger)
		return nil
	}
	return &i
}

func parseInteger(lit string) (int64, bool) {
	if i, err := strconv.ParseInt(lit, 10, 64); err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(lit, 64)
	// strictjson.Parse refuses integers beyond 2^53; FromTree does not.
	if err != nil || f < -(1<<53) || f > 1<<53 || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// Number reads a number; nil if it is absent.
func (o Object) Number(key string) *float64 {
	v, ok := o.member(key, KindNumber, WantNumber)
	if !ok {
		return nil
	}
	f, err := strconv.ParseFloat(v.Text(), 64)
	if err != nil {
		o.Fail(key, WantNumber)
		return nil
	}
	return &f
}

// Object reads an object as a value, which does not exist if it is absent.
func (o Object) Object(key string) strictjson.Value {
	v, _ := o.member(key, KindObject, WantObject)
	return v
}

// Map reads an object as a Go tree; nil if it is absent.
func (o Object) Map(key string) map[string]any { return o.Object(key).ObjectTree() }

// Child opens an object below this one. ok is false if it is absent or no object.
func (o Object) Child(key string) (child Object, ok bool) {
	v, ok := o.member(key, KindObject, WantObject)
	return Object{v, o.root, o.first}, ok
}

// Texts reads an array of strings; nil if it is absent.
func (o Object) Texts(key string) []string {
	list, ok := o.member(key, KindArray, WantStrings)
	if !ok {
		return nil
	}
	texts := make([]string, 0, list.Len())
	for v := range list.All() {
		if v.Kind() != strictjson.KindString {
			o.failValue(v, WantString)
			return nil
		}
		texts = append(texts, v.Text())
	}
	return texts
}

// Objects opens the objects of an array; nil if it is absent.
func (o Object) Objects(key string) []Object {
	list, ok := o.member(key, KindArray, WantObjects)
	if !ok {
		return nil
	}
	objects := make([]Object, 0, list.Len())
	for v := range list.All() {
		if v.Kind() != strictjson.KindObject {
			o.failValue(v, WantObject)
			return nil
		}
		objects = append(objects, Object{v, o.root, o.first})
	}
	return objects
}

// MapOfMaps reads an object of objects as Go trees; nil if it is absent. Its error names no member.
func (o Object) MapOfMaps(key string) map[string]map[string]any {
	v, ok := o.member(key, KindObject, WantObject)
	if !ok {
		return nil
	}
	maps := make(map[string]map[string]any, v.Len())
	for name, m := range v.ObjectTree() {
		object, ok := m.(map[string]any)
		if !ok {
			o.Fail(key, WantObjectsMap)
			return nil
		}
		maps[name] = object
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

// Kind names the JSON type of a member, "" if it is absent.
func (o Object) Kind(key string) string { return kinds[o.value.Get(key).Kind()] }

var kinds = [256]string{strictjson.KindObject: KindObject, strictjson.KindArray: KindArray, strictjson.KindString: KindString,
	strictjson.KindNumber: KindNumber, strictjson.KindTrue: KindBool, strictjson.KindFalse: KindBool, strictjson.KindNull: KindNull}
