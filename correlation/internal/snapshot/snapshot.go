// Package snapshot writes a graph of Go values as bytes and reads it back. It
// takes every field of every type that it meets, exported or not, so that no
// state can be forgotten; what is no state says so with the tag `snapshot:"-"`.
// The same graph always gives the same bytes.
//
// It knows booleans, integers, texts, times (as instants, in UTC), arrays,
// slices, maps, structs and pointers; one object that several pointers lead to
// stays one object. Other types, interfaces above all, are refused. A type that
// would rather be written in another form is a Packer.
//
// The bytes hold no description of themselves: their reader must know that
// they were written with the same Shape, and that they are unchanged.
package snapshot

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"
)

// ErrDamaged says that bytes are no snapshot of the type that they are read as.
var ErrDamaged = errors.New("damaged snapshot")

// Packer is implemented, with a pointer receiver, by a type that is written in
// another form.
type Packer interface {
	// Pack gives a pointer to that form, of the same type always; of the zero value,
	// one to read into.
	Pack() any
	// Unpack takes what Pack gave.
	Unpack(form any)
}

// ErrStopped says that what was to be written was given up.
var ErrStopped = errors.New("writing the snapshot was stopped")

// Append appends what the pointer root leads to. objects is about how many
// pointers lead to something new, as far as that is known. stop, which may be nil,
// is asked now and then whether to give up: then the error is ErrStopped.
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

// Read reads what Append wrote of the same type, and gives a pointer to it.
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

// pointedObject is something that pointers lead to: a struct and its first field have
// one address.
type pointedObject struct {
	at unsafe.Pointer
	of *codec
}

// cacheSize is how many texts writer and reader remember to write them once.
// Both forget the same ones.
const cacheSize = 1 << 13

type textCache [cacheSize]string

// maxCachedText is above what is worth remembering.
const maxCachedText = 128

// cacheSlot looks at the length and the last bytes, in which ids differ.
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
	cache         *textCache // nil: nothing is remembered
	stop          func() bool
	nextStopCheck int // how long b is when stop is asked again
}

// stopCheckBytes is how many bytes are written, which takes a few milliseconds, before
// a caller that wants no more of them is heard.
const stopCheckBytes = 256 << 10

// checkStop comes before each element of what can be long. It ends the writing by a
// panic, which Append turns into an error.
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

// codec writes and reads values of one type.
type codec struct {
	enc func(e *encoder, p unsafe.Pointer)
	dec func(d *decoder, p unsafe.Pointer)
}
