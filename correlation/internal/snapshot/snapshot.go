// Package snapshot encodes graphs of Go values as bytes, and decodes them. Each graph is a
// section with a name. A section refers to no other: objects that two graphs share become two.
//
// It encodes every field of every type in a graph, exported or not, so that no state is
// forgotten. The tag `snapshot:"-"` leaves out a field. The same graphs always give the same
// bytes.
//
// It supports booleans, integers, strings, times (as instants, in UTC), arrays, slices, maps,
// structs and pointers. An object that several pointers of a section lead to stays one object.
// Other types, such as interfaces, are refused. A Packer is encoded in a form of its own. A field
// that is zero takes one bit of its struct. A ValueCodec encodes single values likewise.
//
// The bytes of a section do not describe themselves. The reader must know that they have the
// same Shape and are unchanged.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"
)

// Section is one part of a snapshot.
type Section struct {
	Name string
	Root any // a pointer to the value; Read overwrites it, but for the fields that are left out
}

// ErrDamaged is the error for bytes that are not the expected sections.
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

// lengthSize is the size of a section's length. It is written when the section is complete.
const lengthSize = 8

// Append appends the sections: of each its name, its length, and the encoding of what its root
// leads to. objects is the expected number of objects. stop, which may be nil, is called now
// and then; if it returns true, the error is ErrStopped.
func Append(b []byte, sections []Section, objects int, stop func() bool) (_ []byte, err error) {
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
	e := &encoder{b: b, objects: make(map[pointedObject]uint64, objects), cache: make(textCache, sectionCache), stop: stop}
	for _, s := range sections {
		e.b = binary.AppendUvarint(e.b, uint64(len(s.Name)))
		e.b = append(e.b, s.Name...)
		e.b = append(e.b, make([]byte, lengthSize)...)
		from := len(e.b)
		e.encodeRoot(s.Root)
		binary.BigEndian.PutUint64(e.b[from-lengthSize:], uint64(len(e.b)-from))
	}
	return e.b, nil
}

func (e *encoder) encodeRoot(root any) {
	v := reflect.ValueOf(root)
	clear(e.cache)
	e.firstObject = e.objectCount
	t := typeInfoOf(v.Type().Elem())
	e.addObject(pointedObject{v.UnsafePointer(), t})
	e.encode(t, v.Elem())
}

// Read decodes what Append encoded from the same sections, in the same order.
func Read(b []byte, sections []Section) (err error) {
	d := &decoder{b: b, cache: make(textCache, sectionCache)}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	for _, s := range sections {
		if n := d.uvarint(); n != uint64(len(s.Name)) || string(d.takeBytes(len(s.Name))) != s.Name {
			return fmt.Errorf("%w: the section %s is not where it belongs", ErrDamaged, s.Name)
		}
		n := binary.BigEndian.Uint64(d.takeBytes(lengthSize))
		if n > uint64(len(d.b)) {
			return fmt.Errorf("%w: the section %s is cut off", ErrDamaged, s.Name)
		}
		rest := d.b[n:]
		d.b = d.b[:n]
		d.decodeRoot(s.Root)
		if len(d.b) > 0 {
			return fmt.Errorf("%w: the section %s has %d bytes too many", ErrDamaged, s.Name, len(d.b))
		}
		d.b = rest
	}
	if len(d.b) > 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrDamaged, len(d.b))
	}
	return nil
}

func (d *decoder) decodeRoot(root any) {
	v := reflect.ValueOf(root)
	t := typeInfoOf(v.Type().Elem())
	clear(d.cache)
	d.depth = 0
	d.objects = append(d.objects[:0], pointedObject{v.UnsafePointer(), t})
	d.decode(t, v.Elem())
}

// Shape describes in words how the sections are encoded. Bytes that were encoded with one
// shape must not be decoded with another.
func Shape(sections []Section) string {
	var b strings.Builder
	for _, s := range sections {
		b.WriteString(s.Name + " ")
		writeShape(&b, reflect.TypeOf(s.Root).Elem(), map[reflect.Type]bool{})
	}
	return b.String()
}

// pointedObject identifies an object by address and type: a struct and its first field have
// the same address.
type pointedObject struct {
	at unsafe.Pointer
	of *typeInfo
}

// textCache are the strings that encoder and decoder remember, to encode a repeated string
// once. Both forget the same strings.
type textCache []string

const sectionCache = 1 << 13 // the size of a section's cache

// maxCachedText is the longest string that is remembered.
const maxCachedText = 128

// slot hashes the length and the last bytes, because ids differ in those.
func (c textCache) slot(s string) uint32 {
	h := uint32(len(s))
	for i := max(0, len(s)-12); i < len(s); i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return (h ^ h>>15) % uint32(len(c))
}

type encoder struct {
	b             []byte
	objects       map[pointedObject]uint64 // the numbers of the objects, of all sections so far
	objectCount   uint64
	firstObject   uint64    // the number of the section's first object
	cache         textCache // nil: no string is remembered
	stop          func() bool
	nextStopCheck int // the length of b at which stop is called again
}

// addObject numbers an object.
func (e *encoder) addObject(o pointedObject) {
	e.objects[o] = e.objectCount
	e.objectCount++
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
	cache   textCache
	depth   int
	shared  bool // texts are parts of b, which never changes
}
