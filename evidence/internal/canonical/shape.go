package canonical

import (
	"reflect"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// Shape describes the JSON text of a Go type.
type Shape struct {
	kind    reflect.Kind // Interface: the type is not known, so the scanner rejects it
	isTime  bool
	trusted bool              // of strings: no producer can influence them
	elem    *Shape            // of pointers and slices
	fields  map[string]*Shape // of structs, by their JSON names
}

// ShapeFor describes a record type of package events. trusted names the members with strings that
// no producer can influence; scanShape does not pass them to isTextClean.
func ShapeFor[T any](trusted map[string]bool) *Shape {
	return shapeOf(reflect.TypeFor[T](), trusted)
}

// shapeOf describes a type that is not recursive.
func shapeOf(t reflect.Type, trusted map[string]bool) *Shape {
	s := &Shape{kind: t.Kind()}
	switch {
	case t == reflect.TypeFor[events.Time]():
		s.isTime = true
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice:
		s.elem = shapeOf(t.Elem(), trusted)
	case t.Kind() == reflect.Struct:
		s.fields = map[string]*Shape{}
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || name == "" || name == "-" {
				return &Shape{kind: reflect.Interface}
			}
			s.fields[name] = shapeOf(f.Type, trusted)
			s.fields[name].trusted = trusted[name]
		}
	}
	return s
}

// ScanShape consumes a value of a shape. It rejects strings with escapes, and null except
// for pointers.
func (s *Scanner) ScanShape(sh *Shape) bool {
	switch sh.kind {
	case reflect.String:
		text, plain, ok := s.ScanString()
		return ok && plain && (sh.trusted || s.IsTextClean == nil || s.IsTextClean(text))
	case reflect.Bool:
		return s.Literal("true") || s.Literal("false")
	case reflect.Int, reflect.Int64:
		s.Literal("-")
		return s.scanSignedDigits()
	case reflect.Uint64:
		_, ok := s.integer()
		return ok
	case reflect.Pointer:
		return s.Literal("null") || s.ScanShape(sh.elem)
	case reflect.Slice:
		return s.ScanElements(func() bool { return s.ScanShape(sh.elem) })
	case reflect.Struct:
		if sh.isTime {
			return s.scanTime()
		}
		return s.scanStruct(sh)
	}
	return false
}

func (s *Scanner) scanStruct(sh *Shape) bool {
	return s.object(1, func(key []byte) bool {
		field, known := sh.fields[string(key)]
		return known && s.ScanShape(field)
	})
}

// scanSignedDigits consumes the digits of an integer after an optional sign.
func (s *Scanner) scanSignedDigits() bool {
	negative := s.pos > 0 && s.Text[s.pos-1] == '-'
	n, ok := s.integer()
	return ok && (!negative || n != 0)
}

func (s *Scanner) scanTime() bool {
	text, plain, ok := s.ScanString()
	if !ok || !plain {
		return false
	}
	_, fixed := FixedTime(text)
	return len(text) == 0 || fixed
}
