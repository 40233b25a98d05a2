package snapshot

import (
	"encoding/binary"
	"unsafe"
)

func readSigned(p unsafe.Pointer, size uintptr) int64 {
	switch size {
	case 1:
		return int64(*(*int8)(p))
	case 2:
		return int64(*(*int16)(p))
	case 4:
		return int64(*(*int32)(p))
	}
	return *(*int64)(p)
}

func setSigned(p unsafe.Pointer, size uintptr, n int64) {
	switch size {
	case 1:
		*(*int8)(p) = int8(n)
	case 2:
		*(*int16)(p) = int16(n)
	case 4:
		*(*int32)(p) = int32(n)
	default:
		*(*int64)(p) = n
	}
}

func readUnsigned(p unsafe.Pointer, size uintptr) uint64 {
	switch size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

func setUnsigned(p unsafe.Pointer, size uintptr, n uint64) {
	switch size {
	case 1:
		*(*uint8)(p) = uint8(n)
	case 2:
		*(*uint16)(p) = uint16(n)
	case 4:
		*(*uint32)(p) = uint32(n)
	default:
		*(*uint64)(p) = n
	}
}

// writeLength writes how many elements follow, and one; zero is nil.
func (e *encoder) writeLength(isNil bool, n int) {
	if isNil {
		e.b = append(e.b, 0)
		return
	}
	e.b = binary.AppendUvarint(e.b, uint64(n)+1)
}

// readLength reads how many elements follow; there is false for nil. Every element
// of a state takes a byte at least, so that no length can ask for more memory
// than the snapshot is long.
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

// writeText writes a text, or the place in the cache where it is.
func (e *encoder) writeText(s string) {
	if e.cache == nil || s == "" || len(s) > maxCachedText {
		e.b = append(e.b, 0)
		e.b = binary.AppendUvarint(e.b, uint64(len(s)))
		e.b = append(e.b, s...)
		return
	}
	slot := cacheSlot(s)
	if e.cache[slot] == s {
		e.b = binary.AppendUvarint(e.b, uint64(slot)+1)
		return
	}
	e.cache[slot] = s
	e.b = append(e.b, 0)
	e.b = binary.AppendUvarint(e.b, uint64(len(s)))
	e.b = append(e.b, s...)
}

func (d *decoder) readText() string {
	if slot := d.uvarint(); slot > cacheSize || slot > 0 && d.cache == nil {
		panic("a text that is nowhere")
	} else if slot > 0 {
		return d.cache[slot-1]
	}
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		panic("a text that goes beyond the end")
	}
	s := string(d.takeBytes(int(n)))
	if d.cache != nil && s != "" && len(s) <= maxCachedText {
		d.cache[cacheSlot(s)] = s
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

// maxDepth bounds how deep objects lie in each other. A state is shallow: a
// session's calls lead to each other, and there are not many of them.
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
