package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// typeInfo describes how values of one type are encoded.
type typeInfo struct {
	typ       reflect.Type
	kind      reflect.Kind // or one of the next two
	fields    []fieldInfo  // of a struct
	key, elem *typeInfo    // of a map; elem also of an array, a slice or a pointer
	form      *typeInfo    // of a Packer
}

// Kinds of types with a form of their own.
const (
	kindTime reflect.Kind = 100 + iota
	kindPacker
)

type fieldInfo struct {
	*typeInfo
	index int
}

// types caches the description of each type.
var (
	types   = map[reflect.Type]*typeInfo{}
	typesMu sync.Mutex
)

var (
	timeType   = reflect.TypeFor[time.Time]()
	packerType = reflect.TypeFor[Packer]()
)

func typeInfoOf(t reflect.Type) *typeInfo {
	typesMu.Lock()
	defer typesMu.Unlock()
	return describeType(t)
}

// describeType describes a type and those in it. It registers the description before it is complete,
// because types may be recursive.
func describeType(t reflect.Type) *typeInfo {
	if x := types[t]; x != nil {
		return x
	}
	x := &typeInfo{typ: t, kind: t.Kind()}
	types[t] = x
	switch {
	case t == timeType:
		x.kind = kindTime
	case reflect.PointerTo(t).Implements(packerType):
		x.kind = kindPacker
		x.form = describeType(reflect.TypeOf(reflect.New(t).Interface().(Packer).Pack()).Elem())
	case x.kind == reflect.Struct:
		for _, f := range fieldsOf(t) {
			x.fields = append(x.fields, fieldInfo{describeType(f.Type), f.Index[0]})
		}
	case x.kind == reflect.Map:
		x.key, x.elem = describeType(t.Key()), describeType(t.Elem())
	case x.kind == reflect.Array, x.kind == reflect.Slice, x.kind == reflect.Pointer:
		x.elem = describeType(t.Elem())
	case x.kind > reflect.Uint64 && x.kind != reflect.String:
		panic(fmt.Sprintf("snapshot: %v is a %v, which cannot be written", t, x.kind))
	}
	return x
}

// fieldsOf are the fields of a struct that are encoded.
func fieldsOf(t reflect.Type) (fields []reflect.StructField) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("snapshot") != "-" && f.Type.Size() > 0 {
			fields = append(fields, f)
		}
	}
	return fields
}

// accessible is v without the restrictions of a field that is not exported.
func accessible(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

func timeAt(v reflect.Value) *time.Time { return (*time.Time)(unsafe.Pointer(v.UnsafeAddr())) }

// isBytes reports whether the elements are bytes.
func (t *typeInfo) isBytes() bool { return t.elem.kind == reflect.Uint8 }

// isZero reports whether v is encoded as a bit of its struct.
func (t *typeInfo) isZero(v reflect.Value) bool {
	switch {
	case t.kind == kindTime:
		return timeAt(v).IsZero()
	case t.kind == kindPacker:
		return false
	case t.kind == reflect.Struct:
		for _, f := range t.fields {
			if !f.isZero(v.Field(f.index)) {
				return false
			}
		}
		return true
	case t.kind == reflect.Array && !t.isBytes():
		for i := range v.Len() {
			if !t.elem.isZero(v.Index(i)) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}

// A pointer is written as nil, as an object that follows, or as the number of an earlier
// object.
const (
	pointsNowhere = iota
	pointsNew
	pointsBack
)

// encode encodes v, which is addressable.
func (e *encoder) encode(t *typeInfo, v reflect.Value) {
	switch t.kind {
	case kindTime:
		at := timeAt(v)
		e.b = binary.AppendVarint(e.b, at.Unix())
		e.b = binary.AppendUvarint(e.b, uint64(at.Nanosecond()))
	case kindPacker:
		e.encode(t.form, reflect.ValueOf(accessible(v).Addr().Interface().(Packer).Pack()).Elem())
	case reflect.Bool:
		if v.Bool() {
			e.b = append(e.b, 1)
		} else {
			e.b = append(e.b, 0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.b = binary.AppendVarint(e.b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.b = binary.AppendUvarint(e.b, v.Uint())
	case reflect.String:
		e.writeText(v.String())
	case reflect.Array:
		e.encodeElements(t, v)
	case reflect.Slice:
		e.writeLength(v.IsNil(), v.Len())
		e.encodeElements(t, v)
	case reflect.Map:
		e.encodeMap(t, accessible(v))
	case reflect.Struct:
		at := len(e.b)
		e.b = append(e.b, make([]byte, (len(t.fields)+7)/8)...)
		for i, f := range t.fields {
			if field := v.Field(f.index); !f.isZero(field) {
				e.b[at+i/8] |= 1 << (i % 8)
				e.encode(f.typeInfo, field)
			}
		}
	case reflect.Pointer:
		e.encodePointer(t, v)
	}
}

// encodeElements encodes the elements of an array or a slice.
func (e *encoder) encodeElements(t *typeInfo, v reflect.Value) {
	if t.isBytes() {
		e.b = append(e.b, v.Bytes()...)
		return
	}
	for i := range v.Len() {
		e.checkStop()
		e.encode(t.elem, v.Index(i))
	}
}

// encodeMap encodes the entries, ordered by their encoded keys.
func (e *encoder) encodeMap(t *typeInfo, m reflect.Value) {
	e.writeLength(m.IsNil(), m.Len())
	type entry struct {
		key   []byte
		value reflect.Value
	}
	list := make([]entry, 0, m.Len())
	values := reflect.MakeSlice(reflect.SliceOf(t.elem.typ), m.Len(), m.Len())
	key := reflect.New(t.key.typ).Elem()
	plain := encoder{nextStopCheck: math.MaxInt} // without a cache, whose state would depend on the order
	for it := m.MapRange(); it.Next(); {
		key.SetIterKey(it)
		from := len(plain.b)
		plain.encode(t.key, key)
		value := values.Index(len(list))
		value.SetIterValue(it)
		list = append(list, entry{plain.b[from:], value})
	}
	slices.SortFunc(list, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	for _, x := range list {
		e.checkStop()
		e.b = append(e.b, x.key...)
		e.encode(t.elem, x.value)
	}
}

func (e *encoder) encodePointer(t *typeInfo, v reflect.Value) {
	if v.IsNil() {
		e.b = append(e.b, pointsNowhere)
		return
	}
	o := pointedObject{v.UnsafePointer(), t.elem}
	if n, known := e.objects[o]; known && n >= e.firstObject {
		e.b = binary.AppendUvarint(e.b, pointsBack+n-e.firstObject)
		return
	}
	e.checkStop()
	e.addObject(o)
	e.b = append(e.b, pointsNew)
	e.encode(t.elem, v.Elem())
}

// decode sets v, which is addressable and accessible.
func (d *decoder) decode(t *typeInfo, v reflect.Value) {
	switch t.kind {
	case kindTime:
		seconds := d.varint()
		*timeAt(v) = time.Unix(seconds, int64(d.uvarint())).UTC()
	case kindPacker:
		form := reflect.New(t.form.typ)
		d.decode(t.form, form.Elem())
		v.Addr().Interface().(Packer).Unpack(form.Interface())
	case reflect.Bool:
		v.SetBool(d.takeBytes(1)[0] == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(d.varint())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(d.uvarint())
	case reflect.String:
		v.SetString(d.readText())
	case reflect.Array:
		d.decodeElements(t, v)
	case reflect.Slice:
		if n, there := d.readLength(); there {
			v.Set(reflect.MakeSlice(t.typ, n, n))
			d.decodeElements(t, v)
		}
	case reflect.Map:
		if n, there := d.readLength(); there {
			d.decodeMap(t, v, n)
		}
	case reflect.Struct:
		there := d.takeBytes((len(t.fields) + 7) / 8)
		for i, f := range t.fields {
			if field := v.Field(f.index); there[i/8]>>(i%8)&1 == 1 {
				d.decode(f.typeInfo, accessible(field))
			} else if !f.isZero(field) {
				accessible(field).SetZero()
			}
		}
	case reflect.Pointer:
		d.decodePointer(t, v)
	}
}

// decodeElements decodes as many elements as an array or a slice has.
func (d *decoder) decodeElements(t *typeInfo, v reflect.Value) {
	if t.isBytes() {
		copy(v.Bytes(), d.takeBytes(v.Len()))
		return
	}
	for i := range v.Len() {
		d.decode(t.elem, v.Index(i))
	}
}

func (d *decoder) decodeMap(t *typeInfo, v reflect.Value, n int) {
	v.Set(reflect.MakeMapWithSize(t.typ, n))
	for range n {
		key, value := reflect.New(t.key.typ).Elem(), reflect.New(t.elem.typ).Elem()
		plain := decoder{b: d.b}
		plain.decode(t.key, key)
		d.b = plain.b
		d.decode(t.elem, value)
		v.SetMapIndex(key, value)
	}
}

func (d *decoder) decodePointer(t *typeInfo, v reflect.Value) {
	switch n := d.uvarint(); n {
	case pointsNowhere:
	case pointsNew:
		d.enterObject()
		v.Set(reflect.New(t.elem.typ))
		d.objects = append(d.objects, pointedObject{v.UnsafePointer(), t.elem})
		d.decode(t.elem, v.Elem())
		d.depth--
	default:
		o := d.objectAt(n - pointsBack)
		if o.of != t.elem {
			panic("a pointer to another type")
		}
		v.Set(reflect.NewAt(t.elem.typ, o.at))
	}
}
