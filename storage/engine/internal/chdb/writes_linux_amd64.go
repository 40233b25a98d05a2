package chdb

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// slots are the jump slots of the pinned build (readelf -rW), with addresses relative to its
// load address.
var slots = [...]struct {
	name string
	addr uintptr
}{
	{"write", 0x21c19b58},
	{"pwrite", 0x21c1a540},
	{"fsync", 0x21c1a100},
	{"fdatasync", 0x21c19d40},
}

// Variables of writes_linux_amd64.s.
var (
	standIns  [len(slots)]uintptr     // filled by the linker
	originals [len(slots) + 1]uintptr // the original functions and, last, __errno_location
	lastWords [lastWordsSize]byte
)

const (
	lastWordsText = "Countersign: a write to the engine's disk failed. The engine ends, so that nothing counts as stored that is not; its exit status is the errno (28: no space left).\n"
	lastWordsSize = len(lastWordsText)
)

// endAtFailedWrite makes the engine's process exit at once when a file cannot be written: no
// space left, a quota or a size limit reached, an I/O error. Its exit status is the errno.
//
// This build of the library counts a failed write (the event
// WriteBufferFromFileDescriptorWriteFailed) and continues as if the bytes were in the file:
// on a full disk it acknowledges inserts, and replaces whole parts by merged parts with empty
// files (engine.TestFailedWrite). A process that exits at the failed write has not renamed
// such a part into place, and everything that it acknowledged before is whole.
//
// The library calls these functions through slots that the loader fills. endAtFailedWrite
// replaces the slots by functions of this package, which call the originals.
func endAtFailedWrite(libc, base uintptr) (err error) {
	if originals[len(slots)], err = purego.Dlsym(libc, "__errno_location"); err != nil {
		return fmt.Errorf("looking in glibc: %w", err)
	}
	copy(lastWords[:], lastWordsText)
	for i, s := range slots {
		sym, err := purego.Dlsym(libc, s.name)
		if err != nil {
			return fmt.Errorf("looking in glibc: %w", err)
		}
		slot := readWord(base + s.addr)
		if *slot != sym {
			return fmt.Errorf("%w: no jump slot of %s", errLayout, s.name)
		}
		originals[i], *slot = sym, standIns[i]
	}
	return nil
}
