package events

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// DecodeRecordFlat is DecodeRecord for whoever decodes many records; see
// strictjson.Flat. The record's texts hold on to one copy of b.
func DecodeRecordFlat[T any](f *strictjson.Flat, b []byte) (T, error) {
	if v, ok := f.Read(b, strictjson.DefaultLimits); ok {
		var r T
		into := reflect.ValueOf(&r).Elem()
		if fill := fillerOf(into.Type()); fill != nil && fill(v, into) {
			return r, nil
		}
	}
	return DecodeRecord[T](b)
}

// valueFiller gives a zero Go value what a document says. It reports false for what
// only DecodeRecord can judge.
type valueFiller func(v strictjson.Value, into reflect.Value) bool

// valueFillers holds the filler of every type that was seen, nil for a type that has
// none. It is a cache of what the types say.
var valueFillers sync.Map // reflect.Type -> filler

func fillerOf(t reflect.Type) valueFiller {
	if f, known := valueFillers.Load(t); known {
		return f.(valueFiller)
	}
	f := makeFiller(t)
	valueFillers.Store(t, f)
	return f
}

func makeFiller(t reflect.Type) valueFiller {
	switch {
	case t == timeType:
		return fillTime
	case reflect.PointerTo(t).NumMethod() > t.NumMethod():
		return nil // it may decode itself
	}
	switch t.Kind() {
	case reflect.String:
		return func(v strictjson.Value, into reflect.Value) bool {
			into.SetString(v.Text())
			return v.Kind() == strictjson.KindString
		}
	case reflect.Bool:
		return func(v strictjson.Value, into reflect.Value) bool {
			into.SetBool(v.Kind() == strictjson.KindTrue)
			return v.Kind() == strictjson.KindTrue || v.Kind() == strictjson.KindFalse
		}
	case reflect.Int, reflect.Int64:
		return func(v strictjson.Value, into reflect.Value) bool {
			n, err := strconv.ParseInt(v.Text(), 10, t.Bits())
			into.SetInt(n)
			return err == nil && v.Kind() == strictjson.KindNumber
		}
	case reflect.Uint64:
		return func(v strictjson.Value, into reflect.Value) bool {
			n, err := strconv.ParseUint(v.Text(), 10, 64)
			into.SetUint(n)
			return err == nil && v.Kind() == strictjson.KindNumber
		}
	case reflect.Pointer:
		return pointerFiller(t)
	case reflect.Slice:
		return sliceFiller(t)
	case reflect.Struct:
		return structFiller(t)
	}
	return nil
}

func fillTime(v strictjson.Value, into reflect.Value) bool {
	if v.Kind() != strictjson.KindString || v.Escaped() {
		return false
	}
	if v.Text() == "" {
		return true
	}
	t, err := ParseTime(v.Text())
	*into.Addr().Interface().(*Time) = At(t)
	return err == nil
}

func pointerFiller(t reflect.Type) valueFiller {
	fill := fillerOf(t.Elem())
	if fill == nil {
		return nil
	}
	return func(v strictjson.Value, into reflect.Value) bool {
		into.Set(reflect.New(t.Elem()))
		return v.Kind() != strictjson.KindNull && fill(v, into.Elem())
	}
}

func sliceFiller(t reflect.Type) valueFiller {
	fill := fillerOf(t.Elem())
	if fill == nil || t.Elem().Kind() == reflect.Uint8 {
		return nil
	}
	return func(v strictjson.Value, into reflect.Value) bool {
		if v.Kind() != strictjson.KindArray {
			return false
		}
		into.Set(reflect.MakeSlice(t, v.Len(), v.Len()))
		i := 0
		for item := range v.All() {
			if !fill(item, into.Index(i)) {
				return false
			}
			i++
		}
		return true
	}
}

func structFiller(t reflect.Type) valueFiller {
	type member struct {
		at   int
		fill valueFiller
	}
	members := map[string]member{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" || name == "-" || !f.IsExported() {
			return nil
		}
		members[name] = member{i, fillerOf(f.Type)}
	}
	known := strictjson.NamesOf(members)
	return func(v strictjson.Value, into reflect.Value) bool {
		if v.Kind() != strictjson.KindObject {
			return false
		}
		for m := range v.All() {
			f, known := known.Of(m)
			if !known || f.fill == nil || !f.fill(m, into.Field(f.at)) {
				return false
			}
		}
		return true
	}
}
