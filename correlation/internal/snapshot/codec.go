package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// codecs caches the codec of each type.
var (
	codecs   = map[reflect.Type]*codec{}
	codecsMu sync.Mutex
)

func codecOf(t reflect.Type) *codec {
	codecsMu.Lock()
	defer codecsMu.Unlock()
	return compileCodec(t)
}

var (
	timeType   = reflect.TypeFor[time.Time]()
	packerType = reflect.TypeFor[Packer]()
)

// compileCodec makes the codec of a type. It registers the codec before it is complete,
// because types may be recursive.
func compileCodec(t reflect.Type) *codec {
	if c := codecs[t]; c != nil {
		return c
	}
	c := &codec{}
	codecs[t] = c
	var made codec
	switch {
	case t == timeType:
		made = codec{encodeTime, decodeTime, func(p unsafe.Pointer) bool { return (*time.Time)(p).IsZero() }}
	case reflect.PointerTo(t).Implements(packerType):
		made = packerCodec(t)
	default:
		made = kindCodec(t)
	}
	*c = made
	return c
}

func kindCodec(t reflect.Type) codec {
	size := t.Size()
	switch t.Kind() {
	case reflect.Bool:
		return codec{
			func(e *encoder, p unsafe.Pointer) { e.b = append(e.b, *(*byte)(p)) },
			func(d *decoder, p unsafe.Pointer) { *(*bool)(p) = d.takeBytes(1)[0] == 1 },
			func(p unsafe.Pointer) bool { return !*(*bool)(p) },
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return codec{
			func(e *encoder, p unsafe.Pointer) { e.b = binary.AppendVarint(e.b, readSigned(p, size)) },
			func(d *decoder, p unsafe.Pointer) { setSigned(p, size, d.varint()) },
			func(p unsafe.Pointer) bool { return readUnsigned(p, size) == 0 },
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return codec{
			func(e *encoder, p unsafe.Pointer) { e.b = binary.AppendUvarint(e.b, readUnsigned(p, size)) },
			func(d *decoder, p unsafe.Pointer) { setUnsigned(p, size, d.uvarint()) },
			func(p unsafe.Pointer) bool { return readUnsigned(p, size) == 0 },
		}
	case reflect.String:
		return codec{
			func(e *encoder, p unsafe.Pointer) { e.writeText(*(*string)(p)) },
			func(d *decoder, p unsafe.Pointer) { *(*string)(p) = d.readText() },
			func(p unsafe.Pointer) bool { return *(*string)(p) == "" },
		}
	case reflect.Array:
		return arrayCodec(t)
	case reflect.Slice:
		return sliceCodec(t)
	case reflect.Map:
		return mapCodec(t)
	case reflect.Struct:
		return structCodec(t)
	case reflect.Pointer:
		return pointerCodec(t)
	}
	panic(fmt.Sprintf("snapshot: %v is a %v, which cannot be written", t, t.Kind()))
}

func encodeTime(e *encoder, p unsafe.Pointer) {
	t := (*time.Time)(p)
	e.b = binary.AppendVarint(e.b, t.Unix())
	e.b = binary.AppendUvarint(e.b, uint64(t.Nanosecond()))
}

func decodeTime(d *decoder, p unsafe.Pointer) {
	seconds := d.varint()
	*(*time.Time)(p) = time.Unix(seconds, int64(d.uvarint())).UTC()
}

func packerCodec(t reflect.Type) codec {
	form := reflect.TypeOf(reflect.New(t).Interface().(Packer).Pack()).Elem()
	inner := compileCodec(form)
	at := func(p unsafe.Pointer) Packer { return reflect.NewAt(t, p).Interface().(Packer) }
	return codec{
		func(e *encoder, p unsafe.Pointer) { inner.enc(e, reflect.ValueOf(at(p).Pack()).UnsafePointer()) },
		func(d *decoder, p unsafe.Pointer) {
			v := reflect.New(form)
			inner.dec(d, v.UnsafePointer())
			at(p).Unpack(v.Interface())
		},
		func(unsafe.Pointer) bool { return false },
	}
}

func arrayCodec(t reflect.Type) codec {
	n, elem := t.Len(), t.Elem()
	if elem.Kind() == reflect.Uint8 {
		return codec{
			func(e *encoder, p unsafe.Pointer) { e.b = append(e.b, unsafe.Slice((*byte)(p), n)...) },
			func(d *decoder, p unsafe.Pointer) { copy(unsafe.Slice((*byte)(p), n), d.takeBytes(n)) },
			func(p unsafe.Pointer) bool { return !slices.ContainsFunc(unsafe.Slice((*byte)(p), n), isSet) },
		}
	}
	c, stride := compileCodec(elem), elem.Size()
	each := func(p unsafe.Pointer, do func(unsafe.Pointer)) {
		for i := range n {
			do(unsafe.Add(p, uintptr(i)*stride))
		}
	}
	return codec{
		func(e *encoder, p unsafe.Pointer) { each(p, func(p unsafe.Pointer) { c.enc(e, p) }) },
		func(d *decoder, p unsafe.Pointer) { each(p, func(p unsafe.Pointer) { c.dec(d, p) }) },
		func(p unsafe.Pointer) bool {
			zero := true
			each(p, func(p unsafe.Pointer) { zero = zero && c.zero(p) })
			return zero
		},
	}
}

func isSet(b byte) bool { return b != 0 }

func isNil(p unsafe.Pointer) bool { return *(*unsafe.Pointer)(p) == nil }

// sliceHeader is the memory layout of a slice.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// sliceCodec encodes the length and the elements.
func sliceCodec(t reflect.Type) codec {
	elem := t.Elem()
	if elem.Kind() == reflect.Uint8 {
		return codec{
			func(e *encoder, p unsafe.Pointer) {
				b := *(*[]byte)(p)
				e.writeLength(b == nil, len(b))
				e.b = append(e.b, b...)
			},
			func(d *decoder, p unsafe.Pointer) {
				if n, there := d.readLength(); there {
					*(*[]byte)(p) = append([]byte{}, d.takeBytes(n)...)
				}
			},
			isNil, // data comes first in a sliceHeader
		}
	}
	c, stride := compileCodec(elem), elem.Size()
	return codec{
		func(e *encoder, p unsafe.Pointer) {
			h := (*sliceHeader)(p)
			e.writeLength(h.data == nil, h.len)
			for i := range h.len {
				e.checkStop()
				c.enc(e, unsafe.Add(h.data, uintptr(i)*stride))
			}
		},
		func(d *decoder, p unsafe.Pointer) {
			n, there := d.readLength()
			if !there {
				return
			}
			list := reflect.MakeSlice(t, n, n)
			reflect.NewAt(t, p).Elem().Set(list)
			data := list.UnsafePointer()
			for i := range n {
				c.dec(d, unsafe.Add(data, uintptr(i)*stride))
			}
		},
		isNil,
	}
}

// mapCodec encodes the entries, ordered by their encoded keys.
func mapCodec(t reflect.Type) codec {
	key, elem := t.Key(), t.Elem()
	kc, ec := compileCodec(key), compileCodec(elem)
	type entry struct {
		from, to int // the key, in the buffer of all keys
		value    unsafe.Pointer
	}
	return codec{
		func(e *encoder, p unsafe.Pointer) {
			m := reflect.NewAt(t, p).Elem()
			e.writeLength(m.IsNil(), m.Len())
			if m.Len() == 0 {
				return
			}
			list := make([]entry, 0, m.Len())
			values := reflect.MakeSlice(reflect.SliceOf(elem), m.Len(), m.Len())
			k := reflect.New(key)
			plain := encoder{stop: e.stop} // without a cache, whose state would depend on the order
			for it := m.MapRange(); it.Next(); {
				k.Elem().SetIterKey(it)
				from := len(plain.b)
				kc.enc(&plain, k.UnsafePointer())
				v := values.Index(len(list))
				v.SetIterValue(it)
				list = append(list, entry{from, len(plain.b), v.Addr().UnsafePointer()})
			}
			slices.SortFunc(list, func(a, b entry) int { return bytes.Compare(plain.b[a.from:a.to], plain.b[b.from:b.to]) })
			for _, x := range list {
				e.checkStop()
				e.b = append(e.b, plain.b[x.from:x.to]...)
				ec.enc(e, x.value)
			}
		},
		func(d *decoder, p unsafe.Pointer) {
			n, there := d.readLength()
			if !there {
				return
			}
			m := reflect.MakeMapWithSize(t, n)
			reflect.NewAt(t, p).Elem().Set(m)
			for range n {
				k, v := reflect.New(key), reflect.New(elem)
				plain := decoder{b: d.b}
				kc.dec(&plain, k.UnsafePointer())
				d.b = plain.b
				ec.dec(d, v.UnsafePointer())
				m.SetMapIndex(k.Elem(), v.Elem())
			}
		},
		isNil,
	}
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

// structCodec encodes which fields are not zero, one bit each, and those fields.
func structCodec(t reflect.Type) codec {
	type field struct {
		*codec
		offset uintptr
		typ    reflect.Type
	}
	var fields []field
	for _, f := range fieldsOf(t) {
		fields = append(fields, field{compileCodec(f.Type), f.Offset, f.Type})
	}
	bits := make([]byte, (len(fields)+7)/8)
	return codec{
		func(e *encoder, p unsafe.Pointer) {
			at := len(e.b)
			e.b = append(e.b, bits...)
			for i := range fields {
				f := &fields[i]
				if p := unsafe.Add(p, f.offset); !f.zero(p) {
					e.b[at+i/8] |= 1 << (i % 8)
					f.enc(e, p)
				}
			}
		},
		func(d *decoder, p unsafe.Pointer) {
			there := d.takeBytes(len(bits))
			for i := range fields {
				f := &fields[i]
				p := unsafe.Add(p, f.offset)
				if there[i/8]>>(i%8)&1 == 1 {
					f.dec(d, p)
				} else if !f.zero(p) {
					reflect.NewAt(f.typ, p).Elem().SetZero()
				}
			}
		},
		func(p unsafe.Pointer) bool {
			for i := range fields {
				if !fields[i].zero(unsafe.Add(p, fields[i].offset)) {
					return false
				}
			}
			return true
		},
	}
}

// A pointer is written as nil, as an object that follows, or as the number of an earlier
// object.
const (
	pointsNowhere = iota
	pointsNew
	pointsBack
)

func pointerCodec(t reflect.Type) codec {
	elem := t.Elem()
	c := compileCodec(elem)
	return codec{
		func(e *encoder, p unsafe.Pointer) {
			at := *(*unsafe.Pointer)(p)
			if at == nil {
				e.b = append(e.b, pointsNowhere)
				return
			}
			if n, known := e.objects[pointedObject{at, c}]; known && n >= e.firstObject {
				e.b = binary.AppendUvarint(e.b, pointsBack+n-e.firstObject)
				return
			}
			e.checkStop()
			e.addObject(pointedObject{at, c})
			e.b = append(e.b, pointsNew)
			c.enc(e, at)
		},
		func(d *decoder, p unsafe.Pointer) {
			switch n := d.uvarint(); n {
			case pointsNowhere:
			case pointsNew:
				d.enterObject()
				v := reflect.New(elem)
				reflect.NewAt(t, p).Elem().Set(v)
				d.objects = append(d.objects, pointedObject{v.UnsafePointer(), c})
				c.dec(d, v.UnsafePointer())
				d.depth--
			default:
				o := d.objectAt(n - pointsBack)
				if o.of != c {
					panic("a pointer to another type")
				}
				reflect.NewAt(t, p).Elem().Set(reflect.NewAt(elem, o.at))
			}
		},
		isNil,
	}
}
