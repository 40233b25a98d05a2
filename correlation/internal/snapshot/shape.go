package snapshot

import (
	"fmt"
	"reflect"
	"strings"
)

// writeShape describes a type. A type that was seen before is not described again.
func writeShape(b *strings.Builder, t reflect.Type, seen map[reflect.Type]bool) {
	fmt.Fprintf(b, "%v %v", t, t.Kind())
	if seen[t] || t == timeType {
		b.WriteString("\n")
		return
	}
	seen[t] = true
	switch {
	case reflect.PointerTo(t).Implements(packerType):
		b.WriteString(" as ")
		writeShape(b, reflect.TypeOf(reflect.New(t).Interface().(Packer).Pack()).Elem(), seen)
	case t.Kind() == reflect.Struct:
		b.WriteString(" of\n")
		for _, f := range fieldsOf(t) {
			b.WriteString(f.Name + " ")
			writeShape(b, f.Type, seen)
		}
	case t.Kind() == reflect.Map:
		b.WriteString(" of ")
		writeShape(b, t.Key(), seen)
		writeShape(b, t.Elem(), seen)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Pointer:
		b.WriteString(" of ")
		writeShape(b, t.Elem(), seen)
	default:
		b.WriteString("\n")
	}
}
