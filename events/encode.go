package events

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Encode returns the bytes of a record for the log: RFC 8785, with the fields that
// encoding/json would write.
//
// Records are structs with few kinds of fields. Those are written directly, with the fields in
// RFC 8785 order; any other value goes through encoding/json and is canonicalised afterwards,
// which costs five times as much.
func Encode(record any) ([]byte, error) {
	v := reflect.ValueOf(record)
	if v.IsValid() {
		if write := writerOf(v.Type()); write != nil {
			if b, ok := write(make([]byte, 0, 1024), v); ok {
				return b, nil
			}
		}
	}
	return encodeAny(record)
}

func encodeAny(record any) ([]byte, error) {
	b, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encoding a %T: %w", record, err)
	}
	return strictjson.CanonicalBytes(b)
}

// valueWriter appends the RFC 8785 form of a value. It reports false for a value that only
// encodeAny can write.
type valueWriter func(b []byte, v reflect.Value) ([]byte, bool)

// valueWriters caches the writer of every type, nil for a type without one.
var valueWriters sync.Map // reflect.Type -> valueWriter

func writerOf(t reflect.Type) valueWriter {
	if w, known := valueWriters.Load(t); known {
		return w.(valueWriter)
	}
	w := makeWriter(t)
	valueWriters.Store(t, w)
	return w
}

var (
	timeType     = reflect.TypeFor[Time]()
	marshalers   = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()}
	isZeroMethod = reflect.TypeFor[interface{ IsZero() bool }]()
)

// maxExact is the greatest integer that RFC 8785 writes exactly.
const maxExact = 1<<53 - 1

func makeWriter(t reflect.Type) valueWriter {
	if t == timeType {
		return writeTime
	}
	if slices.ContainsFunc(marshalers, func(m reflect.Type) bool { return t.Implements(m) || reflect.PointerTo(t).Implements(m) }) {
		return nil
	}
	switch t.Kind() {
	case reflect.String:
		return func(b []byte, v reflect.Value) ([]byte, bool) { return strictjson.AppendString(b, v.String()), true }
	case reflect.Bool:
		return func(b []byte, v reflect.Value) ([]byte, bool) { return strconv.AppendBool(b, v.Bool()), true }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(b []byte, v reflect.Value) ([]byte, bool) {
			return strconv.AppendInt(b, v.Int(), 10), v.Int() <= maxExact && v.Int() >= -maxExact
		}
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(b []byte, v reflect.Value) ([]byte, bool) {
			return strconv.AppendUint(b, v.Uint(), 10), v.Uint() <= maxExact
		}
	case reflect.Pointer:
		return makePointer(t)
	case reflect.Slice:
		return makeSlice(t)
	case reflect.Struct:
		return makeStruct(t)
	}
	return nil
}

func writeTime(b []byte, v reflect.Value) ([]byte, bool) {
	t := timeOf(v)
	b = append(b, '"')
	if !t.IsZero() {
		b = t.UTC().AppendFormat(b, TimeLayout)
	}
	return append(b, '"'), true
}

// timeOf reads a time, without an allocation if v is addressable.
func timeOf(v reflect.Value) Time {
	if v.CanAddr() {
		return *v.Addr().Interface().(*Time)
	}
	return v.Interface().(Time)
}

func makePointer(t reflect.Type) valueWriter {
	elem := writerOf(t.Elem()) // records have no recursive types
	if elem == nil {
		return nil
	}
	return func(b []byte, v reflect.Value) ([]byte, bool) {
		if v.IsNil() {
			return append(b, "null"...), true
		}
		return elem(b, v.Elem())
	}
}

func makeSlice(t reflect.Type) valueWriter {
	elem := writerOf(t.Elem())
	if elem == nil || t.Elem().Kind() == reflect.Uint8 {
		return nil
	}
	return func(b []byte, v reflect.Value) ([]byte, bool) {
		if v.IsNil() {
			return append(b, "null"...), true
		}
		b = append(b, '[')
		var ok bool
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, ok = elem(b, v.Index(i)); !ok {
				return b, false
			}
		}
		return append(b, ']'), true
	}
}

// structMember is one field of a struct.
type structMember struct {
	index int
	name  string // quoted, with the colon
	skip  func(reflect.Value) bool
	write valueWriter
}

func makeStruct(t reflect.Type) valueWriter {
	var members []structMember
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		m := structMember{index: i, name: `"` + name + `":`, write: writerOf(f.Type), skip: skipRule(f.Type, options)}
		if f.Anonymous || name == "" || !plainName(name) || m.write == nil || m.skip == nil {
			return nil
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b structMember) int { return strings.Compare(a.name[:len(a.name)-2], b.name[:len(b.name)-2]) })
	return func(b []byte, v reflect.Value) ([]byte, bool) {
		b = append(b, '{')
		first, ok := true, false
		for i := range members {
			m := &members[i]
			f := v.Field(m.index)
			if m.skip(f) {
				continue
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(b, m.name...)
			if b, ok = m.write(b, f); !ok {
				return b, false
			}
		}
		return append(b, '}'), true
	}
}

// plainName reports whether a name is plain ASCII: its bytes are its UTF-16 units.
func plainName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// skipRule returns the rule by which encoding/json omits a field; nil for options that are not
// handled here.
func skipRule(t reflect.Type, options string) func(reflect.Value) bool {
	switch options {
	case "":
		return func(reflect.Value) bool { return false }
	case "omitempty":
		switch t.Kind() {
		case reflect.Slice, reflect.String:
			return func(v reflect.Value) bool { return v.Len() == 0 }
		case reflect.Struct:
			return func(reflect.Value) bool { return false }
		}
		return reflect.Value.IsZero
	case "omitzero":
		switch {
		case t == timeType:
			return func(v reflect.Value) bool { return timeOf(v).IsZero() }
		case t.Implements(isZeroMethod) || reflect.PointerTo(t).Implements(isZeroMethod):
			return nil
		}
		return reflect.Value.IsZero
	}
	return nil
}
