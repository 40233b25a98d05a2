package snapshot

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// writeLength writes the number of elements and one; 0 means nil.
func (e *encoder) writeLength(isNil bool, n int) {
	if isNil {
		e.b = append(e.b, 0)
		return
	}
	e.b = binary.AppendUvarint(e.b, uint64(n)+1)
}

// readLength reads a length; there is false for nil. Every element takes at least one byte, so
// a length beyond the remaining bytes is refused: damaged bytes cannot allocate more memory
// than their own size.
func (d *decoder) readLength() (n int, there bool) {
	u := d.uvarint()
	if u == 0 {
		return 0, false
	}
	if u-1 > uint64(len(d.b)) {
		panic("a length that goes beyond the end")
	}
	return int(u - 1), true
}

// A text is written as one number: 0 if it is empty, the slot in the cache and one, or the size
// of the cache plus its length, followed by its bytes.

func (e *encoder) writeText(s string) {
	if e.cache != nil && s != "" && len(s) <= maxCachedText {
		slot := e.cache.slot(s)
		if e.cache[slot] == s {
			e.b = binary.AppendUvarint(e.b, uint64(slot)+1)
			return
		}
		e.cache[slot] = s
	}
	if s == "" {
		e.b = append(e.b, 0)
		return
	}
	e.b = binary.AppendUvarint(e.b, uint64(len(e.cache)+len(s)))
	e.b = append(e.b, s...)
}

func (d *decoder) readText() string {
	n := d.uvarint()
	switch {
	case n == 0:
		return ""
	case n <= uint64(len(d.cache)):
		return d.cache[n-1]
	case n-uint64(len(d.cache)) > uint64(len(d.b)):
		panic("a text that goes beyond the end")
	}
	b := d.takeBytes(int(n) - len(d.cache))
	s := unsafe.String(&b[0], len(b))
	if !d.shared {
		s = strings.Clone(s)
	}
	if d.cache != nil && len(s) <= maxCachedText {
		d.cache[d.cache.slot(s)] = s
	}
	return s
}

func (d *decoder) takeBytes(n int) []byte {
	if n > len(d.b) {
		panic("it ends too early")
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		panic("a number that is none")
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		panic("a number that is none")
	}
	d.b = d.b[size:]
	return n
}

// maxDepth bounds the nesting of objects. Only the calls of a session lead to each other, and
// a session has few.
const maxDepth = 100_000

func (d *decoder) enterObject() {
	if d.depth++; d.depth > maxDepth {
		panic("it is nested too deeply")
	}
}

func (d *decoder) objectAt(n uint64) pointedObject {
	if n >= uint64(len(d.objects)) {
		panic("a pointer to what does not follow")
	}
	return d.objects[n]
}
