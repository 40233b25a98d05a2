package events

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// DecodeRecord reads a record written by Encode, strictly: unknown fields are errors, and so is
// everything that strictjson refuses. The texts of a small record share one copy of b.
//
// Records are structs with few kinds of fields, which are set from the values of the document.
// A type with other fields (a map of objects, a type with a form of its own) is decoded by
// strictjson.Unmarshal, which takes twice as long. The type alone decides which.
func DecodeRecord[T any](b []byte) (T, error) {
	d := documents.Get().(*strictjson.Document)
	defer documents.Put(d)
	v, err := d.ParseObject(b, strictjson.DefaultLimits)
	if err != nil {
		var none T
		return none, err
	}
	return DecodeValue[T](v, b)
}

// DecodeValue is DecodeRecord for a record that is parsed: v is the object that b holds. The texts
// of the result are those of v's document.
func DecodeValue[T any](v strictjson.Value, b []byte) (r T, err error) {
	into := reflect.ValueOf(&r).Elem()
	if set := setterOf(into.Type()); set == nil {
		err = strictjson.Unmarshal(b, &r, strictjson.RejectUnknown)
	} else if e := set(v, into); e != nil {
		err = e
	}
	if err != nil {
		return r, fmt.Errorf("decoding a %T: %w", r, err)
	}
	return r, nil
}

var documents = sync.Pool{New: func() any { return new(strictjson.Document) }}

// valueSetter sets a zero Go value from a value of a document. The path of its error begins at
// that value.
type valueSetter func(v strictjson.Value, into reflect.Value) *strictjson.Error

// valueSetters caches the setter of every type, nil for a type without one.
var valueSetters sync.Map // reflect.Type -> valueSetter

func setterOf(t reflect.Type) valueSetter {
	if s, known := valueSetters.Load(t); known {
		return s.(valueSetter)
	}
	s := makeSetter(t, nil)
	valueSetters.Store(t, s)
	return s
}

// makeSetter returns nil for types that only strictjson.Unmarshal decodes. outer are the types
// that contain t.
func makeSetter(t reflect.Type, outer []reflect.Type) valueSetter {
	switch {
	case t == timeType:
		return setTime
	case reflect.PointerTo(t).NumMethod() > t.NumMethod() || slices.Contains(outer, t):
		return nil // it may decode itself, or contains itself
	}
	outer = append(outer, t)
	switch t.Kind() {
	case reflect.Pointer:
		return pointerSetter(t, outer)
	case reflect.Slice:
		return sliceSetter(t, outer)
	case reflect.Map:
		return mapSetter(t, outer)
	case reflect.Struct:
		return structSetter(t, outer)
	}
	return scalarSetter(t)
}

// scalarSetter sets texts, booleans and integers. null is the zero value, as for the library.
func scalarSetter(t reflect.Type) valueSetter {
	var set func(v strictjson.Value, into reflect.Value) bool
	switch t.Kind() {
	case reflect.String:
		set = func(v strictjson.Value, into reflect.Value) bool {
			into.SetString(v.Text())
			return v.Kind() == strictjson.KindString
		}
	case reflect.Bool:
		set = func(v strictjson.Value, into reflect.Value) bool {
			into.SetBool(v.Kind() == strictjson.KindTrue)
			return v.Kind() == strictjson.KindTrue || v.Kind() == strictjson.KindFalse
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		set = func(v strictjson.Value, into reflect.Value) bool {
			n, err := strconv.ParseInt(v.Text(), 10, t.Bits())
			into.SetInt(n)
			return err == nil && v.Kind() == strictjson.KindNumber
		}
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		set = func(v strictjson.Value, into reflect.Value) bool {
			n, err := strconv.ParseUint(v.Text(), 10, t.Bits())
			into.SetUint(n)
			return err == nil && v.Kind() == strictjson.KindNumber
		}
	default:
		return nil
	}
	return func(v strictjson.Value, into reflect.Value) *strictjson.Error {
		if v.Kind() == strictjson.KindNull || set(v, into) {
			return nil
		}
		return wrongType(t)
	}
}

func wrongType(t reflect.Type) *strictjson.Error {
	return &strictjson.Error{Code: strictjson.WrongType, Detail: "the value is no " + t.String()}
}

func setTime(v strictjson.Value, into reflect.Value) *strictjson.Error {
	at := into.Addr().Interface().(*Time)
	if v.Kind() != strictjson.KindString || v.Escaped() || at.setText(v.Text()) != nil {
		return wrongType(timeType)
	}
	return nil
}

func pointerSetter(t reflect.Type, outer []reflect.Type) valueSetter {
	set := makeSetter(t.Elem(), outer)
	if set == nil {
		return nil
	}
	return func(v strictjson.Value, into reflect.Value) *strictjson.Error {
		if v.Kind() == strictjson.KindNull {
			return nil
		}
		into.Set(reflect.New(t.Elem()))
		return set(v, into.Elem())
	}
}

// ofKind is a setter of values of one kind: null leaves the zero value, and others have the wrong type.
func ofKind(kind byte, t reflect.Type, set valueSetter) valueSetter {
	return func(v strictjson.Value, into reflect.Value) *strictjson.Error {
		switch v.Kind() {
		case strictjson.KindNull:
			return nil
		case kind:
			return set(v, into)
		}
		return wrongType(t)
	}
}

func sliceSetter(t reflect.Type, outer []reflect.Type) valueSetter {
	set := makeSetter(t.Elem(), outer)
	if set == nil || t.Elem().Kind() == reflect.Uint8 {
		return nil
	}
	return ofKind(strictjson.KindArray, t, func(v strictjson.Value, into reflect.Value) *strictjson.Error {
		into.Set(reflect.MakeSlice(t, v.Len(), v.Len()))
		i := 0
		for item := range v.All() {
			if e := set(item, into.Index(i)); e != nil {
				return e.Below(strconv.Itoa(i))
			}
			i++
		}
		return nil
	})
}

// mapSetter sets maps of texts, booleans and integers.
func mapSetter(t reflect.Type, outer []reflect.Type) valueSetter {
	set := makeSetter(t.Elem(), outer)
	if set == nil || t.Key() != reflect.TypeFor[string]() {
		return nil
	}
	return ofKind(strictjson.KindObject, t, func(v strictjson.Value, into reflect.Value) *strictjson.Error {
		into.Set(reflect.MakeMapWithSize(t, v.Len()))
		for m := range v.All() {
			member := reflect.New(t.Elem()).Elem()
			if e := set(m, member); e != nil {
				return e.Below(m.Key())
			}
			into.SetMapIndex(reflect.ValueOf(m.Key()), member)
		}
		return nil
	})
}

// decodedMember is a field of a struct, by the name of its member.
type decodedMember struct {
	at  int
	set valueSetter
}

func structSetter(t reflect.Type, outer []reflect.Type) valueSetter {
	members := map[string]decodedMember{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		set := makeSetter(f.Type, outer)
		if f.Anonymous || name == "" || name == "-" || !f.IsExported() || set == nil || options != "" && options != "omitempty" && options != "omitzero" {
			return nil
		}
		members[name] = decodedMember{i, set}
	}
	return ofKind(strictjson.KindObject, t, func(v strictjson.Value, into reflect.Value) *strictjson.Error {
		for m := range v.All() {
			f, there := members[m.Key()]
			if !there {
				e := &strictjson.Error{Code: strictjson.UnknownKey, Detail: "the record has no such key"}
				return e.Below(m.Key())
			}
			if e := f.set(m, into.Field(f.at)); e != nil {
				return e.Below(m.Key())
			}
		}
		return nil
	})
}

// FieldError reports a member of another JSON type than the protocol's. It never holds the
// member's value.
type FieldError struct {
	Path string // JSON pointer (RFC 6901) of the member
	Want string // the type it must have
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s must be %s", e.Path, e.Want) }
