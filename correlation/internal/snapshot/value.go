package snapshot

import (
	"math"
	"reflect"
	"unsafe"
)

// ValueCodec encodes values of one type, each by itself and into few bytes. Like those of a section,
// the bytes do not describe themselves. The zero ValueCodec is ready; it is for one goroutine.
type ValueCodec[T any] struct {
	typ     *typeInfo
	encoder encoder
	decoder decoder
}

// valueCache is the size of a value's cache: a slot takes one byte.
const valueCache = 64

func (c *ValueCodec[T]) prepare() {
	if c.typ == nil {
		c.typ = typeInfoOf(reflect.TypeFor[T]())
		c.encoder = encoder{objects: map[pointedObject]uint64{}, cache: make(textCache, valueCache), nextStopCheck: math.MaxInt}
		c.decoder = decoder{cache: make(textCache, valueCache), shared: true}
	}
}

// Encode returns the bytes of a value. They are valid until the next call.
func (c *ValueCodec[T]) Encode(v *T) []byte {
	c.prepare()
	e := &c.encoder
	e.b, e.objectCount = e.b[:0], 0
	clear(e.objects)
	clear(e.cache)
	e.encode(c.typ, reflect.ValueOf(v).Elem())
	return e.b
}

// Decode sets v to the value whose bytes Encode returned. The strings in v are parts of text.
func (c *ValueCodec[T]) Decode(text string, v *T) {
	c.prepare()
	d := &c.decoder
	d.b, d.objects, d.depth = unsafe.Slice(unsafe.StringData(text), len(text)), d.objects[:0], 0
	clear(d.cache)
	d.decode(c.typ, reflect.ValueOf(v).Elem())
}
