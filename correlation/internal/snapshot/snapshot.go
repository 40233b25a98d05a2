// Package snapshot encodes a graph of Go values as bytes, and decodes it. It encodes every
// field of every type in the graph, exported or not, so that no state is forgotten. The tag
// `snapshot:"-"` leaves out a field that is no state. The same graph always gives the same
// bytes.
//
// It supports booleans, integers, strings, times (as instants, in UTC), arrays, slices, maps,
// structs and pointers. An object that several pointers lead to stays one object. Other types,
// such as interfaces, are refused. A Packer is encoded in a form of its own.
//
// The bytes do not describe themselves. The reader must know that they have the same Shape and
// are unchanged.
package snapshot

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"
)

// ErrDamaged is the error for bytes that are no snapshot of the expected type.
var ErrDamaged = errors.New("damaged snapshot")

// Packer is implemented, with a pointer receiver, by a type that is encoded in another form.
type Packer interface {
	// Pack returns a pointer to that form, always of the same type. The form of the zero value
	// is used to decode into.
	Pack() any
	// Unpack restores the value that Pack returned.
	Unpack(form any)
}

// ErrStopped is the error when stop ended the encoding.
var ErrStopped = errors.New("writing the snapshot was stopped")

// Append appends the encoding of what the pointer root leads to. objects is the expected
// number of objects. stop, which may be nil, is called now and then; if it returns true, the
// error is ErrStopped.
func Append(b []byte, root any, objects int, stop func() bool) (_ []byte, err error) {
	if stop == nil {
		stop = func() bool { return false }
	}
	defer func() {
		switch r := recover(); r {
		case nil:
		case ErrStopped:
			err = ErrStopped
		default:
			panic(r)
		}
	}()
	v := reflect.ValueOf(root)
	e := &encoder{b: b, objects: make(map[pointedObject]uint64, objects), cache: new(textCache), stop: stop}
	codecOf(v.Type()).enc(e, unsafe.Pointer(&[1]unsafe.Pointer{v.UnsafePointer()}))
	return e.b, nil
}

// Read decodes what Append encoded from the same type.
func Read[T any](b []byte) (root *T, err error) {
	d := &decoder{b: b, cache: new(textCache)}
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	codecOf(reflect.TypeFor[*T]()).dec(d, unsafe.Pointer(&root))
	if len(d.b) > 0 || root == nil {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrDamaged, len(d.b))
	}
	return root, nil
}

// pointedObject identifies an object by address and type: a struct and its first field have
// the same address.
type pointedObject struct {
	at unsafe.Pointer
	of *codec
}

// cacheSize is how many strings encoder and decoder remember, to encode a repeated string
// once. Both forget the same strings.
const cacheSize = 1 << 13

type textCache [cacheSize]string

// maxCachedText is the longest string that is remembered.
const maxCachedText = 128

// cacheSlot hashes the length and the last bytes, because ids differ in those.
func cacheSlot(s string) uint32 {
	h := uint32(len(s))
	for i := max(0, len(s)-12); i < len(s); i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return (h ^ h>>15) % cacheSize
}

type encoder struct {
	b             []byte
	objects       map[pointedObject]uint64
	cache         *textCache // nil: no string is remembered
	stop          func() bool
	nextStopCheck int // the length of b at which stop is called again
}

// stopCheckBytes is how many bytes are encoded between two calls of stop: a few milliseconds.
const stopCheckBytes = 256 << 10

// checkStop is called before each element of a long list. It ends the encoding by a panic,
// which Append converts to an error.
func (e *encoder) checkStop() {
	if len(e.b) < e.nextStopCheck {
		return
	}
	if e.stop() {
		panic(ErrStopped)
	}
	e.nextStopCheck = len(e.b) + stopCheckBytes
}

type decoder struct {
	b       []byte
	objects []pointedObject
	cache   *textCache
	depth   int
}

// codec encodes and decodes values of one type.
type codec struct {
	enc func(e *encoder, p unsafe.Pointer)
	dec func(d *decoder, p unsafe.Pointer)
}
